/* export_hf.h - a folder that transformers loads. */
#pragma once

#include "base/file/json.h"
#include "kernels/quant/quant.h"
#include "model/weights.h"

struct hf_export_job {
    const char *dir; /* where to */
    const struct model_config *config;
    const struct param_table *table;
    enum dtype dtype;         /* element type of the files */
    uint64_t max_shard_bytes; /* 5 GB; a larger tensor gets its own file */
    const char *copy_from;    /* folder whose config.json, generation_config,
                                 tokenizer files are copied; NULL: none, then
                                 config.json is written from config->json */
    bool file_prefix;         /* hf_name_in_files */
    const char *others_from; /* folder whose tensors of vision are copied, where
                                the model is a part of a multimodal one; NULL:
                                none */
};

/* Write a directory that transformers loads: config.json, tokenizer files,
 * model.safetensors (or shards and an index), streaming in pieces of bounded
 * size. Made as `dir`.tmp and renamed; an existing `dir` that we wrote before
 * is replaced, anything else there is ZD_ERR_CREATE. By several processes: one
 * begins, then each writes its part (of `parts`, of about as many bytes each,
 * from `source`), and when all have, one ends it. Only then is there a new
 * `dir`. */
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

/* All of it, in one file: the layers' linear weights are quantized
 * (model/quantized/quantized.h) in blocks of 64 or by rows, from the values
 * that `source` gives; all others are in job->dtype, which is the quant_state's
 * too. GPT-2's Conv1D is transposed to (out, in), as bitsandbytes has it.
 *
 * Memory: the largest weight, quantized. With double_quant each is quantized
 * twice: its offset is part of the text whose length is listed first. */
enum zd_status weights_export_quantized(
        const struct hf_export_job *job, const struct weight_source *source,
        const struct quantize_options *quantize);

/* Could a model, or an adapter, be written to `dir` now? Its folder is made and
 * removed again. ZD_ERR_CREATE as above. */
enum zd_status weights_export_check(const char *dir, bool is_adapter);
