#!/usr/bin/env python3
"""What a job takes: by DeepSpeed's estimators, by accelerate's, by zerod's plan, and measured. Ten jobs, as the table of docs/measured/plan.md.

    bench/estimates.py ZEROD [--only WORD]      five jobs are run here (one step each, 9 GB of memory at most); the others were measured elsewhere
    bench/estimates.py --check                  the formulas of DeepSpeed that stand here, against the package that is installed

The estimators want Python with torch, transformers and accelerate: of this Python, or there is no figure. DeepSpeed's are
formulas of two functions, estimate_zero2_model_states_mem_needs (deepspeed/runtime/zero/stage_1_and_2.py) and
estimate_zero3_model_states_mem_needs (stage3.py), which its documentation explains
(https://deepspeed.readthedocs.io/en/latest/memory.html). accelerate's are those of `accelerate estimate-memory`, "Training using
Adam" at its peak."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gpu_rows
import gpu_work as work

GIB = 1 << 30
LLAMA = dict(gpu_rows.LLAMA, rope_theta=10000.0)
MODELS = {
    "gpt2": gpu_rows.MODELS["gpt2-124m"],
    "gpt2-medium": dict(gpu_rows.GPT2, n_embd=1024, n_layer=24, n_head=16),
    "qwen3-0.6b": dict(gpu_rows.MODELS["qwen3-8b"], hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                       tie_word_embeddings=True),
    "llama-1b": gpu_rows.MODELS["llama-1b"],
    "llama-7b": dict(LLAMA, vocab_size=32000, max_position_embeddings=4096, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                     num_attention_heads=32, num_key_value_heads=32, tie_word_embeddings=False),
    "llama-70b": dict(gpu_rows.LLAMA, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64,
                      num_key_value_heads=8, tie_word_embeddings=False),
}
OFFLOADED = ["zero.stage=3", "offload.optimizer=cpu", "offload.params=cpu"]


class Job:
    """settings: of zerod. measured: bytes of the device that someone has seen, and who; None: it is run here."""

    def __init__(self, name, config, T, B, world=1, settings=(), dtype="bf16", on_gpu=False, measured=None, source=""):
        self.name, self.config, self.T, self.B, self.global_batch = name, config, T, B, B * world
        self.world, self.settings, self.dtype, self.on_gpu = world, list(settings), dtype, on_gpu
        self.measured, self.source = measured, source

    def has(self, setting):
        return setting in self.settings


def of_row(title, name, measured):
    """A row of bench/gpu_rows.py that ran on an H100."""
    row = gpu_rows.ROWS[name]
    job = Job(title, row.config, row.T, row.B, 1, row.ours, on_gpu=True, measured=measured, source="zerod, H100, by the driver (gpu.md)")
    job.global_batch = row.global_batch
    return job


JOBS = [
    Job("GPT-2 124M, fp32, 1 rank, 2 x 512", MODELS["gpt2"], 512, 2, settings=["train.dtype=fp32"], dtype="fp32"),
    Job("GPT-2 355M, 2 ranks, stage 2, 1 x 256", MODELS["gpt2-medium"], 256, 1, 2, ["zero.stage=2"]),
    Job("GPT-2 355M, 2 ranks, stage 3, all on the host, 1 x 256", MODELS["gpt2-medium"], 256, 1, 2, OFFLOADED),
    Job("Qwen3 0.6B, LoRA, 1 x 256", MODELS["qwen3-0.6b"], 256, 1, settings=["lora.enabled=true"]),
    Job("Llama 3.2 1B, QLoRA in nf4, 1 x 256", MODELS["llama-1b"], 256, 1, settings=["lora.enabled=true", "lora.quantize_base=nf4"]),
    of_row("GPT-2 124M, 64 x 1024", "gpt2-124m", 23.04e9),
    of_row("Llama 3.2 1B, AdamW in 8 bits, 8 x 4096", "llama-1b", 58.00e9),
    of_row("Llama 3.1 8B below 24 GB, masters, states and activations on the host, 2 x 8192", "llama-8b-24gb", 23.25e9),
    Job("Llama 7B, 4 GPUs, stage 3, all on the host, 1 x 2048 (not stated there)", MODELS["llama-7b"], 2048, 1, 4, OFFLOADED, on_gpu=True,
        measured=21272 * (1 << 20), source="DeepSpeed (its issue 4527)"),
    Job("Llama 70B, 8 GPUs, stage 3, all on the host, 1 x 1024", MODELS["llama-70b"], 1024, 1, 8,
        OFFLOADED + ["train.gradient_checkpointing=full"], on_gpu=True, measured=27e9, source="DeepSpeed (LLaMA-Factory's issue 7282)"),
]


# --- their estimates

def deepspeed_stage2(parameters, ranks, offloads):
    """Bytes of the host of a node, and of a GPU."""
    if offloads:
        return 1.5 * parameters * max(4 * ranks, 16), 2 * parameters
    return 1.5 * parameters * 4 * ranks, 2 * parameters + 18 * parameters // ranks


def deepspeed_stage3(parameters, largest, ranks, offloads, offloads_parameters):
    if offloads_parameters:
        return 1.5 * parameters * 18, 4 * largest
    if offloads:
        return 1.5 * parameters * 16, 4 * largest + 2 * parameters // ranks
    return 1.5 * largest * 4 * ranks, 4 * largest + 18 * parameters // ranks


def estimates(job):
    """DeepSpeed's of a node's host and of a GPU, accelerate's of a GPU; None where this Python lacks what they want."""
    try:
        from accelerate import init_empty_weights
        from accelerate.commands.estimate import estimate_training_usage
        from accelerate.utils.modeling import calculate_maximum_sizes
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        return None
    config = dict(job.config)
    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    model.tie_weights()
    parameters = sum({id(p): p.numel() for p in model.parameters()}.values())
    largest = max(sum(p.numel() for p in module.parameters(recurse=False)) for module in model.modules())
    offloads, offloads_parameters = job.has("offload.optimizer=cpu"), job.has("offload.params=cpu")
    host, gpu = (deepspeed_stage3(parameters, largest, job.world, offloads, offloads_parameters) if job.has("zero.stage=3")
                 else deepspeed_stage2(parameters, job.world, offloads))
    usage = estimate_training_usage(calculate_maximum_sizes(model)[0], {"fp32": "float32", "bf16": "bfloat16"}[job.dtype])
    return host, gpu, max(usage.values())


def check():
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as stage3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as stage2
    bad = 0
    for ranks in (1, 2, 8):
        for offloads in (False, True):
            theirs, ours = stage2(10**9, ranks, 1, offloads), deepspeed_stage2(10**9, ranks, offloads)
            bad += tuple(theirs) != tuple(ours)
            for both in (False, True):
                theirs = stage3(10**9, 10**7, ranks, 1, offloads, both and offloads)[:2]
                bad += tuple(theirs) != tuple(deepspeed_stage3(10**9, 10**7, ranks, offloads, both and offloads))
    print(f"{bad} of 18 figures differ from the package's")
    return bad > 0


# --- ours

def arguments(job):
    words = ["device.cpu_threads=1", "control.socket=none", *job.settings] + (["device.backend=cuda", "model.attn=own"] if job.on_gpu else [])
    return [word for each in words for word in ("--set", each)]


def arenas(plan, which):
    bytes_ = {arena["name"]: arena[which] for arena in plan["ranks"][0]["arenas"]}
    return bytes_["device"], bytes_["host"] + bytes_["pinned"]


def planned(zerod, file, job):
    """Bytes of a rank's device, with libraries, and of its host."""
    said = subprocess.run([zerod, "plan", "--job", file, "--world", str(job.world), "--format", "json", "--host-memory", "1000TB", *arguments(job)],
                          capture_output=True, text=True)
    if said.returncode:
        raise work.Failed(said.stderr)
    plan = json.loads(said.stdout)
    device, host = arenas(plan, "planned_bytes")
    return device + plan.get("context_bytes", 0), host


def run(zerod, file, job):
    """Bytes that a rank takes of the device and of the host, and the most that a process had resident."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    ranks = ["mpirun", "--oversubscribe", "-np", str(job.world)] if job.world > 1 else []
    with open(file.parent / "said", "w") as said:
        child = subprocess.Popen([*ranks, zerod, "--job", file, "-q", "--set", f"job.output_dir={file.parent}/out", "--set", "train.max_steps=1",
                                  *arguments(job)], stdout=said, stderr=said, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise work.Failed((file.parent / "said").read_text())
    plan = json.loads((file.parent / "out" / "plan.json").read_text())
    return *arenas(plan, "taken_bytes"), usage.ru_maxrss * 1024


def gib(*sizes):
    return " + ".join(f"{size / GIB:.2f}" for size in sizes)


def line(zerod, folder, job):
    tokens = folder / "tokens.bin"
    work.write_tokens(tokens, job.config["vocab_size"], job.global_batch * (job.T + 1) * 4)
    file = work.write_job(folder, SimpleNamespace(config=job.config, T=job.T, B=job.B, global_batch=job.global_batch, documents=None), tokens)
    theirs = estimates(job)
    plan = planned(zerod, file, job)
    if job.measured is None:
        *taken, resident = run(zerod, file, job)
        measured = f"{gib(*taken)} taken; resident {gib(resident)}"
    else:
        measured = f"{gib(job.measured)}: {job.source}"
    told = f"{gib(theirs[1], theirs[0])} | {gib(theirs[2])}" if theirs else "- | -"
    return f"| {job.name} | {told} | {gib(*plan)} | {measured} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zerod", nargs="?")
    parser.add_argument("--only", default="", help="jobs with this in their name")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    if asked.check:
        return check()
    if not asked.zerod:
        parser.error("which zerod?")
    print("| job (bf16 unless stated; micro-batch x tokens) | DeepSpeed's estimator: a GPU + the node's host | accelerate | zerod's plan: a rank's "
          "device + host | measured |\n|---|---|---|---|---|")
    for job in JOBS:
        if asked.only in job.name:
            with tempfile.TemporaryDirectory() as folder:
                print(line(os.path.realpath(asked.zerod), Path(folder), job), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
