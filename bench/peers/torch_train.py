#!/usr/bin/env python3
"""The training step of GPT-2 124M, or of a llama of its width, in PyTorch, beside bench/train_cpu on the same machine.

    python bench/peers/torch_train.py                       all four: fp32 and bf16, eager and compiled, T = 256 and 1024
    python bench/peers/torch_train.py --seq 256 --dtype fp32 --mode compile --family llama

The same work as ours: 12 layers, 768 wide, 12 heads (the llama: 4 for keys and values, SwiGLU of 2048, no biases),
vocabulary 50257, head tied to the embedding, random weights, B = 4 rows of random tokens, forward, backward, clipping at
1.0 and AdamW (fused) with weight decay on matrices. Attention is scaled_dot_product_attention, bf16 is autocast over
fp32 weights: what a PyTorch user who cares about speed writes.

One line a combination: tokens/s and model FLOP/s of the median step. FLOPs of a token are those of
model_flops_per_token in model/model.h: 6 for every weight of a matrix product (the head included, position and token
look-ups not) and 6 L T C for causal attention. On a CPU without bf16 instructions PyTorch's bf16 takes a hundred times
its fp32, so there it is skipped, and the line says so."""

import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 12, 768, 12, 50257, 1024
KV_WIDTH, INNER = 256, 2048  # of the llama


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.attn_out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, HEADS, C // HEADS).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
        shapes = {"q": (WIDTH, WIDTH), "k": (WIDTH, KV_WIDTH), "v": (WIDTH, KV_WIDTH), "o": (WIDTH, WIDTH),
                  "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH)}
        for name, (inputs, outputs) in shapes.items():
            self.add_module(name, nn.Linear(inputs, outputs, bias=False))

    def forward(self, x, turn):
        B, T, C = x.shape
        y = self.norm_1(x)
        q, k, v = (f(y).view(B, T, -1, C // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, C))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        half = WIDTH // HEADS // 2
        angle = torch.outer(torch.arange(POSITIONS), 1e4 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x, T = self.embedding(tokens), tokens.shape[1]

        def turn(x):
            low, high = x.chunk(2, dim=-1)
            return (x * self.cos[:T] + torch.cat((-high, low), dim=-1) * self.sin[:T]).to(x.dtype)

        for layer in self.layers:
            x = layer(x, turn)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))


FAMILIES = {"gpt2": Gpt2, "llama": Llama}


def flops_per_token(family, T):
    layer = {"gpt2": 12 * WIDTH * WIDTH, "llama": 2 * WIDTH * (WIDTH + KV_WIDTH) + 3 * WIDTH * INNER}[family]
    return 6 * (LAYERS * layer + VOCABULARY * WIDTH) + 6 * LAYERS * T * WIDTH


def cpu_has_bf16():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("flags"):
                flags = line.split()
                return "amx_bf16" in flags or "avx512_bf16" in flags
    return False


def measure(family, dtype, mode, B, T, warmup, steps):
    """Seconds of each measured step."""
    torch._dynamo.reset()  # compiled for this shape, not for "any T" because an earlier one differed
    torch.manual_seed(1)
    model = FAMILIES[family]()
    optimizer = torch.optim.AdamW(
            [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
             {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}],
            lr=1e-4, betas=(0.9, 0.95), fused=True)
    forward = torch.compile(model, dynamic=False) if mode == "compile" else model
    rng = torch.Generator().manual_seed(1)
    seconds = []
    for step in range(warmup + steps):
        stream = torch.randint(VOCABULARY, (B, T + 1), generator=rng)
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(stream[:, :-1].contiguous(), stream[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=4, help="rows of a step (4)")
    parser.add_argument("--seq", type=int, nargs="+", default=[256, 1024], help="tokens of a row (256 1024)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    parser.add_argument("--dtype", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--family", choices=FAMILIES, default="gpt2")
    parser.add_argument("--mode", nargs="+", choices=["eager", "compile"], default=["eager", "compile"])
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones (2)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps, of which the median counts (5)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--force-bf16", action="store_true", help="run bf16 also where the CPU has no instructions for it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {args.threads} threads, B = {args.batch}", file=sys.stderr)
    for T in args.seq:
        for dtype in args.dtype:
            if dtype == "bf16" and not cpu_has_bf16() and not args.force_bf16:
                print(f"T {T:5}  bf16: skipped, this CPU has no bf16 instructions", file=sys.stderr)
                continue
            for mode in args.mode:
                seconds = statistics.median(measure(args.family, dtype, mode, args.batch, T, args.warmup, args.steps))
                rate = args.batch * T / seconds
                row = {"peer": "pytorch", "family": args.family, "dtype": dtype, "mode": mode, "B": args.batch, "T": T,
                       "threads": args.threads, "tokens_per_second": round(rate, 2),
                       "gflop_per_second": round(rate * flops_per_token(args.family, T) / 1e9, 2),
                       "step_seconds": round(seconds, 4)}
                print(json.dumps(row) if args.json else
                      f"T {T:5}  {dtype}  {mode:8} {rate:9.1f} tokens/s {row['gflop_per_second']:8.1f} GFLOP/s "
                      f"{seconds:8.3f} s a step", flush=True)


if __name__ == "__main__":
    main()
