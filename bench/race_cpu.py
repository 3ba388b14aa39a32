#!/usr/bin/env python3
"""Our step on the CPU beside PyTorch's, round by round.

    python bench/race_cpu.py BUILD [--family gpt2 llama] [--seq 256 1024] [--threads 1 2] [--dtype fp32 bf16] [--rounds 5]
    python bench/race_cpu.py BUILD --ranks 2 [--seq 256 1024] [--rounds 5]

GPT-2's 124M or a llama of its width, B = 4, random weights and tokens. Each round runs ours (BUILD/bench/train_cpu) in
every --dtype and PyTorch's four (bench/peers/torch_train.py: fp32 and bf16, eager and compiled) one after the other, so
that what else the machine does falls on all. A row: the median over the rounds of tokens/s over the best of the four in
that round, and over the best in the same type; the least and most of them behind it. With --ranks instead: processes of
one thread each, bf16, stages 1 and 3 of `mpirun zerod` over the better of FSDP2's two (bench/peers/fsdp_train.py: with
parameters kept and freed between forward and backward).

PYTHON names a python with torch, or this one is taken. MPIRUN names the launcher, or mpirun is taken."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import adapters

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
BATCH = 4


def said(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def peer(script, *words):
    """The rows that a script of bench/peers prints."""
    out = said([os.environ.get("PYTHON", sys.executable), os.path.join(PEERS, script), *words])
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def ours(args, family, dtype, T, threads):
    out = said([os.path.join(args.build, "bench/train_cpu"), "--family", family, "--dtype", dtype, "--B", BATCH, "--T", T,
                "--threads", threads, "--steps", args.steps + 2])
    return float(re.search(r"([\d.]+) tokens/s", out).group(1))


def ours_on_ranks(args, folder, stage, T):
    """tokens/s of the median step without the first two."""
    shape = argparse.Namespace(B=BATCH // args.ranks, T=T, steps=args.steps + 2, threads=1, dtype="bf16", model="gpt2")
    adapters.write_job(shape, folder, BATCH)
    out = os.path.join(folder, "out")
    said([*os.environ.get("MPIRUN", "mpirun").split(), "-np", args.ranks, os.path.abspath(os.path.join(args.build, "daemon/zerod")),
          "--job", "job.toml", "--quiet", "--resume", "never", "--set", "job.output_dir=" + out, "--set", f"zero.stage={stage}"],
         cwd=folder)
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        rows = [row for row in map(json.loads, f) if row.get("step", 0) > 2 and "loss" in row]
    return BATCH * T / statistics.median(row["step_seconds"] for row in rows)


def show(name, ratios):
    print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds)", flush=True)


def race_threads(args, family, T, threads):
    ratios = {}
    for turn in range(args.rounds):
        rates = {dtype: ours(args, family, dtype, T, threads) for dtype in args.dtype}
        rows = peer("torch_train.py", "--family", family, "--seq", T, "--threads", threads, "--steps", args.steps, "--json")
        best = max(row["tokens_per_second"] for row in rows)
        print(f"  round {turn + 1}: ours", ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in rates.items()), "tokens/s; PyTorch",
              ", ".join(f"{row['dtype']} {row['mode']} {row['tokens_per_second']:.0f}" for row in rows), flush=True)
        for dtype, rate in rates.items():
            same = [row["tokens_per_second"] for row in rows if row["dtype"] == dtype]
            ratios.setdefault(f"{dtype} over the best of PyTorch's", []).append(rate / best)
            if same:
                ratios.setdefault(f"{dtype} over PyTorch's best {dtype}", []).append(rate / max(same))
    for name, values in ratios.items():
        show(f"{family} T={T} threads={threads}, {name}", values)


def race_ranks(args, T):
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="zerod-race-") as folder:
        for turn in range(args.rounds):
            rates = {stage: ours_on_ranks(args, folder, stage, T) for stage in (1, 3)}
            words = ("--ranks", args.ranks, "--batch", BATCH, "--seq", T, "--steps", args.steps)
            theirs = [row["tokens_per_second"] for more in ((), ("--reshard",)) for row in peer("fsdp_train.py", *words, *more)]
            print(f"  round {turn + 1}: ours", ", ".join(f"stage {stage} {rate:.0f}" for stage, rate in rates.items()),
                  "tokens/s; FSDP2 kept, freed", *(f"{rate:.0f}" for rate in theirs), flush=True)
            for stage, rate in rates.items():
                ratios.setdefault(f"stage {stage} over FSDP2's best", []).append(rate / max(theirs))
            ratios.setdefault("stage 3 over stage 1", []).append(rates[3] / rates[1])
    for name, values in ratios.items():
        show(f"gpt2 bf16 T={T} ranks={args.ranks}, {name}", values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", help="a build folder that has bench/train_cpu and daemon/zerod")
    parser.add_argument("--family", nargs="+", choices=("gpt2", "llama"), default=["gpt2", "llama"])
    parser.add_argument("--seq", type=int, nargs="+", default=[256, 1024], help="tokens of a row (256 1024)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="CPU threads (1 2)")
    parser.add_argument("--dtype", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"], help="of ours")
    parser.add_argument("--ranks", type=int, help="race processes instead of threads")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, of which the median counts (5)")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.ranks is not None and (args.ranks < 1 or BATCH % args.ranks):
        parser.error(f"--ranks: {BATCH} rows are shared out evenly")
    for T in args.seq:
        if args.ranks:
            race_ranks(args, T)
            continue
        for family in args.family:
            for threads in args.threads:
                race_threads(args, family, T, threads)


if __name__ == "__main__":
    main()
