#!/usr/bin/env python3
"""AdamW of torch and bitsandbytes over 1B parameters on a GPU, as a share of a plain copy (bench/gpu.sh FOLDER adamw).

    python bench/peers/gpu_adamw.py [--millions 1024] [--rounds 7]"""

import argparse
import statistics

import torch


def seconds_of(call, rounds):
    times = []
    for _ in range(rounds + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    count = args.millions << 20
    a, b = torch.randn(count, device="cuda"), torch.empty(count, device="cuda")
    copy = 8 * count / seconds_of(lambda: b.copy_(a), args.rounds)
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written; torch {torch.__version__}, {torch.cuda.get_device_name()}")
    del b
    parameter = torch.nn.Parameter(a)
    parameter.grad = torch.randn_like(a)
    made = [("torch fused, fp32 states", torch.optim.AdamW([parameter], fused=True), 28)]
    try:
        import bitsandbytes as bnb
        made.append(("bitsandbytes 8-bit", bnb.optim.AdamW8bit([parameter]), 16.06))
    except ImportError:
        print("bitsandbytes: not here")
    for name, optimizer, bytes_each in made:
        seconds = seconds_of(optimizer.step, args.rounds)
        print(f"{name}: {count / seconds / 1e9:.2f} G parameters/s, {100 * bytes_each * count / seconds / copy:.0f} % of the copy")
        optimizer.state.clear()


if __name__ == "__main__":
    main()
