#!/usr/bin/env python3
"""What a step was predicted to take against what it takes, on this machine.

    python bench/predict.py ZEROD [--fits] [--only 3,10-20] [--rounds 3] [--steps 12] [--median] [--calibrate 20] [--prefix CMD] [--keep FILE]

The jobs are those of predict_jobs.py: one rank of two threads, and two of one. A round calibrates (one rank, and two at once, so many
seconds each), predicts each job by that, and runs it, so that what else the machine does falls on both. A calibration takes the mean
of many runs of each operation, and of its sweeps the best; of a job the fastest step counts, of all rounds and without the first of a run (--median: of each run the
median, and the least of those), and the least of what was predicted. Each command that measures is put behind --prefix (one that waits for
a quiet machine, say). --keep adds a line of JSON for each job and round; the summary is of
all lines of that file.

With --fits, candidates: `zerod plan --fit` finds jobs for each of ten, and of those some (the first, and others down to the last) are
run. What counts: how much slower the first is than the fastest that was run, and pairs that differ by more than 10 % in both
measures and are in the wrong order."""

import argparse
import json
import math
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import tempfile

from predict_jobs import FITS, JOBS, job_file

AIMS = {"median": .12, "worst": .30, "best": .05, "apart": .10}
PARTS = ("forward", "backward", "reduce", "update", "gather")


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.zerod = os.path.abspath(args.zerod)
        self.environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"), XDG_RUNTIME_DIR=folder)
        for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES"):
            self.environment.pop(name, None)
        rng = random.Random(1)
        with open(os.path.join(folder, "tokens.bin"), "wb") as file:
            file.write(struct.pack("<65536H", *(rng.randrange(4096) for _ in range(65536))))

    def call(self, words, world=1, is_measured=True):
        launch = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-np", str(world)] if world > 1 else []
        prefix = self.args.prefix.split() if is_measured else []
        done = subprocess.run([*prefix, *launch, self.zerod, *words], cwd=self.folder, env=self.environment, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: ends with {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def calibrate(self):
        for world in (1, 2):
            self.call(["bench", "calibrate", "--json", "--seconds", str(self.args.calibrate)], world)

    def write(self, job, seconds=math.inf):
        """So many steps, or a second of them."""
        with open(os.path.join(self.folder, "job.toml"), "w") as file:
            file.write(job_file(job, max(self.args.steps, math.ceil(1 / seconds))))

    def plan(self, job, *words):
        self.write(job)
        return json.loads(self.call(["plan", "--job", "job.toml", "--world", str(job[1]), "--per-node", str(job[1]), "--machine", "here",
                                     "--format", "json", *words], is_measured=False))

    def rows(self, job, sets=(), skip=1):
        """Runs the job that was written: its steps but the first."""
        for name in ("out", "nvme"):
            shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        os.mkdir(os.path.join(self.folder, "nvme"))
        self.call(["--job", "job.toml", "--quiet", "--resume", "never", *sets], job[1])
        with open(os.path.join(self.folder, "out", "metrics.jsonl")) as file:
            return [row for row in map(json.loads, file) if row.get("step", 0) > skip and "loss" in row]

    def run(self, job, sets=()):
        rows = self.rows(job, sets)
        pick = statistics.median_low if self.args.median else min
        step = pick([row["step_seconds"] for row in rows])
        parts = next(row["phase_seconds"] for row in rows if row["step_seconds"] == step)
        return step, {part: parts[part] for part in PARTS}


def arguments(doc, **defaults):
    """What every program has that starts runs by a Bench; `defaults` of those, and others."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod")
    parser.add_argument("--prefix", default="")
    for name, value in {"only": None, "rounds": 3, "steps": 12, "calibrate": 20.0, **defaults}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value) if value is not None else str)
    return parser


def chosen(args, count):
    if not args.only:
        return range(count)
    found = []
    for each in args.only.split(","):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def words_of(job):
    model, world, sets = job
    keys = dict(sets)
    shape = [keys.pop("train.per_device_train_batch_size"), keys.pop("data.cutoff_len"), keys.pop("train.gradient_accumulation_steps")]
    words = [str(value) if isinstance(value, str) else f"{key.split('.')[1]} {str(value).lower()}"
             for key, value in keys.items() if value != "none" and key != "offload.nvme_path"]
    return f"{model} x {world}, {'x'.join(map(str, shape))}, {keys.pop('train.dtype', 'bf16')}: {', '.join(words)}"


def keep(args, rows, row):
    rows.append(row)
    if args.keep:
        with open(args.keep, "a") as file:
            file.write(json.dumps(row) + "\n")


def least(rows, key):
    """Of each key's rows the least predicted and measured, with the phases of the same."""
    found = {}
    for row in rows:
        at = found.setdefault(row[key], {"name": row["name"], "predicted": row["predicted"], "measured": row["measured"]})
        for kind in ("predicted", "measured"):
            if row[kind]["step"] < at[kind]["step"]:
                at[kind] = row[kind]
    return found


def jobs(bench, args, rows):
    for turn in range(args.rounds):
        bench.calibrate()
        for number in chosen(args, len(JOBS)):
            job = JOBS[number]
            told = bench.plan(job)["predicted"]
            bench.write(job, told["step_seconds"])
            step, parts = bench.run(job)
            keep(args, rows, {"job": number, "name": words_of(job), "measured": {"step": step, **parts},
                              "predicted": {"step": told["step_seconds"], **told["phases"]}})
            print(f"round {turn + 1}, job {number}: predicted {told['step_seconds']:.3f} s, measured {step:.3f} s", flush=True)


def print_jobs(rows):
    errors = []
    print("| job | predicted | measured | off | " + " | ".join(f"{part}, ms" for part in PARTS) + " |\n|" + "---|" * (4 + len(PARTS)))
    for _, at in sorted(least(rows, "job").items()):
        said, took = at["predicted"], at["measured"]
        errors.append(said["step"] / took["step"] - 1)
        parts = " | ".join(f"{1e3 * said[part]:.0f}, {1e3 * took[part]:.0f}" for part in PARTS)
        print(f"| {at['name']} | {said['step']:.3f} s | {took['step']:.3f} s | {100 * errors[-1]:+.0f} % | {parts} |")
    sizes = sorted(map(abs, errors))
    print(f"\n{len(errors)} jobs: median error {100 * statistics.median(sizes):.1f} % (aim {100 * AIMS['median']:.0f}), "
          f"worst {100 * sizes[-1]:.1f} % (aim {100 * AIMS['worst']:.0f}), mean {100 * statistics.mean(errors):+.1f} %")


def candidates(bench, job, count):
    """The first fits, and others down to the last. The data and the samples of a step are the job's."""
    fits = bench.plan(job, "--fit")["fits"]
    last = len(fits) - 1
    picked = sorted({0, min(1, last), *(round(last * i / (count - 1)) for i in range(count))})
    return [fits[i] for i in picked]


def fits(bench, args, rows):
    for number in chosen(args, len(FITS)):
        bench.calibrate()
        found = candidates(bench, FITS[number], args.candidates)
        for turn in range(args.rounds):
            for each in found:
                words = re.findall(r"--set (\S+)", each["arguments"])
                step, _ = bench.run(FITS[number], [word for one in words for word in ("--set", one)])
                keep(args, rows, {"fit": number, "candidate": f"{number} {each['arguments']}", "name": words_of(FITS[number]),
                                  "predicted": {"step": each["predicted"]["step_seconds"]}, "measured": {"step": step}})
                print(f"job {number}: predicted {each['predicted']['step_seconds']:.3f} s, measured {step:.3f} s: {each['arguments']}",
                      flush=True)


def print_fits(rows):
    by_job, wrong, pairs, slower = {}, 0, 0, []
    for candidate, at in least(rows, "candidate").items():
        by_job.setdefault((int(candidate.split(" ")[0]), at["name"]), []).append(
            (at["predicted"]["step"], at["measured"]["step"], candidate.partition(" ")[2]))
    print("| job | candidates | first | fastest | first is slower by | wrong pairs |\n|---|---|---|---|---|---|")
    for (_, name), found in sorted(by_job.items()):
        found.sort()
        best = min(took for _, took, _ in found)
        slower.append(found[0][1] / best - 1)
        apart = 1 + AIMS["apart"]
        far = [(a, b) for a in found for b in found if b[0] > a[0] * apart and max(a[1], b[1]) > apart * min(a[1], b[1])]
        bad = [(a, b) for a, b in far if b[1] < a[1]]
        wrong, pairs = wrong + len(bad), pairs + len(far)
        print(f"| {name} | {len(found)} | {found[0][1]:.3f} s | {best:.3f} s | {100 * slower[-1]:.1f} % | {len(bad)} of {len(far)} |")
        for a, b in bad:
            print(f"  said {a[0]:.3f} < {b[0]:.3f}, took {a[1]:.3f} > {b[1]:.3f}: {a[2] or 'the job'}  |  {b[2] or 'the job'}")
    print(f"\n{len(slower)} jobs: the first is slower than the fastest by {100 * max(slower):.1f} % at worst (aim {100 * AIMS['best']:.0f}); "
          f"{wrong} of {pairs} pairs that are more than {100 * AIMS['apart']:.0f} % apart are in the wrong order")


def main():
    parser = arguments(__doc__, candidates=5, keep=None)
    parser.add_argument("--fits", action="store_true")
    parser.add_argument("--median", action="store_true")
    args = parser.parse_args()
    rows = []
    if args.keep and os.path.exists(args.keep):
        with open(args.keep) as file:
            rows = [json.loads(line) for line in file]
    with tempfile.TemporaryDirectory(prefix="zerod-predict-") as folder:
        bench = Bench(args, folder)
        (fits if args.fits else jobs)(bench, args, rows)
    (print_fits if args.fits else print_jobs)(rows)


if __name__ == "__main__":
    main()
