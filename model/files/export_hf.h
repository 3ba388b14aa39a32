/* export_hf.h - exports a folder that transformers loads. */
#pragma once

#include "base/file/json.h"
#include "kernels/quant/quant.h"
#include "model/weights.h"

struct hf_export_job {
    const char *dir; /* destination */
    const struct model_config *config;
    const struct param_table *table;
    enum dtype dtype;         /* element type of the files */
    uint64_t max_shard_bytes; /* 5 GB; a larger tensor gets its own file */
    const char *copy_from;    /* copy config.json, generation_config and
                                 tokenizer files from here; NULL: config.json is
                                 written from config->json */
    bool file_prefix;         /* hf_name_in_files */
    const char *others_from;  /* copy vision tensors from here, for a part of a
                                 multimodal model; NULL: none */
};

/* Writes a folder that transformers loads: config.json, tokenizer files,
 * model.safetensors (or shards and an index), in pieces of bounded size. Writes
 * `dir`.tmp and renames it; replaces an existing `dir` only if we wrote it
 * (else ZD_ERR_CREATE). Several processes may share the work: one begins, then
 * each writes one of `parts` parts of about equal size from `source`, and after
 * all have finished, one ends. Only then the new `dir` exists. */
enum export_step {
    EXPORT_BEGIN = 1,
    EXPORT_PART = 2,
    EXPORT_END = 4,
    EXPORT_ALL = 7
};
enum zd_status weights_export(
        const struct hf_export_job *job, enum export_step steps,
        const struct weight_source *source, int part, int parts);

struct quantize_options {
    enum quant_format format; /* QUANT_NF4 or QUANT_INT8 */
    bool double_quant;        /* nf4: absmax in 8 bits too */
};

/* Exports to a single file: quantizes the layers' linear weights
 * (model/quantized/quantized.h) in blocks of 64 or by rows, from the values of
 * `source`; other tensors are in job->dtype, which is also the quant_state's.
 * GPT-2's Conv1D weights are transposed to (out, in), as in bitsandbytes.
 *
 * Memory: the largest weight, quantized. With double_quant each is quantized
 * twice, because its offset is part of a text whose length is listed first. */
enum zd_status weights_export_quantized(
        const struct hf_export_job *job, const struct weight_source *source,
        const struct quantize_options *quantize);

/* Could a model or an adapter be written to `dir` now? Makes the folder and
 * removes it again. ZD_ERR_CREATE as above. */
enum zd_status weights_export_check(const char *dir, bool is_adapter);
