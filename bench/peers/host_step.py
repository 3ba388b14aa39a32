#!/usr/bin/env python3
"""Optimizers of other projects on the host, in turn with bench/host_step.

    python bench/peers/host_step.py --ours build/bench/host_step              256M parameters, 2 threads, 7 rounds
    python bench/peers/host_step.py --millions 64 --rounds 5 --only torch deepspeed

A round runs each once, so that all of them meet the same machine; ours runs in its own process (bench/host_step --serve)
with as many parameters and threads. Printed are parameters per second, median (slowest .. fastest), and the median over
the rounds of ratios within a round.

    torch          torch.optim.AdamW(fused=True), fp32 gradients
    deepspeed      DeepSpeedCPUAdam, fp32 gradients, and the passes that its offload adds to it: bf16 gradients to fp32,
                   their norm, new weights to bf16; `deepspeed_pass` is all four, one after the other
    bitsandbytes   AdamW8bit on CPU tensors, fewer parameters (--slow-millions)
    torchao        AdamW8bit, likewise

What we want of ours: fp32 at least 0.97 of the better of torch and DeepSpeed, 8-bit at least 30 times
bitsandbytes, the whole pass at least 2 times (fp32) and 1.8 times (8-bit) DeepSpeed's."""

import argparse
import os
import statistics
import subprocess
import sys
import time


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="build/bench/host_step")
    parser.add_argument("--isa", help="of ours: AVX2, AVX-512")
    parser.add_argument("--millions", type=int, default=256)
    parser.add_argument("--slow-millions", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=["torch", "deepspeed", "bitsandbytes", "torchao"])
    return parser.parse_args()


args = options()
os.environ["OMP_NUM_THREADS"] = str(args.threads)

import torch  # noqa: E402  (after the number of threads)

torch.set_num_threads(args.threads)
COUNT, SLOW_COUNT = args.millions << 20, args.slow_millions << 20
RATE = {"lr": 1e-5, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


class Ours:
    """bench/host_step as a server: a mode in, seconds out."""

    MODES = ["update", "fp32_grad32", "8bit_grad32", "fp32", "8bit", "bf16", "norm", "pass_fp32", "pass_8bit"]

    def __init__(self):
        command = [args.ours, "--millions", str(args.millions), "--threads", str(args.threads), "--serve"]
        if args.isa:
            command += ["--isa", args.isa]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, mode):
        self.process.stdin.write(mode + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def calls(self):
        return {"ours_" + mode: (lambda mode=mode: self.run(mode), COUNT) for mode in self.MODES}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(call):
    def run():
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return run


def parameter(count):
    """Weights and gradients of fp32, gradients from row to row of other sizes, as bench/host_step draws them."""
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(count).mul_(0.02))
    rows = torch.exp(2 * torch.randn(count // 4096, 1)).mul_(1e-4)
    weight.grad = torch.randn(count).view(-1, 4096).mul_(rows).view(-1)
    return weight


def torch_calls(weight):
    optimizer = torch.optim.AdamW([weight], fused=True, **RATE)
    return {"torch": (timed(optimizer.step), COUNT)}


def deepspeed_calls(weight):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    optimizer = DeepSpeedCPUAdam([weight], adamw_mode=True, **RATE)
    grad16 = weight.grad.to(torch.bfloat16)
    weight16 = torch.empty(COUNT, dtype=torch.bfloat16)
    passes = {
        "deepspeed_widen": lambda: weight.grad.copy_(grad16),
        "deepspeed_norm": lambda: weight.grad.norm(2).item(),
        "deepspeed": optimizer.step,
        "deepspeed_narrow": lambda: weight16.copy_(weight.data),
    }

    def whole():
        for one in passes.values():
            one()

    calls = {name: (timed(call), COUNT) for name, call in passes.items()}
    calls["deepspeed_pass"] = (timed(whole), COUNT)
    return calls


def bitsandbytes_calls():
    import bitsandbytes

    weight = parameter(SLOW_COUNT)
    optimizer = bitsandbytes.optim.AdamW8bit([weight], **RATE)
    return {"bitsandbytes_8bit": (timed(optimizer.step), SLOW_COUNT)}


def torchao_calls():
    from torchao.optim import AdamW8bit

    weight = parameter(SLOW_COUNT)
    optimizer = AdamW8bit([weight], **RATE)
    return {"torchao_8bit": (timed(optimizer.step), SLOW_COUNT)}


def gather(ours):
    """Everything that can run here; what cannot says why and is left out."""
    makers = {"bitsandbytes": bitsandbytes_calls, "torchao": torchao_calls}
    if {"torch", "deepspeed"} & set(args.only):
        weight = parameter(COUNT)
        makers["torch"] = lambda: torch_calls(weight)
        makers["deepspeed"] = lambda: deepspeed_calls(weight)
    calls = ours.calls()
    for name in args.only:
        try:
            made = makers[name]()
            for call, _ in made.values():
                call()  # states are made, code is compiled
            calls |= made
        except Exception as error:  # noqa: BLE001
            print(f"{name} does not run here: {error}", file=sys.stderr)
    for call, _ in ours.calls().values():
        call()
    return calls


def ratio(rates, over, *under):
    """Median over the rounds of one rate over the greatest of others."""
    present = [name for name in under if name in rates]
    if present:
        each = [a / max(b) for a, *b in zip(rates[over], *(rates[name] for name in present), strict=True)]
        low, high = min(each), max(each)
        print(f"{over} / {' or '.join(present):40s} {statistics.median(each):8.2f}   ({low:.2f} .. {high:.2f})")


def main():
    ours = Ours()
    calls = gather(ours)
    rates = {name: [] for name in calls}
    for _ in range(args.rounds):
        for name, (call, count) in calls.items():
            rates[name].append(count / call() * 1e-9)
    ours.close()
    print(f"{COUNT} parameters ({SLOW_COUNT} for the slow ones), {args.threads} threads, {args.rounds} rounds")
    for name, each in rates.items():
        print(f"{name:20s} {statistics.median(each):8.3f} Gparam/s   ({min(each):.3f} .. {max(each):.3f})")
    print(f"bandwidth (update) {8 * statistics.median(rates['ours_update']):.1f} GB/s; the fp32 step has 28 bytes a parameter: "
          f"{28 * statistics.median(rates['ours_fp32_grad32']):.1f} GB/s")
    ratio(rates, "ours_fp32_grad32", "torch")
    ratio(rates, "ours_fp32_grad32", "deepspeed")
    if {"torch", "deepspeed"} <= rates.keys():
        ratio(rates, "ours_fp32_grad32", "torch", "deepspeed")
    ratio(rates, "ours_8bit", "bitsandbytes_8bit")
    ratio(rates, "ours_8bit", "torchao_8bit")
    ratio(rates, "ours_8bit", "ours_fp32")
    ratio(rates, "ours_pass_fp32", "deepspeed_pass")
    ratio(rates, "ours_pass_8bit", "deepspeed_pass")


main()
