#!/usr/bin/env python3
"""What arithmetic allows rows of GPU figures: operations and bytes of a step by kind of kernel, and the time that each takes at least.

    bench/roofline.py ZEROD                                tables of docs/measured/gpu.md
    bench/roofline.py ZEROD --check docs/measured/gpu.md   ends with 1 if that page has other tables

A bound, no measurement: a kind takes as long as its operations at the data sheet's dense peak, or its bytes at the memory's peak, whichever is longer, and
kinds follow one another. No kernel reaches either peak. Each array is read or written once; what a product reads twice, launches and latency cost
nothing. The rows, and so the jobs, are those of bench/gpu.sh; `zerod plan` says for each GPU whether a job fits, what is computed again, and how many bytes
gradients and states have. Parameters are counted from the model's shape, and it is an error when the plan has others."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_rows
import gpu_work as work

MODELS = ["gpt2-124m", "gpt2-774m", "gpt2-xl", "llama-1b", "llama-3b", "llama-8b", "llama-8b-24gb"]
# tokens/s on an H200, the aims of these rows
GOALS = {"gpt2-124m": 520e3, "gpt2-774m": 100e3, "gpt2-xl": 55e3, "llama-1b": 65e3, "llama-3b": 27e3, "llama-8b": 11.4e3, "llama-8b-24gb": 8e3}
# NVIDIA's data sheets: dense bf16 with fp32 sums, memory, PCIe in each direction, and the memory that a plan gets
GPUS = {"H100": (989e12, 3.35e12, 64e9, "80GB"), "H200": (989e12, 4.8e12, 64e9, "141GB"), "4090": (165e12, 1.01e12, 32e9, "24GB")}
ELEMENT = 2  # bytes of bf16


class Shape:
    """A model's sizes, by either family's names."""

    def __init__(self, config):
        gpt2 = config["model_type"] == "gpt2"
        take = lambda mine, other: config[mine if gpt2 else other]
        self.is_gpt2, self.vocab = gpt2, config["vocab_size"]
        self.hidden, self.layers = take("n_embd", "hidden_size"), take("n_layer", "num_hidden_layers")
        self.heads = take("n_head", "num_attention_heads")
        self.head = self.hidden // self.heads if gpt2 else config["head_dim"]
        self.kv = self.heads if gpt2 else config["num_key_value_heads"]
        self.inner = 4 * self.hidden if gpt2 else config["intermediate_size"]
        self.tied = gpt2 or config["tie_word_embeddings"]
        self.positions = config["n_positions"] if gpt2 else 0
        self.queries, self.joined = self.heads * self.head, (self.heads + 2 * self.kv) * self.head

    def linears(self):
        """(in, out) of a layer's products: q, k and v are one, and so are gate and up."""
        wide = self.inner if self.is_gpt2 else 2 * self.inner
        return [(self.hidden, self.joined), (self.queries, self.hidden), (self.hidden, wide), (self.inner, self.hidden)]

    def parameters(self):
        layer = sum(i * o for i, o in self.linears())
        norm = 2 * self.hidden if self.is_gpt2 else self.hidden
        biases = sum(o for _, o in self.linears()) if self.is_gpt2 else 0
        tables = (self.vocab * (1 if self.tied else 2) + self.positions) * self.hidden
        return tables + self.layers * (layer + 2 * norm + biases) + norm


class Kinds(dict):
    """Operations and bytes of a step, by kind."""

    def add(self, kind, operations, moved, times=1):
        had = self.get(kind, (0, 0))
        self[kind] = (had[0] + times * operations, had[1] + times * moved)


def add_product(kinds, kind, rows, columns, depth, result=ELEMENT, times=1):
    """A (rows, columns) result of products over depth; result: bytes that are written, or read and written, of each of its elements."""
    kinds.add(kind, 2 * rows * columns * depth, ELEMENT * depth * (rows + columns) + result * rows * columns, times)


def elements_of(shape, backward):
    """Of a layer's norms, rotation and activation, for each token; GELU is in a product."""
    elements = 8 * shape.hidden  # both sums of the residual stream with their norms
    if not shape.is_gpt2:
        elements += 2 * (shape.heads + shape.kv) * shape.head + (5 if backward else 3) * shape.inner
    return elements


def forward_of_layers(kinds, shape, tokens, T, suffix="", products=True):
    """products: with attention, or only what is between."""
    if products:
        for i, o in shape.linears():
            add_product(kinds, "matmuls of layers" + suffix, tokens, o, i, times=shape.layers)
        # q k and p v, of T keys half in the mean; q, k and v are read, out is written
        kinds.add("attention forward" + suffix, 2 * T * shape.queries * tokens, ELEMENT * tokens * (shape.joined + shape.queries), shape.layers)
    kinds.add("norms, rotation, activation" + suffix, 0, ELEMENT * tokens * elements_of(shape, False), shape.layers)


def backward_of_layers(kinds, shape, tokens, T, gradient):
    """gradient: bytes that a product moves of each element of a weight's."""
    for i, o in shape.linears():
        add_product(kinds, "matmuls of layers", tokens, i, o, times=shape.layers)
        add_product(kinds, "matmuls of layers", i, o, tokens, gradient, shape.layers)
    # five products; q, k, v, out and dout are read, dq, dk and dv written
    kinds.add("attention backward", 5 * T * shape.queries * tokens, ELEMENT * tokens * 2 * (shape.joined + shape.queries), shape.layers)
    kinds.add("norms, rotation, activation", 0, ELEMENT * tokens * elements_of(shape, True), shape.layers)


def head_and_embedding(kinds, shape, tokens, gradient):
    add_product(kinds, "matmuls of the head", tokens, shape.vocab, shape.hidden)
    add_product(kinds, "matmuls of the head", tokens, shape.hidden, shape.vocab)
    add_product(kinds, "matmuls of the head", shape.vocab, shape.hidden, tokens, gradient)
    # the classifier reads the logits from memory once and puts their gradients in their place
    kinds.add("classifier, embedding", 0, ELEMENT * tokens * 2 * shape.vocab)
    # rows are read and written; backward their gradients are read, and added to fp32
    kinds.add("classifier, embedding", 0, tokens * shape.hidden * (3 * ELEMENT + 2 * 4))


def bytes_of(plan, kind):
    return {arena["name"]: sum(s["bytes"] for s in arena["spans"] if s["kind"] == kind) for arena in plan["ranks"][0]["arenas"]}


def step_of(row, plan):
    """The kinds of a step on the GPU, and bytes that go down to the host and up."""
    shape, kinds, layout = Shape(row.config), Kinds(), plan["layout"]
    count = plan["parameters"]["all_parameters"]
    if shape.parameters() != count:
        sys.exit(f"roofline.py: {shape.parameters()} parameters by the shape, {count} by the plan")
    micros, tokens = layout["gradient_accumulation_steps"], layout["per_device_train_batch_size"] * row.T
    # several micro-batches are added in fp32, and the sum is rounded; one is written in the compute type
    kept = 4 if micros > 1 else ELEMENT
    again = layout["gradient_checkpointing"]
    for micro in range(micros):
        gradient = kept if micro == 0 else 2 * kept
        forward_of_layers(kinds, shape, tokens, row.T)
        backward_of_layers(kinds, shape, tokens, row.T, gradient)
        head_and_embedding(kinds, shape, tokens, gradient)
        if again != "none":
            forward_of_layers(kinds, shape, tokens, row.T, " again", products=again != "selective")
    kinds.add("gradients: norm, rounding", 0, count * (ELEMENT + (kept + ELEMENT if micros > 1 else 0)))
    down = up = 0
    if layout["offload"]["optimizer"] != "none":
        down, up = count * ELEMENT, count * ELEMENT
    else:
        kinds.add("update", 0, 2 * bytes_of(plan, "optimizer")["device"] + count * 2 * ELEMENT)
    if layout["offload"]["activations"] != "none":
        carried = ELEMENT * tokens * micros * shape.hidden * shape.layers
        down, up = down + carried, up + carried
    return kinds, down, up


def seconds_of(work_of_kind, gpu):
    """Seconds at least, and whether memory is what takes them."""
    operations, moved = work_of_kind
    computing, moving = operations / GPUS[gpu][0], moved / GPUS[gpu][1]
    return max(computing, moving), moving > computing


def plan_on(row, gpu, zerod):
    """The plan for a GPU with room on its host for everything; None where it does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        job = work.write_job(Path(folder), row, "none.bin")
        command = [zerod, "plan", *work.arguments_of(job, row.ours), "--world", "1", "--host-memory", "256GB", "--machine", "h200", "--format", "json"]
        if not any("memory_limit" in setting for setting in row.ours):
            command += ["--device-memory", GPUS[gpu][3]]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode == 69 and "does not fit" in said.stderr:
        return None
    if said.returncode:
        sys.exit(f"roofline.py: zerod plan ended with {said.returncode}:\n{said.stderr}")
    return json.loads(said.stdout)


def table(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value >= 0.1 else f"{value:.1g}"


def kinds_table(steps):
    """Of the plan of an H200, by model: operations, bytes and the time on each GPU."""
    rows = [["a step", "kind", "TFLOP", "GB", *(f"{gpu}, ms" for gpu in GPUS)]]
    for name in MODELS:
        kinds = steps[name, "H200"][0]
        for kind, amount in sorted(kinds.items(), key=lambda item: -seconds_of(item[1], "H200")[0]):
            cells = [seconds_of(amount, gpu) for gpu in GPUS]
            rows.append([name, kind, number(amount[0] / 1e12) if amount[0] else "", number(amount[1] / 1e9),
                         *(number(1e3 * seconds) + (" m" if by_memory else "") for seconds, by_memory in cells)])
            name = ""
    return table(rows)


def sums_table(steps):
    rows = [["", "GPU", "recomputed", "a step, ms", "memory's share", "PCIe, ms", "tokens/s at most", "goal", "goal / at most"]]
    for name in MODELS:
        for gpu in GPUS:
            if (name, gpu) not in steps:
                rows.append([name, gpu, "does not fit", *[""] * 6])
                continue
            kinds, down, up, again = steps[name, gpu]
            times = [seconds_of(amount, gpu) for amount in kinds.values()]
            computing, link = sum(t for t, _ in times), max(down, up) / GPUS[gpu][2]
            memory = sum(t for t, by_memory in times if by_memory)
            rate = gpu_rows.ROWS[name].global_batch * gpu_rows.ROWS[name].T / max(computing, link)
            rows.append([name, gpu, again, number(1e3 * computing), f"{100 * memory / computing:.0f} %", number(1e3 * link) if link else "",
                         f"{rate:,.0f}", f"{GOALS[name]:,.0f}", f"{100 * GOALS[name] / rate:.0f} %"])
    return table(rows)


def main():
    parser = argparse.ArgumentParser(usage="bench/roofline.py ZEROD [--check FILE]", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod", help="the program that plans; no GPU is needed")
    parser.add_argument("--check", metavar="FILE", help="say nothing, but whether the file has these tables")
    args = parser.parse_args()
    steps = {}
    for name in MODELS:
        for gpu in GPUS:
            plan = plan_on(gpu_rows.ROWS[name], gpu, args.zerod)
            if plan:
                steps[name, gpu] = (*step_of(gpu_rows.ROWS[name], plan), plan["layout"]["gradient_checkpointing"])
    tables = ["\n".join(sums_table(steps)), "\n".join(kinds_table(steps))]
    if not args.check:
        print("\n\n".join(tables))
    elif not all(text in Path(args.check).read_text() for text in tables):
        sys.exit(f"roofline.py: {args.check} has other tables than bench/roofline.py prints")


if __name__ == "__main__":
    main()
