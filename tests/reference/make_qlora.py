"""tests/fixtures/MODEL/{lora,dora}/quantized.json for each model of make_adapters.py: 20 steps of its adapter by PEFT + PyTorch over a base
whose layers' linear weights are what bitsandbytes' Python definition (nf4, fp4: blocks of 64, nested; int8) or tiles of fp8 make of
them: losses and gradient norms by format.

Run it after make_adapters.py, with bitsandbytes beside peft (make_qlora.py [MODEL|MODEL/lora|MODEL/dora..])."""

import json
import os
import sys

import torch
import bitsandbytes.functional as F
from tokenizers import Tokenizer
from transformers.pytorch_utils import Conv1D

import make_adapters as ma
import make_models as mm
import make_quantized as mq


def nested_4bit(kind):
    values = F.get_4bit_type(kind, device="cpu")

    def back(w):
        codes, absmax = mq.quantize4(w.flatten(), 64, kind)
        offset = absmax.double().mean().float()
        nested, scales = mq.nest(absmax, offset)
        absmax = F.create_dynamic_map()[nested.long()] * scales.repeat_interleave(256)[:nested.numel()] + offset
        index = torch.stack([codes >> 4, codes & 15], dim=1).flatten()[:w.numel()]
        return (values[index.long()] * absmax.repeat_interleave(64)[:w.numel()]).reshape(w.shape)
    return back


def int8(w):
    scb = w.abs().max(dim=1).values
    q = torch.round(w * (127.0 / scb.unsqueeze(-1)))
    return q * scb.view(-1, 1) * 7.874015718698502e-3


def fp8(w):
    return mq.tiles_of_fp8(w)[2]


FORMATS = {"nf4": nested_4bit("nf4"), "fp4": nested_4bit("fp4"), "int8": int8, "fp8": fp8}


def over(back):
    """What make_adapters takes as a base: its layers' linear weights there and back."""
    def base_of(spec, folder):
        model = mm.load_model(spec, folder, torch.float32)
        with torch.no_grad():
            for name, module in model.named_modules():
                if name.endswith("lm_head"):
                    continue
                if isinstance(module, torch.nn.Linear):
                    module.weight.copy_(back(module.weight))
                elif isinstance(module, Conv1D):
                    module.weight.copy_(back(module.weight.t().contiguous()).t())
        return model
    return base_of


def make(name, adapters):
    spec, home = mm.MODELS[name], os.path.join(mm.FIXTURES, name)
    folder, model_dir = os.path.join(home, adapters), os.path.join(home, "model")
    doc, config = spec.tokenizer()
    tokenizer = Tokenizer.from_str(json.dumps(doc))
    eos = config["eos_token"]
    spec.eos = tokenizer.token_to_id(eos["content"] if isinstance(eos, dict) else eos)
    samples = mm.cut_samples(spec, mm.encode_documents(spec, tokenizer, spec.eos))
    out = {}
    for kind, back in FORMATS.items():
        ma.base_of = over(back)
        out[kind], _ = ma.train(name, spec, samples, model_dir, folder)
    with open(os.path.join(folder, "quantized.json"), "w") as f:
        json.dump(out, f)
        f.write("\n")
    print(name, adapters, {kind: (rows[0]["loss"], rows[-1]["loss"]) for kind, rows in out.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or ma.CASES:
        name, _, only = wanted.partition("/")
        for adapters in [only] if only else ["lora", "dora"]:
            make(name, adapters)
