#!/usr/bin/env python3
"""Rows of the table of GPU figures: zerod and a peer in turn, in one run.

    bench/gpu.sh FOLDER                     the rows
    bench/gpu.sh FOLDER gpt2-124m           one of them
    bench/gpu.sh FOLDER llama-8b --rounds 2 --steps 4

A round runs each program once in a process of its own, so that none holds memory while another runs, and all meet the same
machine; a run's figure is the median of its steps after the warm-up. Printed: the median over rounds of tokens per second,
of the ratio within a round, and of ours the planned and the used bytes of the device. Weights and tokens are random."""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024}
LLAMA = {"model_type": "llama", "vocab_size": 128256, "rope_theta": 500000.0, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5}
MODELS = {
    "gpt2-124m": dict(GPT2, n_embd=768, n_layer=12, n_head=12),
    "gpt2-774m": dict(GPT2, n_embd=1280, n_layer=36, n_head=20),
    "gpt2-xl": dict(GPT2, n_embd=1600, n_layer=48, n_head=25),
    "llama-1b": dict(LLAMA, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=64, tie_word_embeddings=True),
    "llama-3b": dict(LLAMA, hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24,
                     num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    "llama-8b": dict(LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=128, tie_word_embeddings=False),
}


class Row:
    """A training row: a model, T, B, sequences of a step, and settings of both sides."""

    def __init__(self, model, T, B, global_batch, must, aim, ours=(), peer=(), note=""):
        self.model, self.T, self.B, self.global_batch = model, T, B, global_batch
        self.must, self.aim, self.ours, self.peer, self.note = must, aim, list(ours), peer, note


EIGHT_BIT = ["optim.name=adamw_8bit"]
CAPPED = EIGHT_BIT + ["device.memory_limit=24GB", "offload.optimizer=cpu", "train.gradient_checkpointing=full"]
ROWS = {
    "gpt2-124m": Row("gpt2-124m", 1024, 64, 512, "1.10 of torch", "520k tokens/s on an H200"),
    "gpt2-774m": Row("gpt2-774m", 1024, 32, 512, "1.10 of torch", "100k tokens/s on an H200"),
    "gpt2-xl": Row("gpt2-xl", 1024, 16, 512, "1.10 of torch", "55k tokens/s on an H200"),
    "llama-1b": Row("llama-1b", 4096, 8, 32, "1.10 of torch", "65k tokens/s on an H200", EIGHT_BIT, ["--optimizer", "bnb8"]),
    "llama-3b": Row("llama-3b", 4096, 4, 16, "1.10 of torch", "27k tokens/s on an H200", EIGHT_BIT, ["--optimizer", "bnb8"]),
    "llama-8b": Row("llama-8b", 8192, 1, 4, "1.10 of torch", "11.4k tokens/s on an H200", EIGHT_BIT, ["--optimizer", "bnb8"]),
    "llama-8b-24gb": Row("llama-8b", 8192, 2, 2, "1.3 of torch with CPU offload", "8000 tokens/s", CAPPED + ["offload.activations=cpu"],
                         ["--optimizer", "ao-offload", "--cap", "24", "--checkpointing", "--batch", "1"],
                         "one micro-batch of 16k tokens"),
    "llama-8b-24gb-2x8k": Row("llama-8b", 8192, 1, 2, "1.3 of torch with CPU offload", "8000 tokens/s", CAPPED,
                              ["--optimizer", "ao-offload", "--cap", "24", "--checkpointing"], "two micro-batches of 8k tokens"),
    "gpt2-xl-6gb": Row("gpt2-xl", 1024, 4, 64, "planned = used within 2 %", "60 % of the speed without the cap",
                       EIGHT_BIT + ["device.memory_limit=6GiB", "offload.optimizer=cpu", "train.gradient_checkpointing=full"], None,
                       "the peer is ours without the cap"),
}
OTHERS = {
    "adamw": "AdamW step, fp32 and 8-bit states, 1B parameters: against torch fused and a plain copy (must 1.0 of torch; aim 92 % and 85 % of the copy)",
    "paged": "adamw, 8-bit, paged 32-bit, paged 8-bit on a 1B model, fitting and 20 % too large: step time and bytes, against bitsandbytes' four",
    "start": "124M: from the command to the first step done, against a torch script (must 5; aim 1.0 s)",
    "kernels": "every kernel as a share of a plain copy, products and attention in TFLOP/s",
}


def write_tokens(path, vocabulary, count):
    """A token file in nanoGPT's form (uint16) or of 32-bit tokens in llm.c's, by the size of the vocabulary."""
    rng = random.Random(1)
    wide = vocabulary > 65536
    with open(path, "wb") as file:
        if wide:
            file.write(struct.pack("<256i", 20240801, 7, count, *([0] * 253)))
        for _ in range(0, count, 65536):
            file.write(struct.pack(f"<65536{'I' if wide else 'H'}", *(rng.randrange(vocabulary) for _ in range(65536))))
    return "llmc" if wide else "nanogpt"


def toml_value(value):
    return json.dumps(value)


def write_job(folder, row, tokens):
    config = MODELS[row.model]
    path, format = tokens
    lines = ["schema = 1", "[job]", 'name = "bench"', "[model.config]"]
    lines += [f"{key} = {toml_value(value)}" for key, value in config.items()]
    lines += ["[data]", f"cutoff_len = {row.T}", "shuffle = false", "[[data.train]]", f"path = {toml_value(str(path))}",
              f'format = "{format}"']
    lines += ["[train]", 'dtype = "bf16"', f"per_device_train_batch_size = {row.B}", f"global_batch_size = {row.global_batch}",
              "[optim]", "learning_rate = 1e-4", "max_grad_norm = 1.0", "[checkpoint]", 'save_strategy = "no"',
              "[report]", "html = false"]
    job = Path(folder) / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    return job


def run_ours(folder, job, row, settings, steps):
    out = Path(folder) / f"out-{time.monotonic_ns()}"
    command = ["zerod", "--job", str(job), "--set", "device.backend=cuda", "--set", f"job.output_dir={out}",
               "--set", f"train.max_steps={steps}"]
    for setting in settings:
        command += ["--set", setting]
    said = subprocess.run(command, capture_output=True, text=True, timeout=470)
    if said.returncode:
        sys.exit(f"zerod ended with {said.returncode}:\n{said.stdout[-1500:]}{said.stderr[-1500:]}")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [r["tokens_per_second"] for r in rows if "tokens_per_second" in r]
    plan = json.loads((out / "plan.json").read_text())
    status = json.loads((out / "status.json").read_text()) if (out / "status.json").exists() else {}
    return {"tokens_per_second": statistics.median(rates[2:]), "plan": plan, "status": status}


def run_peer(row, arguments, steps):
    command = [sys.executable, str(HERE / "peers" / "gpu_train.py"), "--config", json.dumps(MODELS[row.model]), "--seq", str(row.T),
               "--batch", str(row.B), "--tokens", str(row.global_batch * row.T), "--steps", str(steps), *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=470)
    if said.returncode:
        print(said.stderr[-1500:], file=sys.stderr)
        return None
    return json.loads(said.stdout.splitlines()[-1])


def median(values):
    values = [v for v in values if v]
    return statistics.median(values) if values else None


def train_row(name, args):
    row = ROWS[name]
    result = {"row": name, "must": row.must, "aim": row.aim, "note": row.note, "rounds": []}
    with tempfile.TemporaryDirectory() as folder:
        need = row.global_batch * (row.T + 1) * (args.steps + 3)
        tokens = Path(folder) / "tokens.bin"
        job = write_job(folder, row, (tokens, write_tokens(tokens, MODELS[row.model]["vocab_size"], need)))
        for _ in range(args.rounds):
            ours = run_ours(folder, job, row, row.ours, args.steps)
            if row.peer is None:
                peer = run_ours(folder, job, row, EIGHT_BIT, args.steps)
            else:
                peer = run_peer(row, row.peer, args.steps)
            rate = peer and peer["tokens_per_second"]
            result["rounds"].append({"ours": ours["tokens_per_second"], "peer": rate,
                                     "ratio": rate and ours["tokens_per_second"] / rate})
            result["device_bytes"] = {"plan": {a["name"]: a["planned_bytes"] for a in ours["plan"]["ranks"][0]["arenas"]}, "status": ours["status"].get("ranks")}
            result["peer"] = peer and {k: v for k, v in peer.items() if k != "plan"}
    for key in ("ours", "peer", "ratio"):
        result[key + "_median"] = median([r[key] for r in result["rounds"]])
    return result


def start_row(args):
    row = ROWS["gpt2-124m"]
    result = {"row": "start", "rounds": []}
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.bin"
        small = Row(row.model, 1024, 4, 4, "", "")
        job = write_job(folder, small, (tokens, write_tokens(tokens, 50257, 65536)))
        for _ in range(args.rounds + 1):  # the first fills the caches of both
            begin = time.monotonic()
            run = subprocess.Popen(["zerod", "--job", str(job), "--set", "device.backend=cuda", "--set", f"job.output_dir={folder}/out-{begin}",
                                    "--set", "train.max_steps=1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            ours = None
            for line in run.stdout:
                if line.startswith("step 1/"):
                    ours = time.monotonic() - begin
            run.wait()
            begin = time.monotonic()
            subprocess.run([sys.executable, str(HERE / "peers" / "gpu_train.py"), "--config", json.dumps(MODELS["gpt2-124m"]), "--seq", "1024",
                            "--batch", "4", "--tokens", "4096", "--steps", "1", "--warmup", "0"], capture_output=True, check=True)
            peer = time.monotonic() - begin
            result["rounds"].append({"ours_seconds": ours, "peer_seconds": peer, "ratio": ours and peer / ours})
    result["ratio_median"] = median([r["ratio"] for r in result["rounds"][1:]])
    return result


def program_row(name, args):
    programs = {"adamw": [["bench_optim_cuda"]], "kernels": [["bench_kernels_cuda"], ["bench_gemm_cuda"]]}[name]
    result = {"row": name, "said": []}
    for command in programs:
        path = Path(args.programs) / command[0]
        if not path.exists():
            sys.exit(f"{path} was not built: ninja -C BUILD bench/{command[0]}")
        said = subprocess.run([str(path), *command[1:]], capture_output=True, text=True, timeout=470)
        print(said.stdout, said.stderr, sep="")
        result["said"].append(said.stdout)
        if said.returncode:
            sys.exit(said.returncode)
    if name == "adamw":
        said = subprocess.run([sys.executable, str(HERE / "peers" / "gpu_adamw.py")], capture_output=True, text=True, timeout=470)
        print(said.stdout, said.stderr, sep="")
        result["peer"] = said.stdout
    return result


def paged_row(args):
    """The four optimizers of both sides: room for everything, then a limit 20 % below what states on the device need."""
    row = Row("llama-1b", 1024, 4, 4, "", "")
    result = {"row": "paged", "rounds": []}
    names = ["adamw", "adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"]
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.bin"
        job = write_job(folder, row, (tokens, write_tokens(tokens, 128256, row.global_batch * 1025 * (args.steps + 3))))
        for name in names:
            free = run_ours(folder, job, row, [f"optim.name={name}"], args.steps)
            entry = {"name": name, "ours": free["tokens_per_second"], "device_bytes": free["status"].get("ranks"),
                     "peer": run_peer(row, ["--optimizer", "bnb-" + name.replace("adamw_8bit", "8bit").replace("adamw", "32bit")], args.steps)}
            if name.startswith("paged"):
                states = 8 if "32bit" in name else 2
                limit = int(1.24e9 * (4 + 2 + 2 + states) + 3e9) - int(0.2 * 1.24e9 * states)
                capped = run_ours(folder, job, row, [f"optim.name={name}", f"device.memory_limit={limit}"], args.steps)
                entry["too_large"] = {"limit": limit, "ours": capped["tokens_per_second"]}
            result["rounds"].append(entry)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=[*ROWS, *OTHERS])
    parser.add_argument("--programs", required=True, help="folder of bench_* programs")
    parser.add_argument("--results", required=True, help="file that a JSON object for each row is appended to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="of a run; the first two are not counted")
    args = parser.parse_args()
    if not args.row:
        for name, row in ROWS.items():
            print(f"{name:20} {row.model}, T = {row.T}, {row.global_batch * row.T} tokens a step; must: {row.must}; aim: {row.aim}")
        for name, what in OTHERS.items():
            print(f"{name:20} {what}")
        return
    if args.row in ROWS:
        result = train_row(args.row, args)
    elif args.row == "start":
        result = start_row(args)
    elif args.row == "paged":
        result = paged_row(args)
    else:
        result = program_row(args.row, args)
    result["when"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    result["gpu"] = smi.stdout.strip()
    with open(args.results, "a") as file:
        file.write(json.dumps(result) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
