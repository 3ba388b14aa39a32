#!/usr/bin/env python3
"""A training step of transformers + torch.compile on one GPU, to hold against zerod's on the same machine (bench/gpu.sh).

    python bench/peers/gpu_train.py --config '{"model_type": "gpt2", ...}' --seq 1024 --batch 64 --tokens 524288

What a PyTorch user who cares about speed writes: bf16, scaled_dot_product_attention, torch.compile, a fused AdamW, clipping
at 1.0, no dropout, GPT-2's vocabulary padded to a multiple of 128. fp32 weights under autocast with torch's own AdamW;
bf16 weights with the others, as people do.

--optimizer takes names with commas, of which the first whose package is here is used:
    torch, torch-bf16                      torch's fused AdamW over fp32 or bf16 weights
    bnb-8bit, bnb-32bit, bnb-paged_8bit, bnb-paged_32bit     bitsandbytes
    ao-8bit                                torchao's AdamW8bit
    ao-offload                             torchao's CPUOffloadOptimizer, gradients offloaded: one micro-batch a step
    host                                   the same written out (gpu_host_adamw.py), which adds up micro-batches

--adapter lora, dora or qlora: PEFT's, r = 16 on all linear modules, over bf16 weights under autocast; of qlora the linear weights of
the layers are bitsandbytes' nf4, nested.

One JSON object on the last line: the figures, or {"missing": package}, or {"failed": why} with the exit code 0 as well.
Without a GPU everything runs on the CPU, to try the script; "device" says so."""

import argparse
import json
import statistics
import time

try:
    import torch
    import transformers
except ImportError as error:
    print(json.dumps({"missing": error.name}))
    raise SystemExit(0)

RATE = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def optimizer_of(name, model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name in ("torch", "torch-bf16"):
        return torch.optim.AdamW(parameters, fused=True, **RATE)
    if name == "host":
        from gpu_host_adamw import HostAdamW
        return HostAdamW(parameters, RATE)
    if name == "ao-offload":
        from torchao.optim import CPUOffloadOptimizer
        return CPUOffloadOptimizer(parameters, torch.optim.AdamW, offload_gradients=True, fused=True, **RATE)
    if name == "ao-8bit":
        from torchao.optim import AdamW8bit
        return AdamW8bit(parameters, **RATE)
    import bitsandbytes as bnb
    kinds = {"bnb-32bit": bnb.optim.AdamW32bit, "bnb-8bit": bnb.optim.AdamW8bit,
             "bnb-paged_32bit": bnb.optim.PagedAdamW32bit, "bnb-paged_8bit": bnb.optim.PagedAdamW8bit}
    return kinds[name](parameters, **RATE)


def quantize(model, device):
    """The layers' linear modules become bitsandbytes' in nf4, one at a time."""
    import bitsandbytes as bnb
    for parent in list(model.base_model.modules()):
        for name, module in list(parent.named_children()):
            if type(module) is not torch.nn.Linear:
                continue
            coded = bnb.nn.Linear4bit(module.in_features, module.out_features, module.bias is not None, compute_dtype=torch.bfloat16,
                                      compress_statistics=True, quant_type="nf4", device="meta")
            coded.weight = bnb.nn.Params4bit(module.weight.data.cpu(), requires_grad=False, compress_statistics=True, quant_type="nf4")
            coded.bias = module.bias
            setattr(parent, name, coded.to(device))
    model.is_loaded_in_4bit = True


def with_adapter(args, model, device):
    from peft import LoraConfig, get_peft_model
    if args.adapter == "qlora":
        quantize(model, device)
    config = LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear", use_dora=args.adapter == "dora",
                        fan_in_fan_out=model.config.model_type == "gpt2")
    model = get_peft_model(model, config)
    if args.checkpointing:
        model.enable_input_require_grads()
    return model


def first_optimizer(names, model):
    """The name and the optimizer; {"missing": ..} instead of the second where no package is here."""
    missing = None
    for name in names.split(","):
        try:
            return name, optimizer_of(name, model)
        except ImportError as error:
            missing = missing or error.name
        except AssertionError:  # torchao's on a CPU
            missing = missing or "a GPU"
    return None, {"missing": missing}


def make_model(args, device, low):
    dtype = torch.bfloat16 if low else torch.float32
    if args.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa", dtype=dtype).to(device)
    else:
        fields = json.loads(args.config)
        kind = fields.pop("model_type")
        if kind == "gpt2":
            fields["vocab_size"] = -(-fields["vocab_size"] // 128) * 128
        config = transformers.AutoConfig.for_model(kind, **fields)
        with device:
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attn_pdrop"):
            module.attn_pdrop = 0.0
    for key in ("attn_pdrop", "resid_pdrop", "embd_pdrop"):
        if hasattr(model.config, key):
            setattr(model.config, key, 0.0)
    model.config.use_cache = False
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def head_loss(hidden, weight, targets):
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, weight).float(), targets, reduction="sum")


def loss_of(args, model, compiled):
    """A function of (batch, seq) tokens. With --chunks the logits of a chunk of tokens at a time, made again backwards."""
    if not args.chunks:
        return lambda batch: compiled(input_ids=batch, labels=batch).loss
    chunk_loss = head_loss if args.eager else torch.compile(head_loss)

    def chunked(batch):
        hidden = compiled(input_ids=batch).last_hidden_state[:, :-1].flatten(0, 1)
        targets, weight = batch[:, 1:].flatten(), model.get_output_embeddings().weight
        size, total = -(-len(targets) // args.chunks), 0.0
        for at in range(0, len(targets), size):
            total = total + torch.utils.checkpoint.checkpoint(
                chunk_loss, hidden[at:at + size], weight, targets[at:at + size], use_reentrant=False)
        return total / len(targets)
    return chunked


def train(args, device):
    names = args.optimizer.split(",")
    low = names != ["torch"]
    model = make_model(args, device, low)
    if args.adapter:
        try:
            model = with_adapter(args, model, device)
        except ImportError as error:
            return {"missing": error.name}
    name, optimizer = first_optimizer(args.optimizer, model)
    if not name:
        return optimizer
    inner = model.base_model if args.chunks else model
    compute_loss = loss_of(args, model, inner if args.eager else torch.compile(inner))
    accumulation = max(1, args.tokens // (args.batch * args.seq))
    if name == "ao-offload" and accumulation > 1:
        return {"failed": "torchao's offloaded gradients are of one micro-batch"}
    vocabulary = json.loads(args.config)["vocab_size"]
    clips = name not in ("ao-offload", "host")  # their gradients have left before the norm is known
    tokens = torch.randint(vocabulary, (args.steps, accumulation, args.batch, args.seq))
    seconds, loss = [], None
    for step in range(args.steps):
        begin = time.perf_counter()
        for micro in range(accumulation):
            batch = tokens[step, micro].to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=not low or bool(args.adapter)):
                loss = compute_loss(batch) / accumulation
            loss.backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    counted = seconds[args.warmup:] or seconds
    taken = accumulation * args.batch * args.seq
    result = {"torch": torch.__version__, "transformers": transformers.__version__, "device": device.type, "optimizer": name,
              "batch": args.batch, "accumulation": accumulation, "clips": clips,
              "tokens_per_second": taken / statistics.median(counted), "step_seconds": statistics.median(counted),
              "first_step_seconds": seconds[0]}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        result.update(peak_bytes=torch.cuda.max_memory_reserved(), allocated_bytes=torch.cuda.max_memory_allocated(), used_bytes=total - free)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json as one argument")
    parser.add_argument("--model", help="a folder whose weights are read, else they are random")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences of a micro-batch")
    parser.add_argument("--tokens", type=int, required=True, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2, help="steps of these that are not counted")
    parser.add_argument("--optimizer", default="torch")
    parser.add_argument("--adapter", choices=["lora", "dora", "qlora"])
    parser.add_argument("--cap", type=float, help="bytes of device memory that may be used")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--chunks", type=int, default=0, help="parts that the tokens of the loss are cut into")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.cap and device.type == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, args.cap / total))
    try:
        result = train(args, device)
    except torch.OutOfMemoryError as error:
        result = {"failed": "out of memory", "batch": args.batch, "said": str(error)[:300]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
