#!/usr/bin/env python3
"""A training step of transformers + torch.compile on one GPU, to hold against zerod's on the same machine (bench/gpu.sh).

    python bench/peers/gpu_train.py --config '{"model_type": "gpt2", ...}' --seq 1024 --batch 64 --tokens 524288

What a PyTorch user who cares about speed writes: bf16, scaled_dot_product_attention, torch.compile, a fused AdamW, clipping
at 1.0. fp32 weights under autocast with torch's own AdamW; bf16 weights with 8-bit states and with offload, as people do.
Optimizers: torch (fused), bnb8 (bitsandbytes AdamW8bit), bnb-32bit, bnb-8bit, bnb-paged_32bit, bnb-paged_8bit, ao-offload
(torchao's CPUOffloadOptimizer over torch's fused CPU AdamW, gradients offloaded). One JSON object at the end."""

import argparse
import json
import statistics
import time

import torch


def optimizer_of(name, model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    rate = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    if name == "torch":
        return torch.optim.AdamW(parameters, fused=True, **rate)
    if name == "ao-offload":
        from torchao.optim import CPUOffloadOptimizer
        return CPUOffloadOptimizer(parameters, torch.optim.AdamW, offload_gradients=True, fused=True, **rate)
    import bitsandbytes as bnb
    kinds = {"bnb8": bnb.optim.AdamW8bit, "bnb-32bit": bnb.optim.AdamW32bit, "bnb-8bit": bnb.optim.AdamW8bit,
             "bnb-paged_32bit": bnb.optim.PagedAdamW32bit, "bnb-paged_8bit": bnb.optim.PagedAdamW8bit}
    return kinds[name](parameters, **rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json as one argument")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences of a micro-batch")
    parser.add_argument("--tokens", type=int, required=True, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the counted ones")
    parser.add_argument("--optimizer", default="torch")
    parser.add_argument("--cap", type=float, help="GB of device memory that may be used")
    parser.add_argument("--checkpointing", action="store_true")
    args = parser.parse_args()
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    device = torch.device("cuda")
    if args.cap:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.cap * 1e9 / total))
    fields = json.loads(args.config)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    low = args.optimizer != "torch"
    with device:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", torch_dtype=torch.bfloat16 if low else torch.float32)
    model.config.use_cache = False
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = optimizer_of(args.optimizer, model)
    forward = torch.compile(model)
    accumulation = max(1, args.tokens // (args.batch * args.seq))
    tokens = torch.randint(config.vocab_size, (args.steps + args.warmup, accumulation, args.batch, args.seq))
    seconds = []
    for step in range(args.warmup + args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for micro in range(accumulation):
            batch = tokens[step, micro].to(device, non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=not low):
                loss = forward(input_ids=batch, labels=batch).loss / accumulation
            loss.backward()
        if args.optimizer != "ao-offload":  # it has no clipping with gradients offloaded
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        torch.cuda.synchronize()
        if step >= args.warmup:
            seconds.append(time.perf_counter() - begin)
    taken = accumulation * args.batch * args.seq
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "optimizer": args.optimizer,
                      "tokens_per_second": taken / statistics.median(seconds), "step_seconds": statistics.median(seconds),
                      "peak_bytes": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
