/* plan_job.h - a small job to plan: a llama of so many layers, on the CPU. The
 * caller gives its model.config back. */
#pragma once

#include "train/job/options.h"

static inline struct train_job plan_job(
        int hidden, int intermediate, int layers, int tokens)
{
    struct train_job job = train_job_default();
    job.model.config = json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama",
            "hidden_size", hidden, "num_hidden_layers", layers,
            "num_attention_heads", 4, "intermediate_size", intermediate,
            "vocab_size", 1000, "max_position_embeddings", 256,
            "tie_word_embeddings", 0);
    job.data.cutoff_len = tokens;
    job.device.backend = DEVICE_CPU;
    job.device.cpu_threads = 1;
    job.control.socket = CONTROL_NONE;
    return job;
}
