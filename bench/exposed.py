#!/usr/bin/env python3
"""What of a step stands still: as planned and as measured, on a CPU with a slow link and a slow wire (bench/slow.c).

    python bench/exposed.py build/bench/zerod_slow [--only 0,2] [--rounds 3] [--steps 12] [--calibrate 10] [--link 5e7] [--wire 5e7]

Each job has one thread that computes and one that updates. A round calibrates this program, so that its plans know both speeds, plans each
job, and runs it; of a run's steps the median counts. Printed are, of the median round, the seconds that update, gathers and copies leave
exposed, and their largest difference as a share of the step. Ends with 1 where the median over the jobs is above --aim."""

import statistics
import sys
import tempfile

from predict import Bench, arguments, chosen, words_of
from predict_jobs import FULL, HOST, row

OWN = {"device.cpu_threads": 1, "offload.threads": 1}
UNDO = {"offload.clipping": "undo", "optim.max_grad_norm": 1000}
PARAMS = {"offload.params": "cpu"}
KINDS = ("update", "gathers", "copies")
JOBS = [
    row("llama-22M", 1, 1, 64, 1, HOST, OWN),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, UNDO),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, UNDO, offload__undo_memory="200MB"),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, PARAMS),
    row("llama-22M", 1, 1, 64, 2, HOST, OWN, PARAMS, FULL),
    row("llama-22M", 1, 1, 128, 1, HOST, OWN, PARAMS, FULL, UNDO, {"offload.activations": "cpu"}),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, optim__name="adamw_8bit"),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, offload__device_update=0.25),
    row("llama-22M", 1, 1, 64, 1, HOST, OWN, PARAMS, FULL, optim__name="adamw_8bit", offload__device_update=0.5),
    row("llama-22M", 2, 1, 64, 1, {"device.cpu_threads": 1}, zero__stage=3),
    row("llama-22M", 2, 1, 64, 1, {"device.cpu_threads": 1}, zero__stage=1),
]


class Slow(Bench):
    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.environment.update(ZEROD_SLOW_LINK=str(args.link), ZEROD_SLOW_WIRE=str(args.wire))

    def turn(self, job):
        """Calibrated and planned anew: what the plan predicts, seconds of the median step, and the steps."""
        self.call(["bench", "calibrate", "--json", "--threads", "1", "--seconds", str(self.args.calibrate)], job[1])
        told = self.plan(job)["predicted"]
        self.write(job, told["step_seconds"])
        steps = self.rows(job, skip=2)
        return told, statistics.median(step["step_seconds"] for step in steps), steps


def slow_arguments(doc, **defaults):
    return arguments(doc, calibrate=10.0, aim=0.15, **defaults)


def main():
    args = slow_arguments(__doc__, link=5e7, wire=5e7).parse_args()
    off = {}
    print("| job | step, s | " + " | ".join(f"{kind}: plan, run, s" for kind in KINDS) + " | off by, of the step |\n|" + "---|" * 6)
    with tempfile.TemporaryDirectory(prefix="zerod-exposed-") as folder:
        bench = Slow(args, folder)
        for number in chosen(args, len(JOBS)):
            job, rounds = JOBS[number], []
            for _ in range(args.rounds):
                told, step, steps = bench.turn(job)
                took = {kind: statistics.median(at["exposed_seconds"][kind] for at in steps) for kind in KINDS}
                worst = max(abs(told["exposed"][kind] - took[kind]) for kind in KINDS) / step
                rounds.append((worst, step, told, took))
            worst, step, told, took = sorted(rounds, key=lambda r: r[0])[len(rounds) // 2]
            off[number] = worst
            print(f"| {words_of(job)} | {told['step_seconds']:.3f}, {step:.3f} | " +
                  " | ".join(f"{told['exposed'][kind]:.3f}, {took[kind]:.3f}" for kind in KINDS) + f" | {100 * worst:.0f} % |", flush=True)
    median = statistics.median(off.values())
    print(f"\n{len(off)} jobs: off by {100 * median:.1f} % of the step in the median (aim {100 * args.aim:.0f}), {100 * max(off.values()):.1f} % at worst")
    sys.exit(median > args.aim)


if __name__ == "__main__":
    main()
