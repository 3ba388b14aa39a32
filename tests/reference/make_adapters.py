"""Fixtures of adapters: tests/fixtures/MODEL/lora/ and dora/ (the same with DoRA) for each model of make_models.py.

    adapter_config.json, adapter_model.safetensors   what training begins with, as PEFT saves it; B is not nothing
    expected.json                                     20 steps of PEFT + PyTorch: losses and norms, what is excepted; 64 tokens
                                                      that PEFT continues a text with, greedily, by the adapter they begin with
    final.safetensors                                 the adapter after them, as PEFT saves it
    merged.safetensors                                merge_and_unload of that

Run it after make_models.py, with peft 0.21 (make_adapters.py [MODEL|MODEL/lora|MODEL/dora..]). make_adapters.py --greedy adds the tokens alone;
make_adapters.py --ours ZEROD [MODEL..] trains with zerod, loads what it exports into PEFT and holds 64 tokens of both against each other.
The data, the schedule and the excepted elements are
make_models.py's: attention within documents, AdamW with decay of matrices, clipping."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import make_models as mm
import make_tokenizers

CASES = {name: spec.lora for name, spec in mm.MODELS.items() if hasattr(spec, "lora")}  # of LoraConfig
LORAPLUS = {"mistral": 4.0}
PERTURBED = 8


def base_of(spec, folder):
    return mm.load_model(spec, folder, torch.float32)


def make_start(name, kind, spec, model_dir, folder):
    torch.manual_seed(7)
    model = get_peft_model(base_of(spec, model_dir), LoraConfig(task_type="CAUSAL_LM", use_dora=kind == "dora", **CASES[name]))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_B" in n:
                p.normal_(std=0.02)
            if "lora_magnitude" in n:
                p.mul_(1 + 0.05 * torch.randn(p.shape))
    model.save_pretrained(folder)
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as f:
        config = json.load(f)
    config["base_model_name_or_path"] = f"tests/fixtures/{name}/model"
    config["inference_mode"] = False
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    os.remove(os.path.join(folder, "README.md"))


def train(name, spec, samples, model_dir, folder, noise_seed=None):
    model = PeftModel.from_pretrained(base_of(spec, model_dir), folder, is_trainable=True).eval()
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    ratio = LORAPLUS.get(name, 1.0)

    def group(is_b, decays):
        return {"params": [p for n, p in named if ("lora_B" in n) == is_b and (p.dim() >= 2) == decays],
                "weight_decay": mm.DECAY if decays else 0.0, "ratio": ratio if is_b else 1.0}

    groups = [g for g in (group(b, d) for b in (False, True) for d in (True, False)) if g["params"]]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=mm.BETAS, eps=mm.EPS, foreach=False)
    params = [p for _, p in named]
    noise = torch.Generator().manual_seed(noise_seed) if noise_seed is not None else None
    rows = []
    for step in range(mm.STEPS):
        tokens, targets, doc_start = mm.batch_of(samples, step)
        count = int((targets != mm.IGNORED).sum())
        loss = mm.token_losses(model, tokens, targets, doc_start).sum() / count
        model.zero_grad()
        loss.backward()
        if noise:
            for p in params:
                size = 1e-6 * p.grad.square().mean().sqrt()
                p.grad += size * torch.randn(p.shape, generator=noise) * (p.grad != 0)
        norm = torch.nn.utils.clip_grad_norm_(params, mm.CLIP)
        for g in optimizer.param_groups:
            g["lr"] = mm.learning_rate(spec.optim, step) * g["ratio"]
        optimizer.step()
        rows.append({"loss": loss.item(), "grad_norm": norm.item()})
    return rows, model


def saved(model, folder):
    """What save_pretrained writes of the adapter."""
    model.save_pretrained(folder)
    tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    shutil.rmtree(folder)
    return {n: w for n, w in tensors.items() if ".base_layer" not in n}  # a head that has an adapter: PEFT adds the base


def tokenizer_of(spec):
    doc, config = spec.tokenizer()
    tokenizer = Tokenizer.from_str(json.dumps(doc))
    eos = config["eos_token"]
    spec.eos = tokenizer.token_to_id(eos["content"] if isinstance(eos, dict) else eos)
    return tokenizer


def continuation(name, folder):
    spec = mm.MODELS[name]
    model = PeftModel.from_pretrained(base_of(spec, os.path.join(mm.FIXTURES, name, "model")), folder).eval()
    return mm.generate(spec, tokenizer_of(spec), model)


def add_continuation(name, kind):
    folder = os.path.join(mm.FIXTURES, name, kind)
    path = os.path.join(folder, "expected.json")
    with open(path) as f:
        expected = json.load(f)
    expected["generate"] = continuation(name, folder)
    with open(path, "w") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")
    print(name, kind, expected["generate"]["smallest_lead"])


def compare_ours(zerod, name, kind):
    """PEFT with the adapter that zerod trained, against zerod with it."""
    root = os.path.realpath(os.path.join(mm.FIXTURES, "..", ".."))
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([zerod, "--job", f"tests/fixtures/{name}/job.toml", "--quiet", "--set", f"lora.path=tests/fixtures/{name}/{kind}",
                        "--set", f"job.output_dir={out}/run", "--set", f"data.cache_dir={out}/cache"], cwd=root, check=True)
        want = continuation(name, f"{out}/run/peft")
        got = subprocess.run([zerod, "generate", "--model", f"tests/fixtures/{name}/model", "--adapter", f"{out}/run/peft", "--prompt",
                              want["prompt"], "--max-new-tokens", "64"], cwd=root, check=True, capture_output=True).stdout
    same = got == bytes.fromhex(want["bytes"]) + b"\n"
    print(name, kind, "the same 64 tokens" if same else "other tokens")
    return same


def make(name, kind):
    spec, home = mm.MODELS[name], os.path.join(mm.FIXTURES, name)
    folder, model_dir = os.path.join(home, kind), os.path.join(home, "model")
    scratch = os.path.join(home, kind + ".tmp")
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = tokenizer_of(spec)
    samples = mm.cut_samples(spec, mm.encode_documents(spec, tokenizer, spec.eos))
    make_start(name, kind, spec, model_dir, folder)
    rows, model = train(name, spec, samples, model_dir, folder)
    final = saved(model, scratch)
    flags = {n: torch.zeros(w.numel(), dtype=torch.bool) for n, w in final.items()}
    for seed in range(PERTURBED):
        _, other = train(name, spec, samples, model_dir, folder, noise_seed=seed)
        for n, w in saved(other, scratch).items():
            flags[n] |= ((w - final[n]).abs() > mm.ATOL + mm.RTOL * final[n].abs()).flatten()
    for n, flag in flags.items():
        assert flag.sum() <= 0.005 * len(flag), (name, n, int(flag.sum()), len(flag))
    save_file(final, os.path.join(folder, "final.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump({"steps": rows, "loraplus_lr_ratio": LORAPLUS.get(name, 1.0),
                   "tolerance": {"loss": 1e-5, "grad_norm": 2e-4, "weight_absolute": mm.ATOL, "weight_relative": mm.RTOL},
                   "excepted": {n: mm.ranges(f.numpy()) for n, f in flags.items() if f.any()}}, f, indent=1)
        f.write("\n")
    add_continuation(name, kind)
    merged = model.merge_and_unload()
    names = [k.rsplit(".lora_A", 1)[0].removeprefix("base_model.model.") + ".weight" for k in final if ".lora_A" in k]
    state = merged.state_dict()
    save_file({mm.name_in_files(merged, n): state[n].contiguous() for n in sorted(names)[:4]}, os.path.join(folder, "merged.safetensors"),
              metadata={"format": "pt"})
    print(name, kind, rows[0]["loss"], rows[-1]["loss"], {n: int(f.sum()) for n, f in flags.items() if f.any()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    words, work, same = sys.argv[1:], make, True
    if words[:1] == ["--greedy"]:
        words, work = words[1:], add_continuation
    elif words[:1] == ["--ours"]:
        zerod = os.path.abspath(words[1])
        words, work = words[2:], lambda name, kind: compare_ours(zerod, name, kind)
    for what in words or CASES:
        name, _, only = what.partition("/")
        for kind in [only] if only else ["lora", "dora"]:
            same &= work(name, kind) is not False
    sys.exit(not same)
