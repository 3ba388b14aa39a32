#!/usr/bin/env python3
"""What bitsandbytes' Python definition makes of weights, and small models that it stored.

    python tests/reference/make_quantized.py codes      writes tests/fixtures/quant/codes.safetensors
    python tests/reference/make_quantized.py models     writes tests/fixtures/quant/NAME/

Needs torch, transformers and bitsandbytes; the build and the tests do not.

codes.safetensors: `x`, the weights, random and made to be awkward (on thresholds, all zero, one huge, denormal, a short last
block of odd length); for each TYPE of nf4 and fp4 and each BLOCK `TYPE.BLOCK.codes` and `.absmax`, which the back end
"default" gives; `nested.*` of the absmax of nf4.64; `int8.*` of x as rows of 67; `e4m3.*`: what torch's float8_e4m3fn gives.

NAME/: a small random model as transformers stores it with bitsandbytes (fp4: in blocks of 128, its bytes as bf16; fp8: as
DeepSeek's, in tiles of 128), and dequantized.safetensors: what its weights in codes decode to, fp32, named as in the model."""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

import bitsandbytes.functional as F
from bitsandbytes.backends.default import ops

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "quant")
BLOCKS = (32, 64, 128, 4096)



def quantize4(x, block, kind):
    """backends/default/ops.py, quantize_4bit, as it stands there."""
    bounds, order = ops._get_4bit_quantize_bounds(kind, x.device)
    n = x.numel()
    rem = n % block
    full = n - rem
    com = x[:full].reshape(-1, block)
    absmax = com.abs().max(dim=-1)[0] if full else torch.empty(0)
    scaled = torch.clamp(com * (1.0 / absmax.clamp(min=1e-38).view(-1, 1)), -1, 1).reshape(-1)
    if rem:
        am = x[full:].abs().max().clamp(min=1e-38)
        absmax = torch.cat([absmax, am.unsqueeze(0)])
        scaled = torch.cat([scaled, torch.clamp(x[full:] / am, -1, 1)])
    if scaled.numel() % 2:
        scaled = torch.nn.functional.pad(scaled, (0, 1))
    q = torch.bucketize(scaled, bounds, out_int32=True)
    if kind != "nf4":
        q = order[q]
    q = q.to(torch.uint8)
    return (q[::2] << 4) | q[1::2], absmax


def nest(absmax, offset):
    """quantize_blockwise of the same file, over the signed dynamic map."""
    x = absmax - offset
    code = F.create_dynamic_map()
    rem = x.numel() % 256
    full = x.numel() - rem
    com = x[:full].reshape(-1, 256)
    scales = com.abs().max(dim=-1)[0] if full else torch.empty(0)
    scaled = torch.clamp(com * (1.0 / scales.clamp(min=1e-38).view(-1, 1)), -1, 1).reshape(-1)
    if rem:
        am = x[full:].abs().max().clamp(min=1e-38)
        scales = torch.cat([scales, am.unsqueeze(0)])
        scaled = torch.cat([scaled, torch.clamp(x[full:] / am, -1, 1)])
    return torch.bucketize(scaled, (code[:-1] + code[1:]) / 2, out_int32=True).to(torch.uint8), scales


def awkward():
    torch.manual_seed(1)
    parts = [torch.randn(1024) * 0.02]
    for kind in ("nf4", "fp4"):
        bounds, _ = ops._get_4bit_quantize_bounds(kind, torch.device("cpu"))
        ends = torch.tensor([1.0, -1.0])
        near = torch.cat([torch.nextafter(bounds, ends[0]), torch.nextafter(bounds, ends[1]), bounds])
        for scale in (1.0, 0.37):
            parts.append(torch.cat([near * scale, torch.full((64 - near.numel(),), scale)]))
    parts += [torch.zeros(64), torch.full((64,), -3.0), torch.randn(64) * 1e-41]
    huge = torch.randn(128)
    huge[70] = 3e38
    parts.append(huge)
    parts += [torch.randn(4096 + 700) * torch.rand(4096 + 700).pow(8), torch.zeros(64), torch.randn(37) * 0.3]
    return torch.cat(parts)


def make_codes():
    x = awkward()
    out = {"x": x}
    for kind in ("nf4", "fp4"):
        for block in BLOCKS:
            codes, absmax = quantize4(x, block, kind)
            out[f"{kind}.{block}.codes"], out[f"{kind}.{block}.absmax"] = codes, absmax
    # scales of blocks as they may be, 256 at a time and a rest
    absmax = torch.cat([out["nf4.32.absmax"].clamp(max=9), torch.rand(300)])
    offset = torch.tensor(absmax.double().mean().item())
    codes, scales = nest(absmax, offset.float())
    out.update({"nested.absmax": absmax, "nested.offset": offset.float().reshape(1), "nested.codes": codes,
                "nested.scales": scales,
                "nested.back": F.create_dynamic_map()[codes.long()] * scales.repeat_interleave(256)[:codes.numel()]
                + offset.float()})
    rows = x[: x.numel() // 67 * 67].reshape(-1, 67)
    rows = rows[(rows.abs().max(dim=1).values > 1e-30)]
    scb = rows.abs().max(dim=1).values
    q = torch.round(rows * (127.0 / scb.unsqueeze(-1))).to(torch.int8)
    out.update({"int8.x": rows.contiguous(), "int8.codes": q, "int8.scb": scb,
                "int8.back": (q * scb.view(-1, 1) * 7.874015718698502e-3)})
    y = torch.cat([torch.randn(2000) * 2.0 ** torch.randint(-12, 9, (2000,)), torch.arange(0, 449, 0.5),
                   torch.arange(0, 200) * 2.0 ** -11]).clamp(-448, 448)
    out["e4m3.x"], out["e4m3.codes"] = y, y.to(torch.float8_e4m3fn).view(torch.uint8)
    every = torch.arange(256, dtype=torch.uint8)
    out["e4m3.values"] = torch.nan_to_num(every.view(torch.float8_e4m3fn).float(), nan=-9999.0)
    os.makedirs(OUT, exist_ok=True)
    save_file(out, os.path.join(OUT, "codes.safetensors"))


# ---- models ------------------------------------------------------------------------------------------------------------

def base_model(family):
    """Weights that no rounding of bf16 touches, so that a base in any type is the same."""
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
    torch.manual_seed(2)
    ids = dict(bos_token_id=0, eos_token_id=0)
    if family == "gpt2":
        config = GPT2Config(vocab_size=24, n_embd=24, n_layer=1, n_head=2, n_positions=16, **ids)
    else:
        config = LlamaConfig(vocab_size=24, hidden_size=24, intermediate_size=150, num_hidden_layers=1, num_attention_heads=2,
                             num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=False, **ids)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((p + 0.02 * torch.randn_like(p)).bfloat16())
    return model


def decode4(codes, state):
    """What a weight decodes to in fp32, from the parts of its state."""
    absmax = state.absmax
    if state.nested:
        absmax = state.state2.code[absmax.long()] * state.state2.absmax.repeat_interleave(256)[: absmax.numel()] + state.offset
    q = codes.contiguous().view(torch.uint8).flatten().long()
    n = state.shape[0] * state.shape[1]
    values = state.code[torch.stack([q >> 4, q & 15], 1).flatten()[:n]]
    return (values * absmax.repeat_interleave(state.blocksize)[:n]).reshape(state.shape)


def finish(folder, tensors):
    save_file({k: v.float().contiguous() for k, v in tensors.items()}, os.path.join(folder, "dequantized.safetensors"))
    for name in ("generation_config.json", "README.md"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)


def by_transformers(name, family, **keys):
    """Loaded and saved by transformers itself."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    import bitsandbytes as bnb
    folder, plain = os.path.join(OUT, name), os.path.join(OUT, "plain")
    shutil.rmtree(folder, ignore_errors=True)
    base_model(family).to(torch.bfloat16).save_pretrained(plain)
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16, device_map="cpu",
                                                 quantization_config=BitsAndBytesConfig(**keys))
    model.save_pretrained(folder)
    shutil.rmtree(plain)
    out = {}
    for path, module in model.named_modules():
        if isinstance(module, bnb.nn.Linear4bit):
            value = decode4(module.weight.data, module.weight.quant_state)
        elif isinstance(module, bnb.nn.Linear8bitLt):
            value = module.weight.CB * module.weight.SCB.view(-1, 1) * 7.874015718698502e-3
        else:
            continue
        out[path + ".weight"] = value.t() if family == "gpt2" else value
    finish(folder, out)


def by_hand(name, family, store):
    """Every linear weight of a layer stored by `store`, which returns what takes its place and what it decodes to."""
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    model = base_model(family).to(torch.bfloat16)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    tensors, out = load_file(path), {}
    for key in [k for k in tensors if k.endswith("proj.weight")]:
        parts, out[key] = store(key, tensors.pop(key))
        tensors.update({k: v.contiguous() for k, v in parts.items()})
    save_file(tensors, path, metadata={"format": "pt"})
    return folder, out


def set_config(folder, quantization):
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config["quantization_config"] = quantization
    json.dump(config, open(path, "w"), indent=2)


def make_fp4_stored_as_bf16():
    def store(key, w):
        codes, state = F.quantize_4bit(w, blocksize=128, quant_type="fp4", quant_storage=torch.bfloat16)
        return {key: codes, **{key + "." + k: v for k, v in state.as_dict(packed=True).items()}}, decode4(codes, state)
    folder, out = by_hand("fp4", "llama", store)
    set_config(folder, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
                        "bnb_4bit_quant_storage": "bfloat16"})
    finish(folder, out)


def tiles_of_fp8(w):
    """Codes, scales of tiles of 128 x 128, and what both decode to."""
    rows, columns = w.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-columns // 128) * 128)
    padded[:rows, :columns] = w
    tiles = padded.reshape(padded.shape[0] // 128, 128, -1, 128)
    scale = tiles.abs().amax(dim=(1, 3)) / 448
    q = (tiles / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    back = (q.float() * scale[:, None, :, None]).reshape(padded.shape)[:rows, :columns]
    return q.reshape(padded.shape)[:rows, :columns], scale, back


def make_fp8():
    def store(key, w):
        codes, scale, back = tiles_of_fp8(w)
        return {key: codes, key + "_scale_inv": scale}, back
    folder, out = by_hand("fp8", "llama", store)
    set_config(folder, {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]})
    finish(folder, out)


def make_models():
    by_transformers("nf4-nested", "llama", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    by_transformers("gpt2-nf4", "gpt2", load_in_4bit=True, bnb_4bit_quant_type="nf4")
    by_transformers("int8", "llama", load_in_8bit=True)
    make_fp4_stored_as_bf16()
    make_fp8()


if __name__ == "__main__":
    {"codes": make_codes, "models": make_models}[sys.argv[1]]()
