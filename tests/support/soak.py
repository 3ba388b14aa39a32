"""soak.py [--steps N] [--seed S] [--build DIR] [--long]: a long run of tiny steps of two ranks. Prints TAP.

It saves every 100 steps and is killed about every 1,800, a rank or mpirun, at a random moment; then the same command again.
Its status is asked throughout. Wanted: at most 5 % of the steps are done twice; the curve is that of a run that nobody
broke, bit for bit; of every process descriptors and threads are in the last quarter of its life what they were in the
second, and so is the memory of one that lives for 20,000 steps (16 KiB more for each 1,000 steps, and half a MiB, at
most; the history of metrics that rank 0 keeps is at its largest by then). --long: 86,400 steps."""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import tiny

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAVE_STEPS, SETTLED = 100, 300


def sample(pid):
    """(KiB resident, descriptors, threads)"""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        text = file.read()
    return int(re.search(r"VmRSS:\s*(\d+)", text)[1]), len(os.listdir(f"/proc/{pid}/fd")), int(re.search(r"Threads:\s*(\d+)", text)[1])


def status(path):
    """The step that the run tells, or None."""
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            link.connect(path)
            link.sendall(b"GET /v1/status HTTP/1.1\r\nHost: zerod\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := link.recv(65536):
                answer += part
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])["step"]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def rows(path):
    try:
        with open(path, "rb") as file:
            return re.findall(rb'"step":(\d+).*?"loss":([^,}]*)', file.read())
    except OSError:
        return []


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.chance = random.Random(options.seed)
        self.zerod = os.path.abspath(options.build) + "/daemon/zerod"
        tiny.write(folder, 400)
        self.polls = self.answers = self.repeated = self.kills = 0
        self.growth = []  # of each process: (steps, KiB, descriptors, threads)

    def start(self, out, save_steps):
        sets = tiny.sets({"job.name": "soak", "job.output_dir": out, "train.max_steps": self.options.steps, "checkpoint.save_steps": save_steps,
                          "checkpoint.save_total_limit": 2, "checkpoint.export": "none"})
        with open(self.folder + "/err", "ab") as err:
            return subprocess.Popen(["mpirun", "--oversubscribe", "-np", "2", self.zerod, "--job", "job.toml", *sets],
                                    cwd=self.folder, stdout=err, stderr=err, start_new_session=True, env={**os.environ, "XDG_RUNTIME_DIR": self.folder})

    def saved(self):
        steps = [int(each[11:]) for each in os.listdir(self.folder + "/out") if each.startswith("checkpoint-")] if os.path.isdir(self.folder + "/out") else []
        return max(steps, default=0)

    def live(self, kill_after, out="out"):
        """Until its end, or for so many steps."""
        run, samples, told = self.start(out, SAVE_STEPS if out == "out" else self.options.steps), {}, None
        first = self.saved()
        while run.poll() is None:
            time.sleep(0.1)
            step = status(self.folder + "/zerod/soak.sock")
            self.polls += 1
            self.answers += step is not None
            told = step if step is not None else told
            for pid in tiny.children(run.pid) if step is not None and step > first + SETTLED else ():
                try:
                    samples.setdefault(pid, []).append((step, *sample(pid)))
                except (OSError, TypeError):
                    pass
            if kill_after and told and told - first >= kill_after:
                time.sleep(self.chance.uniform(0, 0.3))
                ranks = tiny.children(run.pid)
                victims = ranks + [run.pid]
                os.kill(self.chance.choice(victims), signal.SIGKILL)
                self.kills += 1
                run.wait(60)
                while any(os.path.exists(f"/proc/{pid}") for pid in ranks):
                    time.sleep(0.05)
        for each in samples.values():
            self.look(each)
        done = rows(self.folder + "/out/metrics.jsonl")
        if kill_after and run.returncode != 0:
            self.repeated += max(0, len(done) - self.saved())
        return run.returncode

    def look(self, samples):
        quarter = len(samples) // 4
        if quarter < 5:
            return
        early, late = samples[quarter:2 * quarter], samples[-quarter:]
        steps = late[-1][0] - early[0][0]

        def least(part, i):
            return min(each[i] for each in part)

        self.growth.append((steps, *(least(late, i) - least(early, i) for i in (1, 2, 3))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--build", default=SOURCE + "/build")
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    if options.long:
        options.steps = 86400
    os.environ.update(tiny.MPI)
    folder = tempfile.mkdtemp(prefix="zerod-soak-", dir="/tmp")
    tests = failures = 0

    def ok(good, name):
        nonlocal tests, failures
        tests += 1
        failures += not good
        print(f"{'' if good else 'not '}ok {tests} - {name}", flush=True)

    print(f"# --seed {options.seed} --steps {options.steps}", flush=True)
    began = time.monotonic()
    try:
        soak = Soak(options, folder)
        ok(soak.live(0, "whole") == 0, "the unbroken run")
        code = None
        while code != 0 and soak.kills < 2 * options.steps // 900 + 5:
            code = soak.live(soak.chance.randint(900, 2700))
        ok(code == 0, f"{options.steps} steps, {soak.kills} kills, to the end")
        whole_rows, broken_rows = rows(folder + "/whole/metrics.jsonl"), rows(folder + "/out/metrics.jsonl")
        ok(len(whole_rows) == options.steps and whole_rows == broken_rows, "the losses of the unbroken run, bit for bit")
        ok(soak.repeated <= 0.05 * options.steps, f"{soak.repeated} steps were done twice, {100 * soak.repeated / options.steps:.2f} %")
        ok(soak.answers > soak.polls / 2, f"{soak.answers} of {soak.polls} questions for its status were answered; others came at a start or an end")
        lives = [g for g in soak.growth if g[0] >= 10000]  # the second to the fourth quarter of 20,000
        for steps, more, _, _ in lives:
            ok(more <= 512 + 16 * steps / 1000, f"resident memory: {more} KiB more, over {steps} steps")
        ok(all(g[2] <= 0 and g[3] <= 0 for g in soak.growth), f"of {len(soak.growth)} processes descriptors and threads are not more in the end: at most "
           f"{max((g[2] for g in soak.growth), default=0)} and {max((g[3] for g in soak.growth), default=0)} more")
        print(f"1..{tests}")
        print(f"# {time.monotonic() - began:.0f} s")
        if failures:
            subprocess.run(["tail", "-n", "15", folder + "/err"], check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(failures > 0)


main()
