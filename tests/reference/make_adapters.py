#!/usr/bin/env python3
"""Adapters of the small models of tests/fixtures, as PEFT saves them, and what PEFT merges them into.

    python tests/reference/make_adapters.py         writes tests/fixtures/adapters/NAME/

Needs torch, transformers and peft; the build and the tests do not. Each folder gets

    adapter_config.json, adapter_model.safetensors      what save_pretrained writes; A, B and what else is trained are random
    merged.safetensors                                  the weights that changed, fp32, named as in the base: merge_and_unload
                                                        over the base in fp32

The base of NAME is tests/fixtures/BASE/model, BASE the part of NAME before a dash."""

import os
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
CASES = {
    "llama-patterns": dict(r=4, lora_alpha=6, target_modules=["q_proj", "down_proj"], modules_to_save=["embed_tokens"],
                           rank_pattern={"layers.0.self_attn.q_proj": 2}, alpha_pattern={"down_proj": 3, "proj": 5}),
    "gpt2-rslora": dict(r=3, lora_alpha=5, use_rslora=True, target_modules=["c_attn", "c_fc"], layers_to_transform=[0, 2],
                        modules_to_save=["ln_f"], fan_in_fan_out=True),
    "gpt2-dora": dict(r=2, use_dora=True, target_modules=r".*\.1\.(attn|mlp)\.c_proj", fan_in_fan_out=True),
    "qwen3-dora": dict(r=2, use_dora=True, target_modules=r".*\.[kv]_proj", exclude_modules=["layers.1.self_attn.v_proj"]),
    "llama_odd-head": dict(r=2, lora_alpha=2, target_modules=["lm_head", "o_proj"]),
}


def make(name, keys):
    torch.manual_seed(len(name))
    base = os.path.join(FIXTURES, name.split("-")[0], "model")
    out = os.path.join(FIXTURES, "adapters", name)
    shutil.rmtree(out, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **keys))
    with torch.no_grad():
        for p in adapted.parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn_like(p))
    adapted.peft_config["default"].base_model_name_or_path = "base"
    adapted.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))
    merged = adapted.merge_and_unload().state_dict()
    tied = model.config.tie_word_embeddings
    save_file({k: v.contiguous() for k, v in merged.items()
               if not (tied and k == "lm_head.weight") and not torch.equal(v, before[k])},
              os.path.join(out, "merged.safetensors"))


for case, keys in CASES.items():
    make(case, keys)
