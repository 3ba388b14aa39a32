#!/usr/bin/env python3
"""AdamW of torch and bitsandbytes over 1B parameters on a GPU, as a share of a plain copy (bench/gpu.sh FOLDER adamw).

    python bench/peers/gpu_adamw.py [--millions 1024] [--rounds 7]"""

import argparse
import json
import statistics
import time

try:
    import torch
except ImportError as error:
    print(json.dumps({"missing": error.name}))
    raise SystemExit(0)

ON_GPU = torch.cuda.is_available()


def seconds_of(call, rounds):
    times = []
    for _ in range(rounds + 2):
        if ON_GPU:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    count = args.millions << 20
    device = "cuda" if ON_GPU else "cpu"
    a, b = torch.randn(count, device=device), torch.empty(count, device=device)
    copy = 8 * count / seconds_of(lambda: b.copy_(a), args.rounds)
    name = torch.cuda.get_device_name() if ON_GPU else "the CPU: this measures nothing"
    print(f"copy: {copy / 1e9:.0f} GB/s, read and written; torch {torch.__version__}, {name}")
    del b
    result = {"torch": torch.__version__, "device": device, "copy_bytes_per_second": copy}
    parameter = torch.nn.Parameter(a)
    parameter.grad = torch.randn_like(a)
    makers = [("torch fused, fp32 states", lambda: torch.optim.AdamW([parameter], fused=True), 28),
              ("bitsandbytes 8-bit", bitsandbytes_8bit(parameter), 16.06)]
    for name, make, bytes_each in makers:
        try:
            optimizer = make()
            seconds = seconds_of(optimizer.step, args.rounds)
        except ImportError as error:
            print(f"{name}: {error.name} is not here")
            result[name] = {"missing": error.name}
            continue
        except (RuntimeError, NotImplementedError, ValueError) as error:
            print(f"{name}: {error}")
            result[name] = {"failed": str(error)[:300]}
            continue
        share = 100 * bytes_each * count / seconds / copy
        print(f"{name}: {count / seconds / 1e9:.2f} G parameters/s, {share:.0f} % of the copy")
        result[name] = {"elements_per_second": count / seconds, "percent_of_copy": share}
        optimizer.state.clear()
    print(json.dumps(result))


def bitsandbytes_8bit(parameter):
    def make():
        import bitsandbytes as bnb
        return bnb.optim.AdamW8bit([parameter])
    return make


if __name__ == "__main__":
    main()
