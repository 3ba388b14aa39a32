#!/usr/bin/env python3
"""What each axis of the mesh costs on two ranks of one thread: step, bytes and seconds of each group, beside stage 1's.

    python bench/mesh.py build/daemon/zerod [--only 0,2] [--rounds 3] [--steps 12] [--calibrate 10] [--length 1024]
                                            [--models gpt2-124M,llama-124M]

Rows are GPT-2 124M and a llama of its size, each at stage 1 on two shards, with tp 2, cp 2 and replicate 2; a step has two samples in all.
A round calibrates, plans each job and runs it; of a run the median step counts, of the rounds the median. `bytes` are those that a rank
sends in a step, as its counters say (they must be the plan's); `seconds` what the plan says that its wires are busy. Ends with 1 where bytes
differ, or where the predicted step is off by more than --aim in the median."""

import argparse
import json
import os
import statistics
import sys
import tempfile

from predict import Bench
from predict_jobs import row

OWN = {"device.cpu_threads": 1, "zero.stage": 1}
AXES = {"stage 1": {}, "tp 2": {"parallel.tp_size": 2}, "cp 2": {"parallel.cp_size": 2}, "replicate 2": {"parallel.dp_replicate_size": 2}}


def jobs(args):
    for model in args.models.split(","):
        for axis, sets in AXES.items():
            samples = 1 if axis in ("stage 1", "replicate 2") else 2
            yield axis, row(model, 2, samples, args.length, 1, OWN, sets)


class Mesh(Bench):
    def measured(self, job):
        """Seconds of the median step, and the bytes that rank 0 sent in it."""
        self.run(job)
        with open(os.path.join(self.folder, "out", "metrics.jsonl")) as file:
            steps = [line for line in map(json.loads, file) if line.get("step", 0) > 2 and "loss" in line]
        return statistics.median(s["step_seconds"] for s in steps), sum(steps[-1]["wire_bytes"].values())


def groups_of(plan):
    """Bytes of a step by group."""
    found = {}
    for each in plan["ranks"][0]["wire"]:
        found[each["group"]] = found.get(each["group"], 0) + each["bytes_per_step"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--calibrate", type=float, default=10)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--models", default="gpt2-124M,llama-124M")
    parser.add_argument("--aim", type=float, default=0.15)
    parser.add_argument("--prefix", default="")
    args = parser.parse_args()
    args.median = True
    rows = list(enumerate(jobs(args)))
    chosen = [int(n) for n in args.only.split(",")] if args.only else range(len(rows))
    off, same, first = [], True, {}
    print("| job | axis | step: plan, run, s | over stage 1 | MB a step, by group | wires, s |\n|" + "---|" * 6)
    with tempfile.TemporaryDirectory(prefix="zerod-mesh-") as folder:
        bench = Mesh(args, folder)
        for number, (axis, job) in rows:
            if number not in chosen:
                continue
            took, told = [], []
            for _ in range(args.rounds):
                bench.calibrate()
                plan = bench.plan(job)
                bench.write(job, plan["predicted"]["step_seconds"])
                step, sent = bench.measured(job)
                same &= sent == sum(groups_of(plan).values())
                took.append(step), told.append(plan["predicted"]["step_seconds"])
            step, said, busy = statistics.median(took), statistics.median(told), plan["predicted"]["busy"]
            first.setdefault(job[0], step)
            off.append(abs(said / step - 1))
            print(f"| {job[0]} | {axis} | {said:.2f}, {step:.2f} | {step / first[job[0]]:.2f} | " +
                  ", ".join(f"{group} {count / 1e6:.1f}" for group, count in groups_of(plan).items()) +
                  f" | {sum(busy.get(name, 0) for name in ('wire', 'replicas', 'places')):.3f} |", flush=True)
    median = statistics.median(off)
    print(f"\nsteps off by {100 * median:.1f} % in the median (aim {100 * args.aim:.0f}); bytes are {'' if same else 'not '}the plan's")
    sys.exit(median > args.aim or not same)


if __name__ == "__main__":
    main()
