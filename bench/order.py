#!/usr/bin/env python3
"""Both orders of micro-batches (train.accumulation_order) on a CPU with a slow link and a slow wire, and by plan for an 8B model.

    python bench/order.py build/bench/zerod_slow [--rounds 3] [--steps 8] [--calibrate 10] [--link 2e8] [--wire 2e8] [--only params]
    python bench/order.py build/daemon/zerod --plan docs/measured/order.svg

The first runs A = 1, 4 and 16 micro-batches with parameters on the host of one rank, and at stage 3 on two ranks. Printed are how often a
step sends the weights and the gradients, by the bytes that the run counts, and seconds of the median step, planned and run. It ends with
1 where breadth first sends weights more often than one micro-batch, or gradients more than once, or where the median over the jobs of
what the plan is off by is above --aim. The second plans 8B with everything on the host of an H100 whose link has 25 and 55 GB/s."""

import glob
import json
import os
import statistics
import sys
import tempfile

from exposed import OWN, PARAMS, Slow, slow_arguments
from predict import Bench
from predict_jobs import FULL, HOST, row

ORDERS = ("depth_first", "breadth_first")
TIMES = (1, 4, 16)
ALL_TIMES = (1, 2, 4, 8, 16, 32, 64)
LINKS = (25, 55)


def job_of(kind, A, order):
    key = {"train.accumulation_order": order}
    if kind == "params":
        return row("llama-22M", 1, 1, 64, A, HOST, OWN, PARAMS, FULL, key)
    return row("llama-22M", 2, 1, 64, A, {"device.cpu_threads": 1}, FULL, key, zero__stage=3)


def bytes_sent(step, kind):
    """Of weights and gradients."""
    if kind == "params":
        return [step["offload"][key] for key in ("up_bytes", "down_bytes")]
    return [step["wire_bytes"][key] for key in ("all_gather", "reduce_scatter")]


def compare(bench, args):
    off, wrong = [], []
    print("| job | A | order | weights | gradients | step planned, s | run, s |\n|---|---|---|---|---|---|---|")
    for kind in args.only.split(","):
        sent = {}
        for A in TIMES:
            for order in ORDERS[A == 1:]:
                rounds = []
                for _ in range(args.rounds):
                    predicted, took, steps = bench.turn(job_of(kind, A, order))
                    told, sent[A, order] = predicted["step_seconds"], bytes_sent(steps[-1], kind)
                    rounds.append((abs(told / took - 1), told, took))
                worst, told, took = sorted(rounds)[len(rounds) // 2]
                off.append(worst)
                once = sent[1, ORDERS[1]]
                # a sum of several micro-batches goes over the wire in fp32
                each = once[1] * (2 if A > 1 and kind != "params" else 1)
                print(f"| {kind} | {A} | {order} | {sent[A, order][0] / once[0]:.2f} | {sent[A, order][1] / each:.2f} | {told:.3f} | {took:.3f} |",
                      flush=True)
                if order == ORDERS[1] and (sent[A, order][0] != once[0] or sent[A, order][1] != each):
                    wrong.append(f"{kind}, A = {A}: {sent[A, order]}, not {once}")
    print(f"\nthe plan is off by {100 * statistics.median(off):.1f} % in the median (aim {100 * args.aim:.0f}), {100 * max(off):.1f} % at worst")
    for line in wrong:
        print(line)
    sys.exit(bool(wrong) or statistics.median(off) > args.aim)


JOB = """schema = 1
[job]
output_dir = "out"
[model.config]
model_type = "llama"
hidden_size = 4096
intermediate_size = 14336
num_hidden_layers = 32
num_attention_heads = 32
num_key_value_heads = 8
vocab_size = 128256
max_position_embeddings = 8192
[[data.train]]
path = "tokens.bin"
format = "nanogpt"
[data]
cutoff_len = 2048
[train]
max_steps = 1
gradient_checkpointing = "full"
per_device_train_batch_size = 1
gradient_accumulation_steps = {A}
accumulation_order = "{order}"
[optim]
name = "adamw_8bit"
[offload]
optimizer = "cpu"
params = "cpu"
activations = "{activations}"
device_update = 0
[device]
backend = "cuda"
memory_limit = "80GB"
host_memory_limit = "1TB"
"""
# The table's row of an H100 (train/plan/machine.c), as a calibration.
H100 = {"products_16": 692e12, "products_32": 346e12, "half_tokens_16": 1200, "half_tokens_32": 1200, "memory": 2850e9,
        **{f"{where}_{states}{bare}": speed for where, speed in (("update", 2850e9), ("host", 40e9)) for states in ("fp32", "bf16", "8bit")
           for bare in ("", "_bare")},
        "launch": 40e-6, "inside": 360e9, "between": 40e9, "latency": 10e-6, "jitter": 0.005, "disk": 3e9,
        "link_cores": 0, "wire_cores": 0}


def plans(bench):
    """{(link, order): [(A, tokens a second)]}"""
    bench.calibrate()
    [path] = glob.glob(os.path.join(bench.folder, "cache", "**", "machine-*-cpu.json"), recursive=True)
    with open(path) as file:
        calibration = json.load(file)
    found = {}
    for link in LINKS:
        calibration.update(backend="cuda", machine={**calibration["machine"], **H100, "link": link * 1e9})
        with open(path.replace("-cpu.json", "-cuda.json"), "w") as file:
            json.dump(calibration, file)
        for order in ORDERS:
            for A in ALL_TIMES:
                rates = []
                for activations in ("none", "cpu"):
                    with open(os.path.join(bench.folder, "job.toml"), "w") as file:
                        file.write(JOB.format(A=A, order=order, activations=activations))
                    try:
                        text = bench.call(["plan", "--job", "job.toml", "--world", "1", "--machine", "here", "--format", "json"], is_measured=False)
                    except SystemExit:
                        continue # it does not fit
                    rates.append(json.loads(text)["predicted"]["tokens_per_second"])
                found.setdefault((link, order), []).append((A, max(rates)))
    return found


def picture(found, path):
    wide, high, left, top, right, bottom = 640, 360, 70, 40, 20, 50
    most = 1000 * -(-max(rate for line in found.values() for _, rate in line) // 1000)
    x = lambda A: left + (wide - left - right) * ALL_TIMES.index(A) / (len(ALL_TIMES) - 1)
    y = lambda rate: high - bottom - (high - top - bottom) * rate / most
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
           f'<rect width="{wide}" height="{high}" fill="white"/>',
           f'<text x="{left}" y="20">8B, all on the host of an H100, micro-batches of 2048 tokens: tokens a second, by plan</text>']
    for i in range(5):
        rate = most * i / 4
        out.append(f'<line x1="{left}" x2="{wide - right}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.0f}</text>')
    for A in ALL_TIMES:
        out.append(f'<text x="{x(A):.1f}" y="{high - bottom + 18}" text-anchor="middle">{A}</text>')
    out.append(f'<text x="{(left + wide) / 2:.0f}" y="{high - 12}" text-anchor="middle">micro-batches a step</text>')
    for (link, order), line in found.items():
        color, dash = ("#0060a0", "#c04000")[order == ORDERS[0]], ("", ' stroke-dasharray="5 4"')[link == LINKS[0]]
        points = " ".join(f"{x(A):.1f},{y(rate):.1f}" for A, rate in line)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{wide - right - 4}" y="{y(line[-1][1]) + (16 if link == LINKS[0] else -6):.1f}" text-anchor="end" fill="{color}">{order}, {link} GB/s</text>')
    with open(path, "w") as file:
        file.write("\n".join([*out, "</svg>", ""]))


def main():
    parser = slow_arguments(__doc__, only="params,stage 3", steps=8, link=2e8, wire=2e8)
    parser.add_argument("--plan", metavar="SVG")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zerod-order-") as folder:
        if not args.plan:
            compare(Slow(args, folder), args)
        args.calibrate = 1
        found = plans(Bench(args, folder))
        picture(found, args.plan)
        print("| A | " + " | ".join(f"{order}, {link} GB/s" for link, order in found) + " |\n|" + "---|" * (len(found) + 1))
        for i, A in enumerate(ALL_TIMES):
            print(f"| {A} | " + " | ".join(f"{line[i][1]:.0f}" for line in found.values()) + " |")


if __name__ == "__main__":
    main()
