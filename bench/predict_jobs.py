"""The jobs of predict.py: models of 5 to 60 million parameters, so that a step takes a fraction of a second."""

MODELS = {
    # name: family, hidden, layers, heads, inside, vocabulary, tied
    "llama-9M": ("llama", 256, 6, 4, 704, 8192, False),
    "llama-22M": ("llama", 512, 6, 8, 1408, 4096, False),
    "llama-55M": ("llama", 768, 6, 12, 2048, 8192, False),
    "qwen-15M": ("qwen3", 384, 6, 6, 1024, 8192, True),
    "gpt2-30M": ("gpt2", 384, 6, 6, 1536, 50257, True),
    "gpt2-124M": ("gpt2", 768, 12, 12, 3072, 50257, True),
    "llama-124M": ("llama", 768, 12, 12, 2048, 50257, True),
    "gpt2-10M": ("gpt2", 320, 6, 5, 1280, 8192, True),
}

LORA = {"lora.enabled": True, "lora.r": 16}
NONE = {"train.gradient_checkpointing": "none"}
FULL = {"train.gradient_checkpointing": "full"}
HOST = {"offload.optimizer": "cpu"}
DISK = {"offload.optimizer": "nvme", "offload.nvme_path": "nvme"}


def row(model, world, B, T, A=1, *settings, **keys):
    sets = {"train.per_device_train_batch_size": B, "data.cutoff_len": T, "train.gradient_accumulation_steps": A}
    for each in (NONE, *settings, {key.replace("__", "."): value for key, value in keys.items()}):
        sets.update(each)
    return model, world, sets


JOBS = [
    # one rank
    row("llama-9M", 1, 4, 256),
    row("llama-9M", 1, 1, 64),
    row("llama-22M", 1, 4, 128, 1),
    row("llama-55M", 1, 2, 128, 1),
    row("gpt2-30M", 1, 2, 128, 1),
    row("gpt2-10M", 1, 4, 256, 1),
    row("qwen-15M", 1, 4, 128, 1),
    row("llama-22M", 1, 2, 128, 3),
    row("llama-22M", 1, 1, 1024, 1, train__dtype="fp32"),
    row("llama-22M", 1, 2, 128, 2, train__dtype="fp32"),
    row("gpt2-10M", 1, 4, 128, 1, train__dtype="fp32"),
    row("gpt2-30M", 1, 1, 256, 1, FULL),
    row("llama-22M", 1, 4, 128, 1, FULL),
    row("llama-22M", 1, 4, 128, 1, train__gradient_checkpointing="selective"),
    row("qwen-15M", 1, 4, 128, 2, train__gradient_checkpointing="sqrt"),
    row("llama-55M", 1, 2, 64, 1, optim__name="adamw_8bit"),
    row("llama-55M", 1, 2, 64, 1, optim__name="lion"),
    row("llama-22M", 1, 2, 64, 1, optim__name="adam_mini"),
    row("llama-22M", 1, 4, 128, 1, LORA),
    row("llama-55M", 1, 2, 128, 1, LORA, lora__quantize_base="nf4"),
    row("gpt2-30M", 1, 2, 128, 1, LORA, train__dtype="fp32"),
    row("llama-22M", 1, 4, 128, 1, HOST),
    row("llama-55M", 1, 2, 64, 1, HOST, train__dtype="fp32"),
    row("llama-55M", 1, 2, 64, 1, HOST, optim__name="adamw_8bit"),
    row("llama-22M", 1, 2, 128, 2, HOST, offload__clipping="undo", optim__max_grad_norm=1000),
    row("llama-22M", 1, 2, 128, 2, HOST, {"offload.params": "cpu"}),
    row("llama-22M", 1, 4, 128, 1, HOST, FULL, {"offload.activations": "cpu"}),
    row("llama-22M", 1, 4, 128, 1, DISK),
    row("llama-55M", 1, 4, 128, 1, DISK, optim__name="adamw_8bit"),
    # two
    row("llama-22M", 2, 2, 128, 1, zero__stage=0),
    row("llama-22M", 2, 2, 128, 1, zero__stage=1),
    row("llama-22M", 2, 2, 128, 2, zero__stage=2),
    row("llama-22M", 2, 2, 128, 1, zero__stage=3),
    row("llama-55M", 2, 1, 128, 2, zero__stage=3, train__dtype="fp32"),
    row("gpt2-30M", 2, 1, 128, 1, zero__stage=2),
    row("qwen-15M", 2, 2, 128, 1, FULL, zero__stage=3),
    row("llama-22M", 2, 2, 128, 1, HOST, zero__stage=2),
    row("llama-22M", 2, 2, 128, 1, HOST, {"offload.params": "cpu"}, zero__stage=3),
    row("llama-22M", 2, 2, 128, 1, LORA, zero__stage=3),
    row("llama-9M", 2, 2, 256, 1, DISK, zero__stage=1),
]

# Of each of these --fit makes candidates: model, ranks, length, samples of a step on a rank, and what is the job's.
FITS = [
    row("llama-22M", 1, 1, 128, 4),
    row("llama-22M", 1, 1, 64, 8, train__dtype="fp32"),
    row("gpt2-10M", 1, 1, 128, 8),
    row("llama-55M", 1, 1, 128, 4),
    row("qwen-15M", 1, 2, 128, 2),
    row("llama-22M", 1, 1, 128, 4, LORA),
    row("llama-22M", 2, 1, 128, 4, zero__stage=1),
    row("llama-55M", 2, 1, 64, 4, zero__stage=1),
    row("gpt2-10M", 2, 1, 128, 4, zero__stage=1, train__dtype="fp32"),
    row("qwen-15M", 2, 1, 128, 4, zero__stage=1),
]


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def model_config(name):
    family, hidden, layers, heads, inside, vocabulary, tied = MODELS[name]
    if family == "gpt2":
        return {"model_type": family, "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": inside, "n_positions": 1024,
                "vocab_size": vocabulary}
    config = {"model_type": family, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": heads, "intermediate_size": inside, "vocab_size": vocabulary,
              "max_position_embeddings": 1024, "tie_word_embeddings": tied}
    if family == "qwen3":
        config["head_dim"] = hidden // heads
    return config


def job_file(job, steps):
    """Of tokens.bin, beside it."""
    model, _, sets = job
    sections = {}
    for key, value in sets.items():
        section, name = key.split(".")
        sections.setdefault(section, {})[name] = value
    sections.setdefault("train", {}).setdefault("dtype", "bf16")
    sections["train"]["max_steps"] = steps
    sections["checkpoint"] = {"save_strategy": "no", "export": "none"}
    sections["log"] = {"logging_steps": 1, "step_breakdown": True}
    sections["job"] = {"output_dir": "out"}
    sections.setdefault("device", {})["backend"] = "cpu"
    text = "schema = 1\n"
    for section, values in [("model.config", model_config(model)), *sections.items()]:
        text += f"[{section}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in values.items())
    return text + '[[data.train]]\npath = "tokens.bin"\nformat = "nanogpt"\n'
