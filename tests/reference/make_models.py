#!/usr/bin/env python3
"""Tiny random models made by transformers (models.json), and 20 steps of AdamW on them by PyTorch.

    python tests/reference/make_models.py [NAME...]         writes tests/fixtures/NAME/

Needs torch, transformers, tokenizers, safetensors and numpy; the build and the tests do not. Each folder gets

    model/             config.json, weights, tokenizer: what save_pretrained writes
    data.*             documents, in one of the formats that zerod reads
    job.toml           the same training for zerod; its paths are relative to the repository's root
    expected.json      what PyTorch got, see below
    final.safetensors  the weights after the last step, fp32, named as in model/

expected.json:
    steps              one row a step: loss, grad_norm (before clipping), learning_rate, tokens (inputs that are no
                       padding), targets (those that are not masked)
    bf16               loss and grad_norm of the same steps in bf16, see train()
    excepted           {tensor: [[begin, end], ...]}: elements of final.safetensors that are not to be compared
    tolerance          what the comparison allows
    generate           greedy: prompt, prompt_ids (with what the tokenizer puts in front), 64 ids, their bytes in hex, and the
                       smallest lead of a best logit over the second (a tie would be a coin toss)

What a step computes is zerod's definition (docs/job.md, docs/data.md) written again here from scratch: samples are cut
from the stream of documents, attention and positions restart at every sample and at every document in it, a target that
begins another document is masked, and the loss is the sum over all unmasked targets of the step over their number.

Excepted elements. An AdamW update divides a gradient by its own size, so an element whose gradient is nothing but
rounding moves by a whole learning rate in a direction that means nothing. Those are found by running PyTorch again with
noise on its gradients, normal with 1e-6 of the tensor's root mean square gradient (an exact 0, as of a token that does not
come up, has no rounding and stays 0): whatever then ends further from the
first run than the tolerance, in any of PERTURBED runs, is excepted; more than 0.5 % of a tensor is an error here. GPT-2's
key bias is excepted whole: softmax does not see it, its true gradient is zero."""

import json
import math
import os
import shutil
import struct
import sys
from types import SimpleNamespace as NS

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import make_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
STEPS, BATCH, PERTURBED = 20, 24, 16  # of later families 5 (`seed` is given). 24 samples a step: worlds 1, 2, 3, 4, 6, 8, 12
ATOL, RTOL = 1e-5, 1e-4               # of final weights
IGNORED = -100


# ---- models ------------------------------------------------------------------------------------------------------------

def config_of(keys):
    """A configuration of transformers: its class and what it is given, which may have configurations in it."""
    given = {k: config_of(v) if isinstance(v, dict) and "class" in v else v for k, v in keys.items() if k != "class"}
    return getattr(transformers, keys["class"])(**given)


def read_models():
    """models.json: what each is there for, its classes, and how it is trained."""
    with open(os.path.join(HERE, "models.json"), encoding="utf-8") as f:
        specs = json.load(f)
    return {name: NS(**{**spec, "config": config_of(spec["config"]), "model": getattr(transformers, spec["model"]),
                        "tokenizer": getattr(make_tokenizers, spec["tokenizer"]), "storage": getattr(torch, spec["storage"])})
            for name, spec in specs.items()}


MODELS = read_models()
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 0.6  # some steps are clipped, some are not
PROMPTS = ["The miller's daughter", "In 1894 the mill", "for (int i = 0;", "So they took the stones", "Der M\u00fcller", "He rowed",
           "one knot for a breeze", "A list of what", "It's only flour", "def wheel(", "(the old one", "They", "1896", "the dark"]


def make_model(spec, seed):
    """A random model whose biases and norms are random too: at their usual 0 and 1 a mistake in them would not show."""
    torch.manual_seed(seed)
    model = spec.model(spec.config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * (0.1 if name.endswith("weight") else 0.05))
    return model.to(spec.storage)


def write_v4_config(path):
    """Rewrite config.json with the keys of transformers 4."""
    with open(path) as f:
        config = json.load(f)
    config["torch_dtype"] = config.pop("dtype")
    for keys in (config, config.get("text_config", {})):
        rope = keys.pop("rope_parameters", None)
        if rope and "sliding_attention" in rope:
            keys["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
            keys["sliding_window_pattern"] = keys.pop("_sliding_window_pattern")
        if rope:
            keys["rope_theta"] = rope.pop("rope_theta")
            if rope["rope_type"] == "default" and "partial_rotary_factor" in rope:
                keys["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
            keys["rope_scaling"] = None if rope["rope_type"] == "default" and len(rope) == 1 else rope
        keys.pop("layer_types", None)
    config["transformers_version"] = "4.45.0"
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def save_model(spec, model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **({"max_shard_size": spec.shard} if hasattr(spec, "shard") else {}))
    doc, config = spec.tokenizer()
    make_tokenizers.write(os.path.join(folder, "tokenizer.json"), json.dumps(doc, ensure_ascii=False) + "\n")
    make_tokenizers.write(os.path.join(folder, "tokenizer_config.json"), json.dumps(config, indent=1) + "\n")
    if spec.v4:
        write_v4_config(os.path.join(folder, "config.json"))


def is_text(name):
    """Not vision, of a multimodal model."""
    return not name.startswith(("model.vision_tower", "model.multi_modal_projector"))


def name_in_files(model, name):
    if not hasattr(model.config, "text_config"):
        return name
    return name.replace("model.language_model.", "language_model.model.") if "language_model" in name else \
        name.removeprefix("model.") if name.startswith("model.") else "language_model." + name


def load_model(spec, folder, dtype):
    model = spec.model.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()  # no dropout


# ---- data --------------------------------------------------------------------------------------------------------------

def read_documents():
    """text.txt in pieces of a few lines, and lines of it, so that documents of all lengths come up."""
    with open(os.path.join(HERE, "text.txt"), encoding="utf-8") as f:
        paragraphs = f.read().split("\n\n")
    documents = []
    for i, paragraph in enumerate(paragraphs):
        documents += paragraph.split("\n") if i % 2 else [paragraph]
    documents += ["It's only flour.", "No", "17", "a b c d e f g", "Yes!"]
    return [d for d in documents if d.strip()]


def encode_documents(spec, tokenizer, eos):
    """Token ids a document, as zerod's stream has them."""
    with_template = spec.data in ("packed", "documents")  # text: what the post-processor puts in front is put there
    ids = [tokenizer.encode(d, add_special_tokens=with_template).ids for d in read_documents()]
    if spec.data != "megatron":
        ids = [d + [eos] for d in ids]
    if spec.data in ("nanogpt", "llmc"):
        ids.insert(3, [eos])  # a document that is nothing else
    return ids


def write_data(spec, documents, folder):
    """The files of spec.data; returns the [[data.train]] keys."""
    stream = [i for d in documents for i in d]
    path = os.path.join(folder, "data.bin")
    if spec.data == "nanogpt":
        np.array(stream, "<u2").tofile(path)
    elif spec.data == "llmc":  # version 7: Llama 3's, 32-bit tokens
        header = np.zeros(256, "<i4")
        header[:3] = 20240801, 7, len(stream)
        with open(path, "wb") as f:
            f.write(header.tobytes() + np.array(stream, "<u4").tobytes())
    elif spec.data == "megatron":
        lengths = np.array([len(d) for d in documents], "<i4")
        pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype("<i8") * 2
        np.array(stream, "<u2").tofile(path)
        with open(os.path.join(folder, "data.idx"), "wb") as f:
            f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
            f.write(lengths.tobytes() + pointers.tobytes() + np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    else:
        with open(os.path.join(folder, "data.jsonl"), "w", encoding="utf-8") as f:
            for d in read_documents():
                f.write(json.dumps({"text": d}, ensure_ascii=False) + "\n")
        return {"path": "data.jsonl", "format": "text"}
    return {"path": "data.bin", "format": spec.data}


def cut_samples(spec, documents):
    """[(tokens, targets, doc_start)] of one epoch; -1 in tokens is padding."""
    T, samples = spec.T, []
    if spec.data == "documents":
        for d in documents:
            d = d[:T + 1]
            tokens = (d + [-1] * T)[:T]
            targets = (d[1:] + [IGNORED] * T)[:T]
            samples.append((tokens, targets, [0] * T))
        return samples
    stream = [(i, n) for n, d in enumerate(documents) for i in d]
    for j in range((len(stream) - 1) // T):
        cut = stream[j * T:j * T + T + 1]
        start, starts = 0, []
        for t in range(T):
            if t and cut[t][1] != cut[t - 1][1]:
                start = t
            starts.append(start)
        targets = [cut[t + 1][0] if cut[t + 1][1] == cut[t][1] else IGNORED for t in range(T)]
        samples.append(([i for i, _ in cut[:T]], targets, starts))
    return samples


def batch_of(samples, step):
    rows = [samples[(step * BATCH + k) % len(samples)] for k in range(BATCH)]
    return [torch.tensor([r[i] for r in rows]) for i in range(3)]


# ---- training ----------------------------------------------------------------------------------------------------------

def learning_rate(optim, step):
    warmup = math.ceil(optim["warmup"] * STEPS) if 0 < optim["warmup"] < 1 else optim["warmup"]
    low, r = optim["min_lr_ratio"], (step - warmup) / (STEPS - warmup)
    if step < warmup:
        return optim["lr"] * (step + 1) / warmup
    if optim["schedule"] == "linear":
        return optim["lr"] * (1 - (1 - low) * r)
    if optim["schedule"] == "cosine":
        return optim["lr"] * (low + (1 - low) * (1 + math.cos(math.pi * r)) / 2)
    if optim["schedule"] == "wsd":
        decay = math.ceil(0.2 * STEPS)
        return optim["lr"] * (1 - (1 - low) * max(0, step - (STEPS - decay)) / decay)
    return optim["lr"]


def token_losses(model, tokens, targets, doc_start):
    """(B, T) losses, 0 where masked; attention within a document only, positions from its start."""
    B, T = tokens.shape
    dtype = next(model.parameters()).dtype
    t = torch.arange(T)
    allowed = (t[None, :, None] >= t[None, None, :]) & (t[None, None, :] >= doc_start[:, :, None])
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)

    def mask_of(allowed):
        return torch.zeros(B, 1, T, T, dtype=dtype).masked_fill(~allowed[:, None], torch.finfo(dtype).min)
    mask = mask_of(allowed)
    if window:  # a mask that is given is taken as it is
        slides = mask_of(allowed & (t[None, :, None] - t[None, None, :] < window))
        by_type = getattr(config, "layer_types", None)
        mask = {"full_attention": mask, "sliding_attention": slides} if by_type else slides
    logits = model(input_ids=tokens.clamp(min=0), attention_mask=mask, position_ids=t[None] - doc_start,
                   use_cache=False).logits
    logits = logits.double() if dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED,
                                             reduction="none").view(B, T)


def check_documents(spec, model, samples):
    """Every document of the first batch alone, without any mask, gives the losses it has among others."""
    tokens, targets, doc_start = batch_of(samples, 0)
    with torch.no_grad():
        together = token_losses(model, tokens, targets, doc_start)
        for b in range(BATCH):
            for start in sorted(set(doc_start[b].tolist())):
                here = doc_start[b] == start
                if here.sum() <= getattr(spec, "long", 0):
                    continue  # alone it would be rotated by the short factors
                alone, goal = tokens[b][here].clamp(min=0), targets[b][here]
                logits = model(input_ids=alone[None], use_cache=False).logits[0]
                losses = torch.nn.functional.cross_entropy(logits, goal, ignore_index=IGNORED, reduction="none")
                assert torch.allclose(losses, together[b][here], atol=2e-5), (b, start)


def train(spec, samples, folder, dtype=torch.float32, noise_seed=None):
    """STEPS steps; returns rows and {name: final fp32 weight}.

    fp32 and fp64: everything in that type. bf16: the optimizer holds fp32 master weights; each step rounds them to bf16,
    runs forward and backward of the bf16 model as transformers writes it (losses from logits widened to fp32), widens the
    bf16 gradients to fp32, and takes norm, clipping and update from those."""
    model = load_model(spec, folder, dtype)
    names = [n for n, _ in model.named_parameters() if is_text(n)]
    params = [p for n, p in model.named_parameters() if is_text(n)]
    masters = [p.detach().clone().float().requires_grad_() for p in params] if dtype == torch.bfloat16 else params
    optimizer = torch.optim.AdamW([{"params": [p for p in masters if p.dim() >= 2], "weight_decay": DECAY},
                                   {"params": [p for p in masters if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=1.0, betas=BETAS, eps=EPS, foreach=False)
    noise = torch.Generator().manual_seed(noise_seed) if noise_seed is not None else None
    rows = []
    for step in range(STEPS):
        tokens, targets, doc_start = batch_of(samples, step)
        assert (torch.arange(spec.T) - doc_start).max() >= getattr(spec, "long", 0)
        count = int((targets != IGNORED).sum())
        loss = token_losses(model, tokens, targets, doc_start).sum() / count
        model.zero_grad()
        loss.backward()
        if dtype == torch.bfloat16:
            for master, p in zip(masters, params):
                master.grad = p.grad.float()
        if noise:
            for p in masters:
                size = 1e-6 * p.grad.square().mean().sqrt()
                p.grad += size * torch.randn(p.shape, generator=noise) * (p.grad != 0)
        norm = torch.nn.utils.clip_grad_norm_(masters, CLIP)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spec.optim, step)
        optimizer.step()
        if dtype == torch.bfloat16:
            with torch.no_grad():
                for master, p in zip(masters, params):
                    p.copy_(master)
        rows.append({"loss": loss.item(), "grad_norm": norm.item(), "learning_rate": learning_rate(spec.optim, step),
                     "tokens": int((tokens >= 0).sum()), "targets": count})
    final = {n: p.detach() for n, p in zip(names, masters)}
    return rows, {name_in_files(model, n): final.get(n, p.detach().float()) for n, p in model.named_parameters()}


def ranges(flags):
    """[[begin, end)] of the true elements of a flat array."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return edges.reshape(-1, 2).tolist()


def find_excepted(name, spec, samples, folder, final):
    flags = {n: np.zeros(w.numel(), bool) for n, w in final.items()}
    for seed in range(5 if hasattr(spec, "seed") else PERTURBED):
        _, other = train(spec, samples, folder, noise_seed=seed)
        for n, w in final.items():
            flags[n] |= ((other[n] - w).abs() > ATOL + RTOL * w.abs()).flatten().numpy()
    for n, flag in flags.items():
        if n.endswith("attn.c_attn.bias"):  # q, k, v: the middle third is the key's
            third = len(flag) // 3
            flag[third:2 * third] = True
            rest = flag.sum() - third
        elif n.endswith(getattr(spec, "blind", " ")):  # softmax does not see the channels that do not turn
            flag[:] = True
            rest = 0
        else:
            rest = flag.sum()
        assert rest <= 0.005 * len(flag), (name, n, rest, len(flag))
    return {n: ranges(f) for n, f in flags.items() if f.any()}


def generate(spec, tokenizer, model):
    """The first prompt whose 64 greedy tokens hold no end of text and no near tie."""
    back = {c: b for b, c in make_tokenizers.byte_table().items()}
    for prompt in PROMPTS if not hasattr(spec, "long") else [d[a:a + 120] for a in (0, 30, 60, 90) for d in read_documents()]:
        prompt_ids = tokenizer.encode(prompt, add_special_tokens=True).ids
        if len(prompt_ids) <= getattr(spec, "long", 0):  # one set of factors for all tokens
            continue
        out = model.generate(torch.tensor([prompt_ids]), max_new_tokens=64, min_new_tokens=64, do_sample=False,
                             eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
        ids = out.sequences[0, len(prompt_ids):].tolist()
        top = torch.stack(out.logits)[:, 0].topk(2).values
        lead = (top[:, 0] - top[:, 1]).min().item()
        known = all(tokenizer.id_to_token(i) is not None for i in ids)
        if lead > 2e-3 and known and spec.eos not in ids:
            data = b"".join(make_tokenizers.token_bytes(tokenizer.id_to_token(i), back) for i in ids)
            return {"prompt": prompt, "prompt_ids": prompt_ids, "ids": ids, "bytes": data.hex(), "smallest_lead": lead}
    raise RuntimeError("no prompt of this model is clear enough")


JOB = """\
# The training of expected.json. Run it from the repository's root:
#   zerod --job tests/fixtures/{name}/job.toml --set job.output_dir=/tmp/{name}
schema = 1

[job]
name = "fixture-{name}"
seed = 1

[model]
path = "tests/fixtures/{name}/model"
dtype = "fp32"          # exported as trained, to compare with final.safetensors

[data]
cutoff_len = {T}
packing = {packing}
shuffle = false
[[data.train]]
path = "tests/fixtures/{name}/{path}"
format = "{format}"

[train]
max_steps = {steps}
global_batch_size = {batch}
dtype = "fp32"

[optim]
name = "adamw"
learning_rate = {lr}
lr_scheduler_type = "{schedule}"
min_lr_ratio = {min_lr_ratio}
warmup_steps = {warmup}
weight_decay = {decay}
adam_beta1 = {beta1}
adam_beta2 = {beta2}
adam_epsilon = {eps}
max_grad_norm = {clip}

[log]
logging_steps = 1
"""


def make(name, seed):
    spec, folder = MODELS[name], os.path.join(FIXTURES, name)
    os.makedirs(folder, exist_ok=True)
    model_dir = os.path.join(folder, "model")
    doc, config = spec.tokenizer()
    tokenizer = Tokenizer.from_str(json.dumps(doc))
    eos = config["eos_token"]
    spec.eos = tokenizer.token_to_id(eos["content"] if isinstance(eos, dict) else eos)
    for part in (spec.config, spec.config.get_text_config()):
        part.eos_token_id = part.bos_token_id = spec.eos
        part.pad_token_id = None  # the row of the table would have no gradient
    save_model(spec, make_model(spec, seed), model_dir)

    documents = encode_documents(spec, tokenizer, spec.eos)
    entry = write_data(spec, documents, folder)
    samples = cut_samples(spec, documents)
    check_documents(spec, load_model(spec, model_dir, torch.float32), samples)

    rows, final = train(spec, samples, model_dir)
    half, _ = train(spec, samples, model_dir, torch.bfloat16)
    excepted = find_excepted(name, spec, samples, model_dir, final)
    # How far PyTorch's own fp32 is from fp64: what the tolerances leave for another order of summation.
    exact, exact_final = train(spec, samples, model_dir, torch.float64)
    far = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(rows, exact))
    far_norm = max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(rows, exact))
    worst = 0.0
    for n, w in final.items():
        ratio = ((w - exact_final[n].float()).abs() / (ATOL + RTOL * w.abs())).flatten()
        for begin, end in excepted.get(n, []):
            ratio[begin:end] = 0
        worst = max(worst, ratio.max().item())

    save_file({n: w.contiguous() for n, w in final.items()}, os.path.join(folder, "final.safetensors"), {"format": "pt"})
    saved = set()
    for file in os.listdir(model_dir):
        if file.endswith(".safetensors"):
            saved |= set(load_file(os.path.join(model_dir, file)))
    assert saved == set(final), saved ^ set(final)
    expected = {
        "made_by": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "tolerance": {"loss": 1e-5, "grad_norm": 2e-5, "weight_absolute": ATOL, "weight_relative": RTOL, "bf16_loss": 1e-2},
        "samples": len(samples), "eos": spec.eos,
        "generate": generate(spec, tokenizer, load_model(spec, model_dir, torch.float32)),
        "bf16": {k: [r[k] for r in half] for k in ("loss", "grad_norm")},
        "excepted": excepted, "steps": rows}
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: " + (json.dumps(v) if k != "steps" else
                "[\n" + ",\n".join(json.dumps(r) for r in v) + "\n]") for k, v in expected.items()) + "\n}\n")
    with open(os.path.join(folder, "job.toml"), "w") as f:
        f.write(JOB.format(name=name, T=spec.T, packing="false" if spec.data == "documents" else "true", steps=STEPS,
                           batch=BATCH, decay=DECAY, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, clip=CLIP, **entry,
                           **spec.optim))
    count = sum(e - b for r in excepted.values() for b, e in r)
    bf16 = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(rows, half))
    print(f"{name:10} {sum(w.numel() for w in final.values())} parameters, {len(samples)} samples, loss {rows[0]['loss']:.4f} -> "
          f"{rows[-1]['loss']:.4f}, norm {rows[0]['grad_norm']:.3f} -> {rows[-1]['grad_norm']:.3f}; fp64: loss {far:.1e}, norm "
          f"{far_norm:.1e}, weights {worst:.3f} of the tolerance; bf16 {bf16:.1e}; {count} excepted")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for seed, name in enumerate(MODELS):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, getattr(MODELS[name], "seed", seed))


if __name__ == "__main__":
    main()
