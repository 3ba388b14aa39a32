#!/usr/bin/env python3
"""The GPT-2 124M training step in PyTorch's FSDP2 on gloo, to hold against zerod on as many ranks of the same machine.

    python bench/peers/fsdp_train.py                        2 ranks of one thread, bf16, T = 256
    python bench/peers/fsdp_train.py --ranks 2 --seq 1024 --reshard

The model, the optimizer and the work of a rank are those of torch_train.py; each layer and the whole are given to
fully_shard, with parameters gathered in bf16 and gradients reduced in fp32. Without --reshard parameters stay gathered
between forward and backward (stage 2), with it they are gathered twice (stage 3). Rows are of all ranks together. One
line: tokens/s of the median step of the slowest rank."""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torch_train


def shard(model, args):
    """The model of torch_train, cut over the ranks layer by layer."""
    mesh = init_device_mesh("cpu", (args.ranks,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=args.reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=args.reshard)
    return torch.optim.AdamW(
            [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
             {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}],
            lr=1e-4, betas=(0.9, 0.95), fused=True)


def run(rank, args, store):
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    torch.manual_seed(1)
    model = torch_train.Gpt2()
    optimizer = shard(model, args)
    rng = torch.Generator().manual_seed(1 + rank)
    seconds = []
    for step in range(args.warmup + args.steps):
        stream = torch.randint(torch_train.VOCABULARY, (args.batch // args.ranks, args.seq + 1), generator=rng)
        dist.barrier()
        start = time.perf_counter()
        loss = model(stream[:, :-1].contiguous(), stream[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        if step >= args.warmup:
            seconds.append(took.item())
    if rank == 0:
        step_seconds = statistics.median(seconds)
        print(json.dumps({
            "peer": f"fsdp2 on gloo, PyTorch {torch.__version__}", "dtype": "bf16", "reshard": args.reshard,
            "ranks": args.ranks, "threads": args.threads, "B": args.batch, "T": args.seq,
            "tokens_per_second": round(args.batch * args.seq / step_seconds, 2), "step_seconds": round(step_seconds, 4),
            "loss": round(loss.item(), 4)}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each (1)")
    parser.add_argument("--batch", type=int, default=4, help="rows of a step, over all ranks (4)")
    parser.add_argument("--seq", type=int, default=256, help="tokens of a row (256)")
    parser.add_argument("--reshard", action="store_true", help="free parameters between forward and backward")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones (2)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, of which the median counts (5)")
    args = parser.parse_args()
    if args.batch % args.ranks:
        parser.error(f"--batch {args.batch} is not a multiple of --ranks {args.ranks}")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (args, os.path.join(folder, "store")), nprocs=args.ranks)


if __name__ == "__main__":
    main()
