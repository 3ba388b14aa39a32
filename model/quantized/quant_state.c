#include "model/quantized/quant_state.h"

#include "base/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(name, format, ...)                                              \
    ZD_FAIL(ZD_ERR_DATA, "E0331", "%s: " format, name, ##__VA_ARGS__)

static enum zd_status refuse_word(
        const char *name, const char *key, const char *word)
{
    return REFUSE(
            name, "`%s` is `%.40s`, which is none that can be read", key, word);
}

static enum zd_status check_block(
        const char *name, const char *key, json_int_t block)
{
    return quant_block_is_legal(block)
                   ? ZD_OK
                   : REFUSE(name, "`%s` must be a power of two from %d to %d",
                            key, QUANT_BLOCK_MIN, QUANT_BLOCK_MAX);
}

static enum zd_status read_state(
        json_t *json, const char *name, struct quant_state *state)
{
    enum { EXTENT_MAX = 1 << 30 };
    const char *type, *dtype, *nested_dtype = NULL;
    enum quant_format format;
    enum dtype was;
    json_int_t block, rows, columns, nested_block = INT64_MIN;
    double offset = NAN;
    json_error_t error;
    if (json_unpack_ex(
                json, &error, JSON_STRICT,
                "{s:s, s:I, s:s, s:[I, I], s?I, s?s, s?F}", "quant_type", &type,
                "blocksize", &block, "dtype", &dtype, "shape", &rows, &columns,
                "nested_blocksize", &nested_block, "nested_dtype",
                &nested_dtype, "nested_offset", &offset) != 0)
        return REFUSE(name, "%.150s", error.text);
    if (!quant_format_of_name(type, &format) || format > QUANT_FP4)
        return refuse_word(name, "quant_type", type);
    if (!dtype_find(dtype_torch_name, dtype, &was))
        return refuse_word(name, "dtype", dtype);
    ZD_TRY(check_block(name, "blocksize", block));
    if (rows < 1 || columns < 1 || rows > EXTENT_MAX || columns > EXTENT_MAX)
        return REFUSE(name, "`shape` is not that of a matrix");
    *state = (struct quant_state){
            .format = format,
            .dtype = was,
            .rows = rows,
            .columns = columns,
            .block = (size_t)block};
    if (nested_block == INT64_MIN && !nested_dtype && isnan(offset))
        return ZD_OK;
    ZD_TRY(check_block(name, "nested_blocksize", nested_block));
    if (!nested_dtype || strcmp(nested_dtype, "float32") != 0)
        return REFUSE(name, "`nested_dtype` must be `float32`");
    if (!isfinite((float)offset))
        return REFUSE(name, "`nested_offset` must be a number");
    state->is_nested = true;
    state->nested_block = (size_t)nested_block;
    state->nested_offset = (float)offset;
    return ZD_OK;
}

enum zd_status quant_state_parse(
        const char *text, size_t bytes, const char *name,
        struct quant_state *state_out)
{
    json_t *json;
    struct quant_state state = {0};
    if (bytes > QUANT_STATE_BYTES_MAX)
        return REFUSE(name, "%zu bytes are too many", bytes);
    if (json_parse(text, bytes, name, ZD_ERR_DATA, &json) != ZD_OK)
        return ZD_ERR_DATA;
    enum zd_status status = read_state(json, name, &state);
    json_decref(json);
    ZD_TRY(status);
    *state_out = state;
    return ZD_OK;
}

char *quant_state_text(const struct quant_state *state)
{
    enum { BYTES = 512 };
    char *text = zd_must(malloc(BYTES));
    int used = snprintf(
            text, BYTES,
            "{\"quant_type\": \"%s\", \"blocksize\": %zu, \"dtype\": \"%s\", "
            "\"shape\": [%lld, %lld]",
            quant_format_name(state->format), state->block,
            dtype_torch_name(state->dtype), (long long)state->rows,
            (long long)state->columns);
    if (state->is_nested) /* 17 digits identify a double */
        used += snprintf(
                text + used, (size_t)(BYTES - used),
                ", \"nested_blocksize\": %zu, \"nested_dtype\": \"float32\", "
                "\"nested_offset\": %.17g",
                state->nested_block, (double)state->nested_offset);
    snprintf(text + used, (size_t)(BYTES - used), "}");
    return text;
}
