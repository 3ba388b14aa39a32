#!/usr/bin/env python3
"""Rows of the table of GPU figures: zerod and a peer in turn, in one run.

    bench/gpu.sh FOLDER                     the rows
    bench/gpu.sh FOLDER gpt2-124m           one of them
    bench/gpu.sh FOLDER llama-8b --rounds 2 --steps 4
    bench/gpu.sh FOLDER table               the last result of each row, as a table
    bench/gpu.sh FOLDER fit                 what every row plans on this machine; nothing is trained

A round runs each program once in a process of its own, so that none holds memory while another runs, and all meet the same
machine; a run's figure is the median of its steps after the warm-up. Printed: the median over rounds of tokens per second,
of the ratio within a round, and of ours the planned and the used bytes of the device. Weights and tokens are random. A row ends
within --limit seconds: a round that would not be done in time is not begun. A peer that is not installed is "missing" in the
result and no failure; the exit code is 1 when ours gave no figure or, of fit, when a row does not fit. Without a GPU that zerod can
use it is 69, and no result is written."""

import argparse
import copy
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_work as work

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
    "qwen3-8b": {"model_type": "qwen3", "vocab_size": 151936, "rope_theta": 1e6, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
                 "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False},
}
# --tiny: the same rows over models of nothing, to try the scripts where there is no GPU. Peers are not compiled there.
TINY = {"gpt2": {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 2},
        "llama": {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "head_dim": 16}}
TINY["qwen3"] = TINY["llama"]


def tiny_settings(settings):
    """There is no stand-in for cuDNN."""
    settings = [re.sub("memory_limit=.*", "memory_limit=1GB", s) for s in settings]
    return ["model.attn=own" if s in CUDNN else s for s in settings]


class Row:
    """A training row: a model, T, B, sequences of a step, and settings of both sides. steps, warmup: of a run, the second of the
    first. must: the ratio to the peer. documents: tokens of one in the mean, cut by end-of-text; 0: nothing is cut. against: the
    peer is ours too, and this is what is other there."""

    def __init__(self, model, T, B, global_batch, must, aim, ours=(), peer=("--optimizer", "torch"), peer_batch=0, note="", steps=6,
                 warmup=2, llmc="", documents=0, against=None):
        self.config, self.T, self.B, self.global_batch = MODELS[model], T, B, global_batch
        self.must, self.aim, self.ours, self.peer, self.note = must, aim, list(ours), peer and list(peer), note
        self.peer_batch, self.steps, self.warmup, self.llmc = peer_batch, steps, warmup, llmc
        self.documents, self.against = documents, against

    def other(self):
        """The row of ours that it is held against."""
        row = copy.copy(self)
        vars(row).update(self.against)
        return row

    def made_tiny(self):
        self.config = dict(self.config, **TINY[self.config["model_type"]])
        self.T, self.steps, self.warmup = 32, 3, 1
        self.global_batch = min(self.global_batch, 4)
        self.B = min(self.B, 2)
        self.documents = self.documents and 20
        self.peer = self.peer and [*self.peer, "--eager"]
        self.ours = tiny_settings(self.ours)
        if self.against and "ours" in self.against:
            self.against = dict(self.against, ours=tiny_settings(self.against["ours"]))
        return self


CUDNN = ["model.attn=cudnn"]
EIGHT_BIT = ["optim.name=adamw_8bit"]
CAPPED = EIGHT_BIT + ["device.memory_limit=24GB", "offload.optimizer=cpu", "train.gradient_checkpointing=full"]
NO_CLIPPING = "optim.max_grad_norm=1e9"
PEER_8BIT = ["--optimizer", "bnb-8bit,ao-8bit,torch-bf16"]
PEER_CAPPED = ["--cap", "24e9", "--checkpointing", "--chunks", "16", "--optimizer"]
LONG = {"steps": 3, "warmup": 1}
LORA = ["lora.enabled=true", "lora.r=16", "lora.lora_alpha=32"]
NF4 = LORA + ["lora.quantize_base=nf4"]
BYTES = ["model.tokenizer=bytes"]
SAMPLES = [*BYTES, "sample.steps=1", 'sample.prompts=["Once upon a time"]', "sample.max_new_tokens=64"]
PEER_LORA = ["--optimizer", "torch-bf16", "--adapter"]
OF_UNSLOTH = "tokens/s, Unsloth's published figure on an H200"


def fp8_row(model, T, B, global_batch, mode, **others):
    return Row(model, T, B, global_batch, 1.15, "1.25 of bf16: torchao's 8B on H100s", EIGHT_BIT + [f"train.fp8={mode}"],
               note="the peer is ours in bf16", against={"ours": EIGHT_BIT}, **others)


ROWS = {
    "gpt2-124m": Row("gpt2-124m", 1024, 64, 512, 1.1, "520k tokens/s on an H200", llmc="d12"),
    "gpt2-774m": Row("gpt2-774m", 1024, 32, 512, 1.1, "100k tokens/s on an H200", llmc="d36", **LONG),
    "gpt2-xl": Row("gpt2-xl", 1024, 16, 512, 1.1, "55k tokens/s on an H200", llmc="d48", **LONG),
    "llama-1b": Row("llama-1b", 4096, 8, 32, 1.1, "65k tokens/s on an H200", EIGHT_BIT, PEER_8BIT),
    "llama-3b": Row("llama-3b", 4096, 4, 16, 1.1, "27k tokens/s on an H200", EIGHT_BIT, PEER_8BIT),
    "llama-8b": Row("llama-8b", 8192, 1, 4, 1.1, "11.4k tokens/s on an H200", EIGHT_BIT, PEER_8BIT, steps=4, warmup=1),
    "llama-8b-24gb": Row("llama-8b", 8192, 2, 2, 1.3, "8000 tokens/s", CAPPED + ["offload.activations=cpu"],
                         PEER_CAPPED + ["ao-offload,host"], note="one micro-batch of 16k tokens", steps=4, warmup=1),
    "llama-8b-24gb-2x8k": Row("llama-8b", 8192, 1, 2, 1.3, "8000 tokens/s", CAPPED, PEER_CAPPED + ["host"],
                              note="two micro-batches of 8k tokens", steps=4, warmup=1),
    "llama-8b-24gb-undo": Row("llama-8b", 8192, 2, 2, 1.0, "the update hidden as far as the host's memory goes",
                              CAPPED + ["offload.activations=cpu", "offload.clipping=undo", NO_CLIPPING],
                              note="clipping = undo, undo_memory = auto, nothing is clipped; the peer is ours with wait", steps=4, warmup=1,
                              against={"ours": CAPPED + ["offload.activations=cpu", NO_CLIPPING]}),
    "llama-8b-24gb-shared": Row("llama-8b", 8192, 2, 2, 0.9, "auto, by the row calibrate, is no slower",
                                CAPPED + ["offload.activations=cpu", "offload.device_update=0.5"],
                                note="half of the update on the device; the peer is ours with device_update = auto", steps=4, warmup=1,
                                against={"ours": CAPPED + ["offload.activations=cpu", "offload.device_update=auto"]}),
    "llama-8b-24gb-order": Row("llama-8b", 4096, 1, 8, 1.0, "weights are sent twice a step, not 16 times",
                               CAPPED + ["offload.params=cpu", "offload.activations=cpu", "train.accumulation_order=breadth_first"],
                               note="8 micro-batches of 4k tokens, breadth first; the peer is ours depth first", steps=3, warmup=1,
                               against={"ours": CAPPED + ["offload.params=cpu", "offload.activations=cpu", "train.accumulation_order=depth_first"]}),
    "gpt2-xl-6gb": Row("gpt2-xl", 1024, 16, 64, 0.6, "60 % of the speed without the limit; planned = used within 2 %",
                       EIGHT_BIT + ["device.memory_limit=6GiB", "offload.optimizer=cpu", "offload.activations=cpu",
                                    "train.gradient_checkpointing=full"],
                       note="the peer is ours without the limit", steps=5, warmup=1, against={"ours": EIGHT_BIT}),
    "llama-1b-fp8": fp8_row("llama-1b", 4096, 8, 32, "tensorwise"),
    "llama-1b-fp8-blockwise": fp8_row("llama-1b", 4096, 8, 32, "blockwise"),
    "llama-8b-fp8": fp8_row("llama-8b", 8192, 1, 4, "tensorwise", steps=4, warmup=1),
    "llama-8b-fp8-blockwise": fp8_row("llama-8b", 8192, 1, 4, "blockwise", steps=4, warmup=1),
    "llama-8b-lora-fp8": Row("llama-8b", 2048, 2, 8, 1.2, "the base multiplied as it lies", LORA + ["lora.quantize_base=fp8", "train.fp8=blockwise"],
                             note="the base in FP8; the peer is ours with the base in bf16", against={"ours": LORA}),
    # T, B and r of Unsloth's figures
    "qwen3-8b-lora": Row("qwen3-8b", 2048, 2, 8, 1.1, f"9.1k {OF_UNSLOTH}", LORA, [*PEER_LORA, "lora"]),
    "qwen3-8b-qlora": Row("qwen3-8b", 2048, 2, 8, 1.1, f"8.4k {OF_UNSLOTH}", NF4,
                          [*PEER_LORA, "qlora", "--eager"], note="nf4, nested; the peer's base by bitsandbytes, which takes minutes to compile"),
    "qwen3-8b-qlora-samples": Row("qwen3-8b", 2048, 2, 8, 0.98, "steps as fast as without samples; between_seconds: 64 tokens", NF4 + SAMPLES,
                                  note="a sample after each step; the peer is ours without", against={"ours": NF4 + BYTES}),
    "qwen3-8b-dora": Row("qwen3-8b", 2048, 2, 8, 1.1, "PEFT's own speed of LoRA", LORA + ["lora.use_dora=true"], [*PEER_LORA, "dora"]),
}


def attention_rows(name, *shape, ours=()):
    """Attention of a model's row on documents, by cuDNN in any order of its sums, and on documents so."""
    cut = {"documents": 700, "note": "documents of 700 tokens in the mean; the peer is ours without the cuts", "against": {"documents": 0}}
    by_cudnn = {"ours": [*ours, *CUDNN], "note": "attn = cudnn; the peer is ours with auto", "against": {"ours": list(ours)}}
    both = dict(by_cudnn, documents=700, note="documents of 700 tokens in the mean, attn = cudnn; the peer is ours with auto")
    ROWS[f"{name}-cut"] = Row(name, *shape, 1.0, "no slower for the cuts", **dict(cut, ours=ours))
    ROWS[f"{name}-cudnn"] = Row(name, *shape, 1.0, "no slower than auto", **by_cudnn)
    ROWS[f"{name}-cut-cudnn"] = Row(name, *shape, 1.0, "no slower than auto", **both)


attention_rows("gpt2-124m", 1024, 64, 512)
attention_rows("llama-1b", 4096, 8, 32, ours=EIGHT_BIT)
# without "none" the planner would rather recompute activations than page
PAGED = Row("llama-1b", 1024, 4, 4, 0.99, "paged 8-bit ahead of paged 32-bit", ["train.gradient_checkpointing=none"], steps=8, warmup=3)
START = Row("gpt2-124m", 1024, 4, 4, 5, "1.0 s", steps=1, warmup=0)
FITTED = Row("llama-8b", 8192, 2, 2, 1, "fp32 states below 24 GB", steps=4, warmup=1)
OTHERS = {
    "fitted": "Llama-3.1-8B, fp32 states, as plan --fit lays it out for 24 GB of the device and this host",
    "adamw": "AdamW step, fp32 and 8-bit states, 1B parameters: against torch fused and a plain copy (must: 1.0; aim: 92 % and 85 % of the copy)",
    "paged": "adamw, 8-bit, paged 32-bit, paged 8-bit on a 1B model, fitting and 20 % too large: step time and bytes, against bitsandbytes' four",
    "start": "124M: from the command to the first step done, against a torch script (must: 5; aim: 1.0 s)",
    "kernels": "every kernel and an adapter's matmuls as a share of a plain copy, attention in TFLOP/s",
    "calibrate": "zerod bench calibrate: speeds of this machine, by which the plans of later rows predict",
    "fp8-loss": "loss of a llama of 10.7 million parameters after 500 steps, three seeds, both modes of FP8 against bf16 (must: within 0.5 %)",
    "fit": "what each training row plans on this machine, and whether it fits",
}


def rounds(args, clock):
    """Numbers of rounds, as long as another is likely to be done in time; a little more than the last one took is kept."""
    for index in range(args.rounds):
        begin, left = time.monotonic(), clock.left()
        yield index
        if clock.left() < 1.15 * (time.monotonic() - begin) or left <= 1:
            return


def prepare(folder, row, steps):
    folder = Path(folder)
    tokens = folder / "tokens.bin"
    work.write_tokens(tokens, row.config["vocab_size"], row.global_batch * (row.T + 1) * (steps + 3), row.documents)
    return work.write_job(folder, row, tokens), tokens


# --- training rows

def llmc_program(args):
    """train_gpt2cu of llm.c, built from the source at --llmc; None or {"failed": ..} where it cannot be."""
    if not args.llmc:
        return None
    copy = Path(tempfile.gettempdir()) / "zerod-llmc"
    if not (copy / "train_gpt2cu").exists():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(args.llmc, copy, ignore=shutil.ignore_patterns(".git"))
        command = ["make", "-C", str(copy), "train_gpt2cu", "NO_MULTI_GPU=1", "NO_USE_MPI=1"]
        if args.cudnn_frontend:
            command += ["USE_CUDNN=1", f"CUDNN_FRONTEND_PATH={args.cudnn_frontend}"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except (subprocess.TimeoutExpired, FileNotFoundError) as error:
            return {"failed": f"llm.c was not built: {error}"}
        if said.returncode:
            return {"failed": "llm.c was not built", "said": work.tail(said.stdout + said.stderr)}
    return copy / "train_gpt2cu"


def run_llmc(program, row, tokens, steps, warmup, clock):
    command = [str(program), "-i", str(tokens), "-j", str(tokens), "-e", row.llmc, "-b", str(row.B), "-t", str(row.T),
               "-d", str(row.global_batch * row.T), "-x", str(steps), "-v", "1000000", "-m", "1", "-s", "0", "-h", "0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=clock.left())
    except subprocess.TimeoutExpired:
        return {"failed": "no time left"}
    times = [float(t) / 1e3 for t in re.findall(r"\| *([\d.]+) ms \|", said.stdout)]
    if said.returncode or not times:
        return {"failed": f"ended with {said.returncode}", "said": work.tail(said.stdout + said.stderr)}
    return {"tokens_per_second": row.global_batch * row.T / statistics.median(times[warmup:] or times)}


def run_round(row, job, tokens, llmc, args, clock):
    steps, warmup = args.steps or row.steps, row.warmup
    ours = work.run_ours(job, row.ours, steps, warmup, clock)
    if row.against:
        other = row.other()
        other_job = work.write_job(job.parent, other, tokens, "other.toml")
        peer = work.run_ours(other_job, other.ours, steps, warmup, clock)
    else:
        peer = work.run_peer(row, row.peer, steps, warmup, clock)
    entry = {"ours": ours, "peer": peer}
    if isinstance(llmc, Path):
        entry["llmc"] = run_llmc(llmc, row, tokens, steps, warmup, clock)
    rate = ours["tokens_per_second"]
    for name in ("peer", "llmc"):
        other = entry.get(name, {}).get("tokens_per_second")
        entry[name + "_ratio"] = other and rate / other
    return entry


def train_row(name, args, clock, result):
    row = ROWS[name]
    result.update(must=row.must, aim=row.aim, note=row.note, rounds=[])
    llmc = llmc_program(args) if row.llmc else None
    if isinstance(llmc, dict):
        result["llmc"] = llmc
    with tempfile.TemporaryDirectory() as folder:
        job, tokens = prepare(folder, row, args.steps or row.steps)
        if row.documents:
            result["tokens_of_a_document"] = work.mean_document(row, job, clock)
        for _ in rounds(args, clock):
            try:
                result["rounds"].append(run_round(row, job, tokens, llmc, args, clock))
            except work.Failed:
                if not result["rounds"]:
                    raise
                break  # the rounds before it stand
    done = result["rounds"]
    result["ours_tokens_per_second"] = work.median([r["ours"]["tokens_per_second"] for r in done])
    result["peer_tokens_per_second"] = work.median([r["peer"].get("tokens_per_second") for r in done])
    result["ratio"] = work.median([r["peer_ratio"] for r in done])
    result["llmc_ratio"] = work.median([r["llmc_ratio"] for r in done])
    result["bytes"] = done[-1]["ours"]["bytes"]


# --- from the command to the first step

def start_once(command, mark, env=None):
    """Seconds until the program says `mark`, or ends where mark is None; and what it said."""
    begin, seen, said = time.monotonic(), None, []
    try:
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    except OSError:
        return None, json.dumps({"missing": command[0]})
    for line in run.stdout:
        said.append(line)
        if mark and line.startswith(mark) and seen is None:
            seen = time.monotonic() - begin
    run.wait()
    if mark is None and run.returncode == 0:
        seen = time.monotonic() - begin
    return seen, "".join(said)


def start_row(args, clock, result):
    """Weights from a file that a first run of ours has written; the first round of all is not counted: it fills caches."""
    row = START
    result.update(must=row.must, aim=row.aim, rounds=[])
    with tempfile.TemporaryDirectory() as folder:
        job, _ = prepare(folder, row, 1)
        model = Path(folder) / "first" / "hf"
        made = work.zerod(work.arguments_of(job, [f"job.output_dir={folder}/first", "train.max_steps=1", "checkpoint.export=hf"]), clock)
        if made.returncode:
            raise work.Failed(f"zerod ended with {made.returncode}:\n{work.tail(made.stdout + made.stderr)}")
        text = job.read_text()
        at, end = text.index("[model.config]"), text.index("[data]")
        job.write_text(f"{text[:at]}[model]\npath = {json.dumps(str(model))}\n{text[end:]}")
        peer = [work.PYTHON, str(HERE / "peers" / "gpu_train.py"), "--config", json.dumps(row.config), "--model", str(model), "--seq", str(row.T),
                "--batch", str(row.B), "--tokens", str(row.B * row.T), "--steps", "1", "--eager"]
        for index in rounds(argparse.Namespace(rounds=args.rounds + 1), clock):
            settings = [f"job.output_dir={folder}/out-{index}", "train.max_steps=1"]
            ours, said = start_once(["zerod", *work.arguments_of(job, settings)], "step 1/", work.OURS)
            if ours is None:
                raise work.Failed(f"zerod told of no step:\n{work.tail(said)}")
            theirs, heard = start_once(peer, None)
            lines = [line for line in heard.splitlines() if line.startswith("{")]
            answer = json.loads(lines[-1]) if lines else {"failed": work.tail(heard)}
            if "tokens_per_second" not in answer:
                theirs, result["peer"] = None, answer
            result["rounds"].append({"ours_seconds": ours, "peer_seconds": theirs, "ratio": theirs and theirs / ours,
                                     "said": [line for line in said.splitlines() if "to the first step" in line]})
    counted = result["rounds"][1:] or result["rounds"]
    result["ours_seconds"] = work.median([r["ours_seconds"] for r in counted])
    result["peer_seconds"] = work.median([r["peer_seconds"] for r in counted])
    result["ratio"] = work.median([r["ratio"] for r in counted])


# --- programs of ours

def said_by(command, clock, env=None):
    try:
        said = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=clock.left(), env=env)
    except subprocess.TimeoutExpired as error:
        raise work.Failed(f"{Path(command[0]).name}: no time left") from error
    return said.returncode, said.stdout, said.stderr


def program(args, name, *arguments):
    path = Path(args.programs) / name
    if not path.exists():
        raise work.Failed(f"{path} was not built: ninja -C BUILD bench/{name}")
    return [path, *arguments]


def kernels_row(args, clock, result):
    size = ["bf16", "64", "256", "1"] if args.tiny else []
    code, said, errors = said_by(program(args, "bench_kernels_cuda", *size), clock, work.OURS)
    print(said, end="" if code else errors)
    result["said"] = [said]
    if code:
        raise work.Failed(f"bench_kernels_cuda ended with {code}:\n{work.tail(errors)}")


def adamw_row(args, clock, result):
    """Each round: ours, then the peers' program; its figures are medians already."""
    size = ["--millions", "1", "--rounds", "1"] if args.tiny else []
    result.update(must=1.0, aim="92 % of the copy with fp32 states, 85 % with 8-bit states", rounds=[])
    for _ in rounds(args, clock):
        code, said, errors = said_by(program(args, "bench_optim_cuda", *size), clock, work.OURS)
        print(said, end="" if code else errors)
        if code:
            raise work.Failed(f"bench_optim_cuda ended with {code}:\n{work.tail(errors)}")
        lines = re.findall(r"^(.+?) +(\d+)M elements +([\d.]+) ms +([\d.]+) GB/s +([\d.]+) %", said, re.M)
        ours = {name: {"elements_per_second": int(m) * 2 ** 20 / (float(ms) / 1e3) if float(ms) else None, "percent_of_copy": float(share)}
                for name, m, ms, _, share in lines}
        peer = work.peer_once("gpu_adamw.py", size, clock)
        print(json.dumps(peer))
        torch_rate = peer.get("torch fused, fp32 states", {}).get("elements_per_second")
        rate = ours.get("adamw", {}).get("elements_per_second")
        result["rounds"].append({"ours": ours, "peer": peer, "ratio": rate and torch_rate and rate / torch_rate})
    result["ratio"] = work.median([r["ratio"] for r in result["rounds"]])
    for name in ("adamw", "adamw_8bit"):
        result[f"{name}_percent_of_copy"] = work.median([r["ours"].get(name, {}).get("percent_of_copy") for r in result["rounds"]])


# --- paged states

def paged_entry(name, job, args, clock):
    """One optimizer: with room for everything, and with a limit that the run without paging is 20 % too large for."""
    row, settings = PAGED, [*PAGED.ours, f"optim.name={name}"]
    plain = name.replace("paged_", "").replace("_32bit", "")
    free = work.run_ours(job, settings, row.steps, row.warmup, clock)
    peer = "bnb-" + name.replace("adamw_", "").replace("adamw", "32bit")
    entry = {"name": name, "fitting": {"ours": free, "peer": work.run_peer(row, ["--optimizer", peer, *row.peer[2:]], row.steps, row.warmup, clock)}}
    planned = work.device_bytes(work.plan_of(job, [*PAGED.ours, f"optim.name={plain}"], clock), "")
    need, arena = planned["planned"], planned["arena"]
    limit = need - int(arena * (0.05 if args.tiny else 1 - 1 / 1.2))
    try:
        large = work.run_ours(job, [*settings, f"device.memory_limit={limit}"], row.steps, row.warmup, clock)
    except work.Failed as error:
        large = {"failed": str(error)}
    entry["too_large"] = {"need": need, "limit": limit, "ours": large, "peer": "not run: memory that is managed beyond what is free can hang a GPU"}
    return entry


def paged_row(args, clock, result):
    """States that page must be planned for and run in the smaller memory; the others must be refused there before they start."""
    result.update(must=PAGED.must, aim=PAGED.aim, entries=[])
    with tempfile.TemporaryDirectory() as folder:
        job, _ = prepare(folder, PAGED, PAGED.steps)
        for name in ("adamw", "paged_adamw_32bit", "adamw_8bit", "paged_adamw_8bit"):
            result["entries"].append(paged_entry(name, job, args, clock))
    seconds = {e["name"]: e["fitting"]["ours"]["step_seconds"] for e in result["entries"]}
    large = {e["name"]: e["too_large"]["ours"].get("step_seconds") for e in result["entries"]}
    result["paged_over_plain"] = {"32bit": seconds["paged_adamw_32bit"] / seconds["adamw"],
                                  "8bit": seconds["paged_adamw_8bit"] / seconds["adamw_8bit"]}
    result["too_large_seconds"] = large
    # the buffers that paging needs are larger than the states of a tiny model
    if not args.tiny and (large["paged_adamw_32bit"] is None or large["paged_adamw_8bit"] is None):
        raise work.Failed("paged states did not run where they are too large")


def fitted_row(args, clock, result):
    """As people begin: nothing is set but the limit; the first that --fit finds is run."""
    limit = "1GB" if args.tiny else "24GB"
    with tempfile.TemporaryDirectory() as folder:
        job, _ = prepare(folder, FITTED, args.steps or FITTED.steps)
        said = work.zerod(["plan", *work.arguments_of(job, []), "--world", "1", "--device-memory", limit, "--fit", "--format", "json"], clock)
        if said.returncode:
            raise work.Failed(f"zerod plan --fit ended with {said.returncode}:\n{work.tail(said.stdout + said.stderr)}")
        result["fit"] = json.loads(said.stdout)["fits"][0]["set"]
        settings = [*(f"{key}={value}" for key, value in result["fit"].items()), f"device.memory_limit={limit}"]
        ours = work.run_ours(job, settings, args.steps or FITTED.steps, FITTED.warmup, clock)
    result.update(ours=ours, ours_tokens_per_second=ours["tokens_per_second"], bytes=ours["bytes"])


def calibrate_row(args, clock, result):
    """Kept in the user's cache, for plans from now on; not that of --tiny."""
    said = work.zerod(["bench", "calibrate", "--seconds", "0.1" if args.tiny else "20", "--json"], clock)
    if said.returncode:
        raise work.Failed(f"zerod bench calibrate ended with {said.returncode}:\n{work.tail(said.stderr)}")
    result["calibration"] = json.loads(said.stdout)


def fp8_loss_row(args, clock, result):
    size = ["--steps", "3", "--seeds", "1"] if args.tiny else []
    if args.tiny:
        fields = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
        settings = [f"model.config.{key}={value}" for key, value in fields.items()]
        for setting in [*settings, "data.cutoff_len=32", "train.global_batch_size=2", "train.per_device_train_batch_size=2"]:
            size += ["--set", setting]
    with tempfile.TemporaryDirectory() as folder:
        code, said, errors = said_by([sys.executable, HERE / "fp8_loss.py", "zerod", "own", "--only", "scratch", "--set", "device.backend=cuda",
                                      "--out", folder, *size], clock, work.OURS)
    result["said"] = said.splitlines()
    result["percent_above_bf16"] = {mode: float(mean) for mode, mean in re.findall(r"^\| scratch \| (\w+) \|.* ([-+][\d.]+) % \|$", said, re.M)}
    if code or not result["percent_above_bf16"]:
        raise work.Failed(f"fp8_loss.py ended with {code}:\n{work.tail(errors)}")


def fit_row(args, clock, result):
    """No peers: the planned bytes of each training row beside its limit, or why it is refused."""
    result.update(rows={}, refused=[])
    for name, row in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            job, _ = prepare(folder, row, 0)
            try:
                plan = work.plan_of(job, row.ours, clock)
                planned, layout = work.device_bytes(plan, "")["planned"], plan["layout"]
                result["rows"][name] = {"planned": planned, "layout": layout}
                print(f"{name:20} {planned / 1e9:7.2f} GB of the device, checkpointing {layout['gradient_checkpointing']}")
            except work.Failed as error:
                result["rows"][name] = {"failed": str(error)}
                result["refused"].append(name)
                print(f"{name:20} {error}")
    if result["refused"]:
        print(f"{len(result['refused'])} of {len(ROWS)} rows do not fit here: {' '.join(result['refused'])}")


def table(path):
    """The last result of each row, one line each, as docs and reports want them."""
    last = {}
    for line in Path(path).read_text().splitlines() if Path(path).exists() else []:
        result = json.loads(line)
        last[result["row"]] = result
    shown = lambda value, form: format(value, form) if isinstance(value, (int, float)) else "-"
    columns = ["row", "ours", "peer", "ratio", "must", "llm.c", "TFLOP/s", "of bf16's peak", "step s", "planned s", "exposed s", "planned GB", "used GB",
               "differ %", "GPU"]
    print(f"| {' | '.join(columns)} |\n|" + "---|" * len(columns))
    for name, r in last.items():
        ours = r["rounds"][-1].get("ours", {}) if r.get("rounds") else r.get("ours", {})
        used, exposed = r.get("bytes", {}), ours.get("exposed_seconds")
        giga = lambda key: shown(used.get(key) and used[key] / 1e9, ".2f")
        cells = [name + " (tiny)" * r["tiny"] + " FAILED" * ("failed" in r), shown(r.get("ours_tokens_per_second") or r.get("ours_seconds"), ".5g"),
                 shown(r.get("peer_tokens_per_second") or r.get("peer_seconds"), ".5g"), shown(r.get("ratio"), ".3f"), str(r.get("must", "-")),
                 shown(r.get("llmc_ratio"), ".3f"), shown(ours.get("model_tflops"), ".4g"), shown(ours.get("mfu"), ".0%"),
                 shown(ours.get("step_seconds"), ".3g"), shown(ours.get("planned", {}).get("step_seconds"), ".3g"),
                 shown(exposed and sum(exposed.values()), ".2g"), giga("planned"), giga("used"), shown(used.get("difference_percent"), ".1f"),
                 r.get("gpu", "-")]
        print(f"| {' | '.join(cells)} |")


ROW_OF = {"adamw": adamw_row, "fitted": fitted_row, "paged": paged_row, "start": start_row, "kernels": kernels_row,
          "calibrate": calibrate_row, "fp8-loss": fp8_loss_row, "fit": fit_row}


class Parser(argparse.ArgumentParser):
    """Ends with 64 where it does not understand a word."""

    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(64, f"gpu.sh: {message}\n")


def main():
    parser = Parser(usage="bench/gpu.sh FOLDER [ROW] [OPTION]...; --help says more", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=[*ROWS, *OTHERS, "table"])
    parser.add_argument("--programs", required=True, help="folder of bench_* programs")
    parser.add_argument("--results", required=True, help="file that a JSON object for each row is appended to")
    parser.add_argument("--commit", default="", help="goes into the result")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a run, those that are not counted among them")
    parser.add_argument("--limit", type=float, default=470, help="seconds that the row may take")
    parser.add_argument("--llmc", help="llm.c's source, which is built here for the rows of GPT-2")
    parser.add_argument("--cudnn-frontend", help="cudnn-frontend's include folder, for llm.c")
    parser.add_argument("--tiny", action="store_true", help="models of nothing: tries the scripts, and measures nothing")
    parser.add_argument("--check", action="store_true", help="only look at the arguments")
    args = parser.parse_args()
    if args.check:
        return
    if not args.row:
        for name, row in ROWS.items():
            print(f"{name:20} T = {row.T}, {row.global_batch * row.T} tokens a step; must: {row.must} of the peer; aim: {row.aim}")
        for name, what in OTHERS.items():
            print(f"{name:20} {what}")
        return
    if args.row == "table":
        table(args.results)
        return
    if args.tiny:
        for row in [*ROWS.values(), PAGED, START, FITTED]:
            row.made_tiny()
        work.OURS["XDG_CACHE_HOME"] = work.SOCKETS.name
        PAGED.config.update(hidden_size=256, intermediate_size=512, vocab_size=2048)  # states beside which a workspace is small
    clock, begin = work.Clock(args.limit), time.monotonic()
    result = {"row": args.row, "commit": args.commit, "tiny": args.tiny, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if shutil.which("nvidia-smi"):
        smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
        result["gpu"] = smi.stdout.strip()
    try:
        if args.row in ROWS:
            train_row(args.row, args, clock, result)
        else:
            ROW_OF[args.row](args, clock, result)
    except work.Failed as error:
        if work.has_no_gpu(str(error)):
            print(f"{error}\ngpu.sh: zerod finds no GPU here that it can use; no result was written", file=sys.stderr)
            sys.exit(69)
        result["failed"] = str(error)
    result["seconds"] = round(time.monotonic() - begin, 1)
    with open(args.results, "a") as file:
        file.write(json.dumps(result) + "\n")
    if args.row != "fit":  # which has said it all
        print(json.dumps(result, indent=1))
    sys.exit(1 if "failed" in result or result.get("refused") else 0)


if __name__ == "__main__":
    main()
