/* export_quantized.h - a quantized model, as transformers loads it with
 * bitsandbytes. */
#pragma once

#include "kernels/quant/quant.h"
#include "model/files/export_hf.h"
#include "model/files/tensor_files.h"

struct quantize_options {
    enum quant_format format; /* QUANT_NF4 or QUANT_INT8 */
    bool double_quant;        /* nf4: absmax in 8 bits too */
};

/* As weights_export_hf, in one file: the layers' linear weights are quantized
 * (quantized.h) in blocks of 64 or by rows, from the values that `source`
 * gives; all others are in options->dtype, which is the quant_state's too.
 * GPT-2's Conv1D is transposed to (out, in), as bitsandbytes has it.
 *
 * Memory: the largest weight, quantized. With double_quant each is quantized
 * twice: its offset is part of the text whose length is listed first. */
enum zd_status weights_export_quantized(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options,
        const struct quantize_options *quantize);

/* For export_hf.c: the weights that are quantized, the tensors that are written
 * in place of one named `name`, their elements, and quantization_config. */
struct quantizing;
struct quantizing *quantizing_create(
        const struct param_table *table, const struct weight_source *source,
        enum dtype dtype, const struct quantize_options *quantize);
void quantizing_destroy(struct quantizing *quantizing);
bool quantizing_takes(const struct param_table *table, int id);
enum zd_status quantizing_list(
        struct quantizing *quantizing, int id, const char *name,
        struct tensor_files *files);
enum zd_status quantizing_read(
        struct quantizing *quantizing, const struct file_tensor *tensor,
        size_t begin, size_t count, void *out);
json_t *quantizing_config(const struct quantizing *quantizing);
