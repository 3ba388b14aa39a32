#!/usr/bin/env python3
"""The program against bitsandbytes itself, in both directions.

    python tests/reference/check_quantized.py read ZEROD      models that bitsandbytes stores, read by `zerod merge`
    python tests/reference/check_quantized.py write ZEROD     what `zerod export --quantize` writes, read by transformers

read: a small llama in 4 bits, in every legal block and storage type, nested or not; what zerod decodes is what the parts of
bitsandbytes' own state decode to, to the bit. write: nf4, nf4 --double-quant and int8 of a llama and a GPT-2 that one step
has trained; transformers loads them with bitsandbytes, and codes and scales are those of its Python definition. Prints a
line for each that differs and how many agree; 1 where one differs. Needs torch, transformers and bitsandbytes."""

import itertools
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import bitsandbytes as bnb
import bitsandbytes.functional as F
import make_quantized as made

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
STORAGES = (torch.uint8, torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def zerod(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"zerod {' '.join(words)} ended with {done.returncode}: {done.stderr[-1000:]}")


def no_adapter(folder):
    """B = 0: merging it decodes the base and adds nothing."""
    path = os.path.join(folder, "nothing")
    os.mkdir(path)
    with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}, f)
    name = "base_model.model.model.layers.0.self_attn.q_proj."
    save_file({name + "lora_A.weight": torch.ones(1, 24), name + "lora_B.weight": torch.zeros(24, 1)},
              os.path.join(path, "adapter_model.safetensors"))
    return path


def stored(kind, block, storage, nested):
    """A folder, and what its weights decode to."""
    def store(key, w):
        codes, state = F.quantize_4bit(w, blocksize=block, quant_type=kind, quant_storage=storage, compress_statistics=nested)
        return {key: codes, **{key + "." + k: v for k, v in state.as_dict(packed=True).items()}}, made.decode4(codes, state)
    folder, want = made.by_hand(f"{kind}-{block}-{storage}-{nested}", "llama", store)
    made.set_config(folder, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
                             "bnb_4bit_quant_storage": str(storage).split(".")[1]})
    return folder, want


def check_read(program, folder):
    made.OUT = folder
    nothing = no_adapter(folder)
    for kind, block, storage, nested in itertools.product(("nf4", "fp4"), BLOCKS, STORAGES, (False, True)):
        base, want = stored(kind, block, storage, nested)
        zerod(program, "merge", "--base", base, "--adapter", nothing, "-o", base + "-whole", "--dtype", "fp32")
        got = load_file(os.path.join(base + "-whole", "model.safetensors"))
        yield (f"{kind}, blocks of {block}, {storage}, {'nested' if nested else 'plain'}",
               all(torch.equal(got[name], value.float()) for name, value in want.items()))


def scales_and_codes(module):
    """Of a module that transformers has loaded, with 4 bits or 8."""
    if isinstance(module, bnb.nn.Linear4bit):
        return module.weight.data.view(torch.uint8).flatten(), module.weight.quant_state
    codes = module.weight.CB if module.weight.CB is not None else module.weight.data
    return codes, module.weight.SCB if module.weight.SCB is not None else module.state.SCB


def is_defined(module, weight, nested):
    """Are codes and scales those that the definition gives for the weight?"""
    codes, scales = scales_and_codes(module)
    if isinstance(module, bnb.nn.Linear4bit):
        want, absmax = made.quantize4(weight.flatten(), 64, "nf4")
        return torch.equal(codes, want) and (nested or torch.equal(scales.absmax, absmax))
    most = weight.abs().max(1).values
    return torch.equal(codes, torch.round(weight * (127.0 / most[:, None])).to(torch.int8)) and torch.equal(scales, most)


def check_write(program, folder):
    from transformers import AutoModelForCausalLM
    for family in ("llama_odd", "gpt2"):
        out = os.path.join(folder, family)
        zerod(program, "--job", f"tests/fixtures/{family}/job.toml", "--set", "job.output_dir=" + out, "--set", "train.max_steps=1",
              "--set", "optim.warmup_steps=0")
        checkpoint = os.path.join(out, "checkpoint-000001")
        zerod(program, "export", checkpoint, "-o", out + "-fp32", "--dtype", "fp32")
        plain = load_file(os.path.join(out + "-fp32", "model.safetensors"))
        for words in (["nf4"], ["nf4", "--double-quant"], ["int8"]):
            to = out + "-" + "".join(words)
            zerod(program, "export", checkpoint, "-o", to, "--dtype", "bf16", "--quantize", *words)
            model = AutoModelForCausalLM.from_pretrained(to, device_map="cpu", dtype=torch.bfloat16)
            for path, module in model.named_modules():
                if not isinstance(module, (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)):
                    continue
                name = path + ".weight"
                weight = plain[name] if name in plain else plain[name.replace("transformer.", "")]
                weight = weight.t().contiguous() if family == "gpt2" else weight
                yield f"{family} {' '.join(words)} {path}", is_defined(module, weight, "--double-quant" in words)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("read", "write"):
        sys.exit(__doc__)
    check = {"read": check_read, "write": check_write}[sys.argv[1]]
    agree = differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, same in check(os.path.realpath(sys.argv[2]), folder):
            agree += same
            differ += not same
            if not same:
                print("differs:", name)
    print(f"{agree} agree, {differ} differ")
    sys.exit(differ > 0 or not agree)


if __name__ == "__main__":
    main()
