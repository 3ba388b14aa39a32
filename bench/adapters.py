#!/usr/bin/env python3
"""What a LoRA step takes, against a step that trains the whole model, and against PEFT and PyTorch.

    python bench/adapters.py ZEROD [--model gpt2|llama] [--peers] [--rounds 3] [--steps 8] [--B 4] [--T 256] [--threads 2] [--dtype fp32]

GPT-2's 124M, or a llama of its size (12 layers, 768 wide, 2048 inside, vocabulary 50257, tied), random weights and tokens,
r = 16 on all linear modules, --dtype, no recomputation, AdamW, clipping. Each round runs every variant once, one after the
other, so that what else the machine does falls on all; of each run the median step without the first two counts, and of
all rounds the median of the ratios within a round.

    full      the whole model
    frozen    the linear weights and embeddings frozen, norms and biases not: a backward without weight gradients
    lora      r = 16
    dora      the same with use_dora
    nf4       lora with the base in nf4 (quantize_base, double_quant)

u is the update's share of the full step, w that of weight gradients: what forward and backward of `frozen` are shorter by
(the head's are made with the loss, which counts as forward).
The aim: lora / full <= 1 - w - u + 0.06. With --peers, bench/peers/peft_train.py in the same rounds (python with torch,
transformers and peft: PYTHON, or this one)."""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import tempfile

VOCABULARY = 50257
MODELS = {
    "gpt2": ('model_type = "gpt2"\nn_embd = 768\nn_layer = 12\nn_head = 12\nn_positions = 1024',
             ["wte", "wpe", "h.*.c_attn.weight", "h.*.c_proj.weight", "h.*.c_fc.weight"]),
    "llama": ('model_type = "llama"\nhidden_size = 768\nintermediate_size = 2048\nnum_hidden_layers = 12\nnum_attention_heads = 12\n'
              'num_key_value_heads = 12\nmax_position_embeddings = 1024\nrms_norm_eps = 1e-5\ntie_word_embeddings = true',
              ["embed_tokens", "_proj.weight"]),
}


def variants(freeze):
    lora = ["lora.enabled=true", "lora.r=16", "lora.lora_alpha=32"]
    return {"full": [], "frozen": ["train.freeze=" + json.dumps(freeze)], "lora": lora, "dora": lora + ["lora.use_dora=true"],
            "nf4": lora + ["lora.quantize_base=nf4"]}


def write_job(args, folder, rows=None):
    """Tokens and job.toml for args.steps steps of `rows` rows over all ranks, or args.B."""
    rng = random.Random(1)
    rows = rows or args.B
    count = rows * args.T * args.steps + 1
    with open(os.path.join(folder, "tokens.bin"), "wb") as f:
        f.write(struct.pack("<%dH" % count, *(rng.randrange(VOCABULARY) for _ in range(count))))
    with open(os.path.join(folder, "job.toml"), "w") as f:
        f.write(f"""schema = 1
[job]
name = "adapters"
[model.config]
{MODELS[args.model][0]}
vocab_size = {VOCABULARY}
[device]
backend = "cpu"
cpu_threads = {args.threads}
[data]
cutoff_len = {args.T}
[[data.train]]
path = "tokens.bin"
format = "nanogpt"
[train]
max_steps = {args.steps}
per_device_train_batch_size = {args.B}
global_batch_size = {rows}
dtype = "{args.dtype}"
gradient_checkpointing = "none"
[checkpoint]
save_strategy = "no"
export = "none"
[log]
logging_steps = 1
step_breakdown = true
""")


def ours(args, folder, name, sets):
    out = os.path.join(folder, name)
    command = [os.path.abspath(args.zerod), "--job", "job.toml", "--quiet", "--resume", "never", "--set", "job.output_dir=" + out]
    for value in sets:
        command += ["--set", value]
    subprocess.run(command, cwd=folder, check=True)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        rows = [row for row in map(json.loads, f) if row.get("step", 0) > 2 and "loss" in row]
    phase = lambda name: statistics.median(row["phase_seconds"][name] for row in rows)
    return {"step": statistics.median(row["step_seconds"] for row in rows), "passes": phase("forward") + phase("backward"), "update": phase("update")}


def peer(args, mode):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "peft_train.py")
    shape = [str(value) for value in (args.model, mode, args.B, args.T, args.steps, args.threads)]
    done = subprocess.run([os.environ.get("PYTHON", "python3"), script] + shape, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zerod")
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--peers", action="store_true")
    for name, value in (("rounds", 3), ("steps", 8), ("B", 4), ("T", 256), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    args = parser.parse_args()
    if args.peers and args.dtype != "fp32":
        parser.error("--peers is a comparison in fp32")
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="zerod-adapters-") as folder:
        write_job(args, folder)
        for turn in range(args.rounds):
            runs = {name: ours(args, folder, name, sets) for name, sets in variants(MODELS[args.model][1]).items()}
            step = {name: run["step"] for name, run in runs.items()}
            full = runs["full"]
            row = {"u": full["update"] / step["full"],
                   "w": (full["passes"] - runs["frozen"]["passes"]) / step["full"],
                   "lora / full": step["lora"] / step["full"], "dora / full": step["dora"] / step["full"],
                   "nf4 / lora": step["nf4"] / step["lora"]}
            row["limit"] = 1 - row["w"] - row["u"] + 0.06
            if args.peers:
                row["torch full / full"] = peer(args, "full") / step["full"]
                row["peft lora / lora"] = peer(args, "lora") / step["lora"]
                row["peft dora / dora"] = peer(args, "dora") / step["dora"]
            print(f"round {turn + 1}: full {step['full']:.3f} s,", ", ".join(f"{k} {v:.3f}" for k, v in row.items()), flush=True)
            for key, value in row.items():
                ratios.setdefault(key, []).append(value)
    print(f"{args.model} {args.dtype} B={args.B} T={args.T} threads={args.threads}, median of {args.rounds}:",
          ", ".join(f"{key} {statistics.median(values):.3f}" for key, values in ratios.items()))


if __name__ == "__main__":
    main()
