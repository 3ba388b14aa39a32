#!/usr/bin/env python3
"""Compare a finished run with a fixture's expected.json, which PyTorch made (tests/reference/make_models.py).

    expected.py run FIXTURE OUTPUT_DIR fp32|bf16    0: within the tolerance; else lines that begin with '#'
    expected.py prompt FIXTURE                      prints the prompt
    expected.py continuation FIXTURE                prints what has to follow

A run is compared by its metrics.jsonl and, in fp32, by the exported weights."""

import array
import json
import struct
import sys

OTHER_HALF = ("vision_tower.", "multi_modal_projector.")


def near(what, step, got, wanted, tolerance):
    """|got/wanted - 1| <= tolerance; NaN never is."""
    apart = abs(got / wanted - 1)
    if not apart <= tolerance:
        sys.exit(f"# step {step}: {what} is {got:.9g}, PyTorch has {wanted:.9g} ({apart:.1e} apart, {tolerance:.0e} allowed)")


def check_rows(expected, rows, dtype):
    tolerance, steps = expected["tolerance"], expected["steps"]
    if len(rows) != len(steps):
        sys.exit(f"# metrics.jsonl has {len(rows)} steps, not {len(steps)}")
    for n, (row, step) in enumerate(zip(rows, steps), 1):
        near("step", n, row["step"], n, 0)
        near("learning_rate", n, row["learning_rate"], step["learning_rate"], 1e-9)
        near("tokens", n, row["tokens"], step["tokens"], 0)
        if dtype == "bf16":
            near("loss", n, row["loss"], expected["bf16"]["loss"][n - 1], tolerance["bf16_loss"])
        else:
            near("loss", n, row["loss"], step["loss"], tolerance["loss"])
            near("grad_norm", n, row["grad_norm"], step["grad_norm"], tolerance["grad_norm"])


def read_tensors(path):
    """{name: (type, bytes)}"""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (tensor["dtype"], data[slice(*tensor["data_offsets"])]) for name, tensor in header.items()}


def floats(path, name, tensor):
    if tensor[0] != "F32":
        sys.exit(f"# {name} of {path} is {tensor[0]}, not F32")
    return array.array("f", tensor[1])


def check_weights(expected, fixture, output_dir):
    path = f"{output_dir}/hf/model.safetensors"
    got, trained = read_tensors(path), read_tensors(f"{fixture}/final.safetensors")
    absolute, relative = expected["tolerance"]["weight_absolute"], expected["tolerance"]["weight_relative"]
    # The other half of a multimodal model passes through: the same types and bytes.
    others = {name: tensor for name, tensor in read_tensors(f"{fixture}/model/model.safetensors").items() if name.startswith(OTHER_HALF)}
    for name in others:
        trained.pop(name, None)
    if {name: tensor for name, tensor in got.items() if name not in trained} != others or not trained.keys() <= got.keys():
        sys.exit(f"# the exported model has other tensors: {sorted(got)}, not {sorted([*trained, *others])}")
    wanted = {name: array.array("f", tensor[1]) for name, tensor in trained.items()}
    got = {name: floats(path, name, got[name]) for name in wanted}
    if any(len(got[name]) != len(wanted[name]) for name in wanted):
        sys.exit("# the exported model has tensors of other sizes")
    for name, values in wanted.items():
        ranges = expected.get("excepted", {}).get(name, [])
        for i, (a, b) in enumerate(zip(got[name], values)):
            allowed = absolute + relative * abs(b)
            if not abs(a - b) <= allowed and not any(first <= i < end for first, end in ranges):
                sys.exit(f"# {name}[{i}] is {a:.9g}, PyTorch has {b:.9g} ({abs(a - b):.1e} apart, {allowed:.1e} allowed)")


def main():
    what, fixture, *rest = sys.argv[1:]
    with open(f"{fixture}/expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    if what == "prompt":
        print(expected["generate"]["prompt"], end="")
    elif what == "continuation":
        sys.stdout.buffer.write(bytes.fromhex(expected["generate"]["bytes"]) + b"\n")
    else:
        output_dir, dtype = rest
        with open(f"{output_dir}/metrics.jsonl", encoding="utf-8") as file:
            rows = [row for row in map(json.loads, file) if "eval_loss" not in row]
        check_rows(expected, rows, dtype)
        if dtype == "fp32":
            check_weights(expected, fixture, output_dir)


main()
