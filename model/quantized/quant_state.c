#include "model/quantized/quant_state.h"

#include "base/must.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static enum zd_status refuse(const char *name, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
static enum zd_status refuse(const char *name, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ZD_FAIL(ZD_ERR_DATA, "E0331", "%s: %s", name, what);
    return ZD_ERR_DATA;
}

static const char *const keys[] = {
        "quant_type",       "blocksize",    "dtype",        "shape",
        "nested_blocksize", "nested_dtype", "nested_offset"};
enum { KEYS = sizeof keys / sizeof keys[0] };

static const char *const dtypes[] = {"float32", "bfloat16", "float16"};

static enum zd_status check_keys(const json_t *json, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json, key, value)
    {
        bool known = false;
        for (int i = 0; i < KEYS; i++)
            known = known || strcmp(keys[i], key) == 0;
        if (!known)
            return refuse(name, "the key `%.60s` is not known", key);
    }
    return ZD_OK;
}

static enum zd_status read_block(
        const json_t *json, const char *name, const char *key, size_t *out)
{
    const json_t *value = json_object_get(json, key);
    if (!json_is_integer(value) ||
        !quant_block_is_legal(json_integer_value(value)))
        return refuse(
                name, "`%s` must be a power of two from %d to %d", key,
                QUANT_BLOCK_MIN, QUANT_BLOCK_MAX);
    *out = (size_t)json_integer_value(value);
    return ZD_OK;
}

static enum zd_status read_word(
        const json_t *json, const char *name, const char *key,
        const char *const *words, int count, int *out)
{
    const char *word = json_string_value(json_object_get(json, key));
    for (int i = 0; word && i < count; i++)
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return ZD_OK;
        }
    return refuse(
            name, "`%s` is `%.40s`, which is none that can be read", key,
            word ? word : "no word");
}

static enum zd_status read_shape(
        const json_t *json, const char *name, struct quant_state *state)
{
    enum { EXTENT_MAX = 1 << 30 };
    int64_t extents[2];
    const json_t *shape = json_object_get(json, "shape");
    for (size_t i = 0; i < 2; i++) {
        const json_t *extent = json_array_get(shape, i);
        extents[i] = json_is_integer(extent) ? json_integer_value(extent) : 0;
        if (json_array_size(shape) != 2 || extents[i] < 1 ||
            extents[i] > EXTENT_MAX)
            return refuse(name, "`shape` must be two whole numbers");
    }
    state->rows = extents[0];
    state->columns = extents[1];
    return ZD_OK;
}

static enum zd_status read_nested(
        const json_t *json, const char *name, struct quant_state *state)
{
    static const char *const fp32[] = {"float32"};
    int type;
    const json_t *offset = json_object_get(json, "nested_offset");
    state->is_nested = json_object_get(json, "nested_blocksize") || offset ||
                       json_object_get(json, "nested_dtype");
    if (!state->is_nested)
        return ZD_OK;
    ZD_TRY(read_block(json, name, "nested_blocksize", &state->nested_block));
    ZD_TRY(read_word(json, name, "nested_dtype", fp32, 1, &type));
    state->nested_offset = (float)json_number_value(offset);
    if (!json_is_number(offset) || !isfinite(state->nested_offset))
        return refuse(name, "`nested_offset` must be a number");
    return ZD_OK;
}

static enum zd_status read_state(
        const json_t *json, const char *name, struct quant_state *state)
{
    static const char *const types[] = {"nf4", "fp4"};
    int type = 0, dtype = 0;
    if (!json_is_object(json))
        return refuse(name, "it is no table");
    ZD_TRY(check_keys(json, name));
    ZD_TRY(read_word(json, name, "quant_type", types, 2, &type));
    ZD_TRY(read_word(json, name, "dtype", dtypes, 3, &dtype));
    ZD_TRY(read_block(json, name, "blocksize", &state->block));
    ZD_TRY(read_shape(json, name, state));
    state->format = type == 0 ? QUANT_NF4 : QUANT_FP4;
    state->dtype = (enum dtype)dtype; /* in the order of enum dtype */
    return read_nested(json, name, state);
}

enum zd_status quant_state_parse(
        const char *text, size_t bytes, const char *name,
        struct quant_state *state_out)
{
    json_t *json;
    struct quant_state state = {0};
    if (bytes > QUANT_STATE_BYTES_MAX)
        return refuse(name, "%zu bytes are too many", bytes);
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
            dtypes[state->dtype], (long long)state->rows,
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
