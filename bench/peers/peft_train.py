#!/usr/bin/env python3
"""A step of bench/adapters.py in transformers and PEFT: python peft_train.py gpt2|llama full|lora|dora B T STEPS THREADS

Prints the median seconds of a step without the first two. Attention is scaled_dot_product_attention, AdamW is fused."""

import statistics
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY = 50257


def make(model):
    torch.manual_seed(1)
    if model == "gpt2":
        config = GPT2Config(vocab_size=VOCABULARY, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False)
        return GPT2LMHeadModel(config)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                         num_key_value_heads=12, max_position_embeddings=1024, tie_word_embeddings=True, use_cache=False)
    return LlamaForCausalLM(config)


def main():
    name, mode = sys.argv[1:3]
    B, T, steps, threads = map(int, sys.argv[3:7])
    torch.set_num_threads(threads)
    model = make(name)
    if mode != "full":
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear",
                                                 use_dora=mode == "dora", fan_in_fan_out=name == "gpt2"))
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-4, fused=True)
    seconds = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (B, T))
        start = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    print(statistics.median(seconds[2:]))


if __name__ == "__main__":
    main()
