/* lora_base.c - which weights of a base are quantized, and how. */
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/files/weights_hf.h"
#include "model/quantized/codes.h"
#include "model/quantized/quantized.h"
#include "model/weights.h"

#include <stdlib.h>

static enum quant_format format_of(enum lora_base base)
{
    return (enum quant_format)(base - LORA_BASE_NF4);
}

/* True for the layers' frozen linear weights, except factors of adapters. */
static bool may_be_quantized(const struct param_table *table, int id)
{
    const struct param *param = &table->params[id];
    return param->part == PARAM_BASE && !param->trainable && param->dims == 2 &&
           param->unit > 0 && param->unit < table->unit_count - 1;
}

static void make_all(
        enum quant_format format, bool nested, struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (may_be_quantized(table, id))
            table->codes[id] = codes_matrix(&table->params[id], format, nested);
}

/* --- stored quantized ----------------------------------------------------- */

/* Uses the stored quantization; a base must have a single format. */
static enum zd_status take_stored(
        const struct weight_source *source, struct param_table *table)
{
    const struct quantized *first = NULL;
    for (int id = 0; id < table->count; id++) {
        const struct quantized *stored = source->stored(source->ctx, id);
        if (!stored || !may_be_quantized(table, id))
            continue;
        first = first ? first : stored;
        if (stored->state.matrix.format != first->state.matrix.format)
            return stored_fail(
                    stored->codes, "E0330",
                    "tensor `%s` is stored in %s and `%s` in %s; a base that "
                    "adapters train on has one format",
                    first->codes.tensor->name,
                    quant_format_name(first->state.matrix.format),
                    stored->codes.tensor->name,
                    quant_format_name(stored->state.matrix.format));
        table->codes[id] = stored->state.matrix;
    }
    return ZD_OK;
}

/* A job may omit the format that the model is stored in, but not set another.
 */
static enum zd_status check_agreement(
        const struct lora_options *options, const struct quant_matrix *stored)
{
    bool nested = stored->nested_block > 0;
    bool none = options->quantize_base == LORA_BASE_NONE;
    enum quant_format format = format_of(options->quantize_base);
    if (options->gives_quantize_base && (none || format != stored->format))
        ZD_FAIL(ZD_ERR_CONFIG, "E0329",
                "lora.quantize_base = \"%s\", but the model is stored in %s",
                none ? "none" : quant_format_name(format),
                quant_format_name(stored->format));
    else if (
            options->gives_double_quant && quant_is_4bit(stored) &&
            options->double_quant != nested)
        ZD_FAIL(ZD_ERR_CONFIG, "E0329",
                "lora.double_quant = %s, but the model's scales are stored %s",
                options->double_quant ? "true" : "false",
                nested ? "in 8 bits" : "in fp32");
    else
        return ZD_OK;
    return zd_fail_help("remove the key: it is trained as it is stored");
}

/* --- all ------------------------------------------------------------------ */

static enum zd_status fill(
        const struct model_config *config, const struct lora_options *options,
        const char *dir, struct param_table *table)
{
    ZD_SCOPED(weights_close) struct weight_source source = {0};
    if (!dir || !config->is_quantized) {
        if (options->quantize_base != LORA_BASE_NONE)
            make_all(
                    format_of(options->quantize_base), options->double_quant,
                    table);
        return ZD_OK;
    }
    if (weights_hf_are_there(dir)) {
        ZD_TRY(weights_open_hf(dir, config, table, NULL, &source));
        ZD_TRY(take_stored(&source, table));
    } else {
        make_all(config->stored_format, config->stored_nested, table);
    }
    const struct quant_matrix *first = param_first_codes(table);
    return first ? check_agreement(options, first) : ZD_OK;
}

enum zd_status lora_quantize(
        const struct model_config *config, const struct lora_options *options,
        const char *dir, struct param_table *table)
{
    table->codes = zd_array((size_t)table->count, sizeof *table->codes);
    ZD_TRY(fill(config, options, dir, table));
    if (!param_first_codes(table)) {
        free(table->codes);
        table->codes = NULL;
    }
    return ZD_OK;
}

enum zd_status lora_quantize_as(
        const struct weight_source *source, const char *format, bool nested,
        struct param_table *table)
{
    enum quant_format made;
    table->codes = zd_array((size_t)table->count, sizeof *table->codes);
    if (source->stored)
        ZD_TRY(take_stored(source, table));
    if (!param_first_codes(table) && quant_format_of_name(format, &made))
        make_all(made, nested, table);
    return ZD_OK;
}
