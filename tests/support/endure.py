"""endure.py --trials N --seed S [--jobs J] [--long] [--build DIR]: a run that is broken at random, and started again. Prints TAP.

A trial is a run of two ranks that saves at every other step, keeps two checkpoints and exports a model. One to three times it
is broken: SIGKILL, SIGSEGV, SIGSTOP for ever, or a disk that is full; a rank, all, or mpirun; inside a call (the n-th write,
fsync or rename of a save, of a row, of retention, of an export, or the n-th file opened at the start), or from outside at
a random moment. Saves are written beside the training, by default: the calls of a save are then those of its own thread. Then
the same command again, to its end. Wanted after each break: 75 where a rank stands still for ever, no process is left, every
checkpoint that has its name verifies, and none of which an event has told is gone; at the end: the curve and the model of
the unbroken run, bit for bit, and no leftovers. Runs start by deploy/mpirun.sh, which is broken from outside as mpirun is.
Some trials have a real disk of a few MiB, where a tmpfs can be mounted, which is filled. --long: more steps.

A failed trial prints its number: --seed S --only T does it again, as far as time allows; --from T goes on behind it."""

import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import tiny

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Ways to run that leave the bits of the run without them.
WAYS = ({}, {"zero.stage": 0}, {"zero.stage": 1}, {"zero.stage": 3, "offload.optimizer": "cpu"}, {"checkpoint.async_save": "false"},
        {"zero.stage": 3, "offload.optimizer": "nvme", "offload.params": "nvme", "offload.nvme_path": "nvme", "offload.chunk_bytes": 4096}), [3, 2, 2, 2, 2, 2]
# (call, part of the path, how many of them a run makes)
CALLS = {
    "saving": [("write", ".tmp-checkpoint", 60), ("fsync", ".tmp-checkpoint", 30), ("rename", ".tmp-checkpoint", 20), ("rename", "/checkpoint-", 8),
               ("mkdir", ".tmp-checkpoint", 8), ("write", "shard-", 60), ("fsync", "shard-", 8), ("write", "manifest", 8)],
    "retention": [("rename", ".trash-", 5), ("remove", ".trash-", 30), ("fsync", "/out", 40)],
    "exporting": [("write", "hf.tmp", 8), ("fsync", "hf.tmp", 5), ("rename", "/hf", 1)],
    "rows": [("write", "metrics.jsonl", 40), ("fsync", "metrics.jsonl", 8), ("write", "events.jsonl", 20)],
    "starting": [("open", "/", 200), ("stat", "/", 100), ("write", ".zerod", 4), ("readdir", "/", 10)],
}
ENOSPC = 28
DISK = "8m"  # of a trial that has one of its own
# From inside a call, whose process gets the signal: one that stands still is found; a whole run that stands still is nobody's.
WHOM = {"kill": (["self", "parent", "all"], [6, 2, 2]), "segv": (["self"], [1]), "stop": (["self", "parent"], [9, 1])}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="this trial alone")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first of the trials")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--build", default=SOURCE + "/build")
    parser.add_argument("--keep", action="store_true", help="keep the folders of trials that failed")
    parser.add_argument("--timeout", type=lambda text: int(text.rstrip("s")), default=5, help="comm.timeout of the runs, in seconds")
    return parser.parse_args()


def processes(word):
    """Ours: those whose command line has this word, a folder that only one trial has."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read()
                with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                    state = file.read().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if word.encode() in line and state not in "ZX":
                found.append(int(name))
    return found


def state(pid):
    """What it does: its state, and where in the kernel."""
    words = []
    for name in ("comm", "wchan"):
        words.append((read(f"/proc/{pid}/{name}") or b"gone").decode(errors="replace").strip())
    return " ".join(words)


def end(pid, which):
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        pass


def column(path, key):
    try:
        with open(path, encoding="utf-8") as file:
            return re.findall(rf'"{key}":([^,}}]*)', file.read())
    except OSError:
        return []


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


class Campaign:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.zerod = os.path.abspath(options.build) + "/daemon/zerod"
        self.calls = os.path.abspath(options.build) + "/tests/libcalls.so"
        self.steps = 60 if options.long else 16
        self.lock = threading.Lock()
        self.counts = {}
        os.mkdir(folder + "/nvme")
        tiny.write(folder)

    def mount(self, folder):
        return self.options.disk and subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + DISK, "none", folder], capture_output=True,
                                                    check=False).returncode == 0

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def command(self, out, sets, broken, rank):
        run = [self.zerod, "--job", self.folder + "/job.toml"] + tiny.sets({
            "job.output_dir": out, "train.max_steps": self.steps, "checkpoint.save_steps": 2, "checkpoint.save_total_limit": 2,
            "comm.timeout": f"{self.options.timeout}s", **sets})
        # one command for all ranks: mpirun of Open MPI 5.0.7 (Debian 13) crashes wherever it is given two programs
        calls = ["env", "LD_PRELOAD=" + self.calls, f"ZEROD_TEST_RANK={rank}"] + [f"ZEROD_TEST_{key}={value}" for key, value in (broken or {}).items()]
        return [SOURCE + "/deploy/mpirun.sh", "--oversubscribe", "-np", "2", *(calls if broken else []), *run]

    def start(self, out, sets, broken=None, rank=0):
        with open(out + ".err", "ab") as err:
            return subprocess.Popen(self.command(out, sets, broken, rank), cwd=self.folder, stdout=err, stderr=err, stdin=subprocess.DEVNULL,
                                    start_new_session=True, env={**os.environ, "XDG_RUNTIME_DIR": os.path.dirname(out)})

    def run(self, out, sets):
        """To its end; again, with more time, where a machine is too busy for comm.timeout."""
        for seconds in (self.options.timeout * 2**n for n in range(5)):
            before = len(read(out + ".err") or b"")
            code = self.start(out, {**sets, "comm.timeout": f"{seconds}s"}).wait(200)
            if code != 75 or b"error[E0505]" not in read(out + ".err")[before:]:
                break
        return code

    def unbroken(self):
        out = self.folder + "/whole/out"
        os.mkdir(os.path.dirname(out))
        began = time.monotonic()
        code = self.run(out, {})
        self.length = time.monotonic() - began
        self.curve = {key: column(out + "/metrics.jsonl", key) for key in ("step", "loss", "grad_norm", "learning_rate", "tokens")}
        self.model = read(out + "/hf/model.safetensors")
        return code == 0 and len(self.curve["loss"]) == self.steps and self.model is not None


class Trial:
    def __init__(self, campaign, number):
        self.campaign, self.number = campaign, number
        self.chance = random.Random(f"{campaign.options.seed} {number}")
        self.folder = f"{campaign.folder}/t{number}"
        self.has_disk = False
        self.out = self.folder + "/out"
        self.log = []

    def choose(self):
        """How a run is broken: (what, variables of tests/support/calls.c or None, rank, victim)."""
        chance = self.chance
        what = chance.choices(["kill", "segv", "stop", "disk"], [6, 2, 2, 2])[0]
        inside = chance.random() < 0.7 or what == "disk"
        victim = chance.choice(["rank 0", "rank 0", "rank 1", "launcher", "all"] if what != "stop" else ["rank 0", "rank 1", "rank 1", "launcher"])
        if not inside:
            return what, None, 0, victim
        moment = chance.choice(["saving", "saving", "saving", "retention", "exporting", "rows", "starting"])
        if what == "disk":
            moment = chance.choice(["saving", "saving", "exporting", "rows"])
        call, part, most = chance.choice(CALLS[moment])
        if what == "disk":
            call = chance.choice(["write", "fsync"])
        number = chance.randint(1, most)
        error = {"kill": -signal.SIGKILL, "segv": -signal.SIGSEGV, "stop": -signal.SIGSTOP, "disk": ENOSPC}[what]
        rank = 0 if moment in ("retention", "rows") or call in ("rename", "mkdir") else chance.randrange(2)
        broken = {"REFUSE": f"{call}:{part}:{error}" + ("" if what == "disk" and chance.random() < 0.5 else f":{number}"), "HIT": self.folder + "/hit"}
        whom = chance.choices(*WHOM[what])[0] if what in WHOM else "self"
        if whom != "self":
            broken["WHOM"] = whom
        return what, broken, rank, {"self": f"rank {rank}", "parent": "launcher"}.get(whom, whom)

    def end_all(self, patience):
        """Processes that are left after so many seconds; they are ended."""
        until = time.monotonic() + patience
        while (left := processes(self.out)) and time.monotonic() < until:
            time.sleep(0.02)
        for pid in left:
            end(pid, signal.SIGKILL)
        return left

    def wait_moment(self, run):
        """A random one of the run's life; half of them once it makes steps, for most of it is the start."""
        length = self.campaign.length
        if self.chance.random() < 0.5:
            before = len(column(self.out + "/metrics.jsonl", "loss"))
            while run.poll() is None and len(column(self.out + "/metrics.jsonl", "loss")) <= before:
                time.sleep(0.002)
            length /= 2
        until = time.monotonic() + self.chance.uniform(0, 1.05 * length)
        while run.poll() is None and time.monotonic() < until:
            time.sleep(0.002)

    def hit(self, run, what, victim):
        """From outside."""
        which = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "stop": signal.SIGSTOP}[what]
        self.wait_moment(run)
        # mpirun of Open MPI 5 goes on as prterun
        launchers = [pid for pid in tiny.children(run.pid)
                     if os.path.basename((read(f"/proc/{pid}/cmdline") or b"").split(b"\0")[0]) in (b"mpirun", b"prterun")]
        ranks = [rank for pid in launchers for rank in tiny.children(pid)]
        pids = {"launcher": self.chance.choice([launchers, [run.pid]]), "all": ranks + launchers + [run.pid]}.get(
            victim, ranks[:1] if victim == "rank 0" else ranks[1:])
        for pid in pids:
            end(pid, which)
        return bool(pids)

    def fill(self, run):
        """A disk that is full from a random moment on, until the run has ended."""
        self.wait_moment(run)
        try:
            with open(self.folder + "/filler", "wb", buffering=0) as file:
                while run.poll() is None:
                    try:
                        file.write(b"\0" * 4096)
                    except OSError:
                        time.sleep(0.01)
        finally:
            os.unlink(self.folder + "/filler")

    def break_it(self, sets):
        what, broken, rank, victim = self.choose()
        fills = self.has_disk and (what == "disk" or self.chance.random() < 0.5)
        if fills:
            what, broken, victim = "disk", None, "a real one"
        self.log.append(f"{what} {broken['REFUSE'] if broken else 'from outside'} ({victim})")
        run = self.campaign.start(self.out, sets, broken, rank)
        if fills:
            self.fill(run)
        elif not broken:
            self.hit(run, what, victim)
        self.await_end(run, what, victim)
        self.count_hit(what, victim)

    def await_end(self, run, what, victim):
        # one that stands still ends by what the others see of it; a stopped mpirun is nobody's to find
        is_found = what != "stop" or victim != "launcher"
        try:
            code = run.wait(100 if is_found else 5)
        except subprocess.TimeoutExpired:
            left = [f"{pid} {state(pid)}" for pid in processes(self.out)]
            for pid in [*processes(self.out), run.pid]:
                end(pid, signal.SIGKILL)
            run.wait(10)
            if is_found:
                raise AssertionError(f"it did not end in 100 s: {left}") from None
            code = None
        self.log.append(f"  code {code}, {len(column(self.out + '/metrics.jsonl', 'loss'))} rows")
        self.campaign.count(what if code != 0 else f"{what}, too late")
        if what == "stop" and is_found and code not in (0, 75):
            raise AssertionError(f"a rank that stands still ended the run with {code}, not with 75")
        if self.end_all(5) and is_found:
            raise AssertionError("processes are left")

    def count_hit(self, what, victim):
        """Where it was broken from inside: in the thread that trains, or in one that writes a save."""
        for line in (read(self.folder + "/hit") or b"").decode().splitlines()[:1]:
            thread, path = line.split("\t")[1:]
            place = next((place for part, place in (("/.tmp-checkpoint", "save"), ("/.trash-", "retention"), ("/hf", "export"))
                          if part in path), "elsewhere")
            self.campaign.count(f"  {place}, {'in a thread of its own' if thread == 'other' else 'in the thread that trains'}")
            self.campaign.count(f"  {what} of {'a rank' if victim.startswith('rank') else victim} from inside")
            os.unlink(self.folder + "/hit")

    def check_committed(self):
        told = 0
        for line in (read(self.out + "/events.jsonl") or b"").split(b"\n"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "checkpoint" or event.get("type") == "checkpoint":
                told = max(told, event.get("step", 0))
        named = sorted(int(each[11:]) for each in os.listdir(self.out) if each.startswith("checkpoint-")) if os.path.isdir(self.out) else []
        if told > (named[-1] if named else 0):
            raise AssertionError(f"checkpoint {told} was told and is gone: {named}")
        for step in named:
            done = subprocess.run([self.campaign.zerod, "ckpt", "verify", f"{self.out}/checkpoint-{step:06d}"], capture_output=True, check=False)
            if done.returncode != 0:
                raise AssertionError(f"checkpoint {step}: {done.stderr.decode()}")

    def run(self):
        os.mkdir(self.folder)
        sets = self.chance.choices(*WAYS)[0]
        self.has_disk = self.chance.random() < 0.1 and self.campaign.mount(self.folder)
        self.log.append(" ".join(f"{key}={value}" for key, value in sets.items()) or "as the job is")
        for _ in range(self.chance.choices([1, 2, 3], [6, 3, 1])[0]):
            self.break_it(sets)
            self.campaign.count("breaks")
            self.check_committed()
        code = self.campaign.run(self.out, sets)
        if code != 0:
            raise AssertionError(f"the last start ended with {code}")
        for key, values in self.campaign.curve.items():
            if column(self.out + "/metrics.jsonl", key) != values:
                raise AssertionError(f"{key} is not that of the unbroken run")
        if read(self.out + "/hf/model.safetensors") != self.campaign.model:
            raise AssertionError("the model is not that of the unbroken run")
        left = [each for each in os.listdir(self.out) if each.startswith((".tmp-", ".trash-", ".replaced-")) or each == "hf.tmp"]
        if left or self.end_all(5):
            raise AssertionError(f"left behind: {left}")

    def whole(self):
        try:
            self.run()
            return None
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            return str(error)
        finally:
            self.end_all(0)

    def remove(self):
        if self.has_disk:
            subprocess.run(["umount", self.folder], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    options = parse()
    os.environ.update(tiny.MPI)
    private = ["unshare", "--mount"]  # what is mounted goes with the last of us
    if "ZEROD_ENDURE_PRIVATE" not in os.environ and subprocess.run(private + ["true"], capture_output=True, check=False).returncode == 0:
        os.environ["ZEROD_ENDURE_PRIVATE"] = "1"
        os.execvp("unshare", private + [sys.executable, *sys.argv])
    options.disk = "ZEROD_ENDURE_PRIVATE" in os.environ
    folder = tempfile.mkdtemp(prefix="zerod-endure-", dir="/tmp")
    failures, numbers = 0, [options.only] if options.only is not None else range(options.first, options.trials + 1)
    print(f"# --seed {options.seed}")
    try:
        campaign = Campaign(options, folder)
        whole = campaign.unbroken()
        print(f"{'' if whole else 'not '}ok 1 - the unbroken run, {campaign.steps} steps in {campaign.length:.1f} s", flush=True)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            trials = [Trial(campaign, number) for number in numbers] if whole else []
            for i, (trial, error) in enumerate(zip(trials, pool.map(Trial.whole, trials))):
                print(f"{'not ' if error else ''}ok {i + 2} - trial {trial.number}: {'; '.join(trial.log)}", flush=True)
                failures += error is not None
                if error:
                    print(f"# {error}")
                    lines = (read(trial.out + ".err") or b"").decode(errors="replace").split("\n")
                    for line in [each for each in lines if each.startswith("error")][-4:] + lines[-12:]:
                        print("#  |", line)
                if not (error and options.keep):
                    trial.remove()
        left = os.listdir(folder + "/nvme")
        print(f"{'not ' if left else ''}ok {len(trials) + 2} - nothing is left in the folder of offloaded states {left}")
        print(f"1..{len(trials) + 2}")
        print("#", ", ".join(f"{what}: {count}" for what, count in sorted(campaign.counts.items())))
        failures += not whole or bool(left)
    finally:
        if not (failures and options.keep):
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(failures > 0)


main()
