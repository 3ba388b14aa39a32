#include "model/quantized/quantized.h"

#include "base/must.h"
#include "base/number/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16384 }; /* elements decoded at a time; whole blocks */

/* --- tensors of files ----------------------------------------------------- */

enum zd_status stored_check_finite(
        struct stored stored, size_t begin, size_t count, const float *values)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return stored_fail(
                    stored, "E0312", "tensor `%s` is %s at element %zu",
                    stored.tensor->name,
                    isnan(values[i]) ? "not a number" : "infinite", begin + i);
    return ZD_OK;
}

/* "[16, 64]" */
enum { SHAPE_TEXT = 160 };
static void shape_text(int dims, const int64_t *shape, char out[SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(out, SHAPE_TEXT, "[");
    for (int d = 0; d < dims && used < SHAPE_TEXT; d++)
        used += (size_t)snprintf(
                out + used, SHAPE_TEXT - used, "%s%lld", d ? ", " : "",
                (long long)shape[d]);
    if (used < SHAPE_TEXT)
        snprintf(out + used, SHAPE_TEXT - used, "]");
}

enum zd_status stored_check_shape(
        struct stored stored, const char *code, const char *asks, int dims,
        const int64_t *shape)
{
    char have[SHAPE_TEXT], want[SHAPE_TEXT];
    const struct st_tensor *tensor = stored.tensor;
    if (tensor->dims == dims &&
        memcmp(tensor->shape, shape, (size_t)dims * sizeof *shape) == 0)
        return ZD_OK;
    shape_text(tensor->dims, tensor->shape, have);
    shape_text(dims, shape, want);
    return stored_fail(
            stored, code, "tensor `%s` has the shape %s; %s %s", tensor->name,
            have, asks, want);
}

/* --- names ---------------------------------------------------------------- */

const char *const quantized_ends[BESIDES] = {
        [BESIDE_ABSMAX] = ".weight.absmax",
        [BESIDE_QUANT_MAP] = ".weight.quant_map",
        [BESIDE_NESTED_ABSMAX] = ".weight.nested_absmax",
        [BESIDE_NESTED_QUANT_MAP] = ".weight.nested_quant_map",
        [BESIDE_STATE_NF4] = ".weight.quant_state.bitsandbytes__nf4",
        [BESIDE_STATE_FP4] = ".weight.quant_state.bitsandbytes__fp4",
        [BESIDE_SCB] = ".SCB",
        [BESIDE_WEIGHT_FORMAT] = ".weight_format",
        [BESIDE_SCALE_INV] = ".weight_scale_inv",
};

bool quantized_split_name(
        const char *name, char *weight, size_t bytes,
        enum quant_beside *beside_out)
{
    size_t length = strlen(name);
    for (int i = 0; i < BESIDES; i++) {
        size_t end = strlen(quantized_ends[i]);
        if (length <= end ||
            strcmp(name + length - end, quantized_ends[i]) != 0 ||
            length >= bytes)
            continue;
        snprintf(weight, bytes, "%.*s.weight", (int)(length - end), name);
        *beside_out = (enum quant_beside)i;
        return true;
    }
    return false;
}

/* --- quant_state: JSON in a tensor of bytes --------------------------------
 */

#define REFUSE(name, format, ...)                                              \
    ZD_BAD("E0331", "%s: " format, name, ##__VA_ARGS__)

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
            {format, rows, columns, (size_t)block, 0}, was};
    if (nested_block == INT64_MIN && !nested_dtype && isnan(offset))
        return ZD_OK;
    ZD_TRY(check_block(name, "nested_blocksize", nested_block));
    if (!nested_dtype || strcmp(nested_dtype, "float32") != 0)
        return REFUSE(name, "`nested_dtype` must be `float32`");
    if (!isfinite((float)offset))
        return REFUSE(name, "`nested_offset` must be a number");
    state->matrix.nested_block = (size_t)nested_block;
    state->nested_offset = (float)offset;
    return ZD_OK;
}

enum zd_status quant_state_parse(
        const char *text, size_t bytes, const char *name,
        struct quant_state *state_out)
{
    json_auto_t *json = NULL;
    if (bytes > QUANT_STATE_BYTES_MAX)
        return REFUSE(name, "%zu bytes are too many", bytes);
    ZD_TRY(json_parse(text, bytes, name, ZD_ERR_DATA, &json));
    return read_state(json, name, state_out);
}

char *quant_state_text(const struct quant_state *state)
{
    enum { BYTES = 512 };
    const struct quant_matrix *m = &state->matrix;
    char *text = zd_must(malloc(BYTES));
    int used = snprintf(
            text, BYTES,
            "{\"quant_type\": \"%s\", \"blocksize\": %zu, \"dtype\": \"%s\", "
            "\"shape\": [%lld, %lld]",
            quant_format_name(m->format), m->block,
            dtype_torch_name(state->dtype), (long long)m->rows,
            (long long)m->columns);
    if (m->nested_block) /* 17 digits identify a double */
        used += snprintf(
                text + used, (size_t)(BYTES - used),
                ", \"nested_blocksize\": %zu, \"nested_dtype\": \"float32\", "
                "\"nested_offset\": %.17g",
                m->nested_block, (double)state->nested_offset);
    snprintf(text + used, (size_t)(BYTES - used), "}");
    return text;
}
#undef REFUSE

/* --- opening -------------------------------------------------------------- */

static enum zd_status refuse(struct stored stored, const char *why)
{
    return stored_fail(
            stored, "E0330", "tensor `%s` %s", stored.tensor->name, why);
}

/* Checks that a tensor beside a weight exists, with its type and number of
 * elements. */
static enum zd_status need(
        struct stored codes, const struct stored all[BESIDES],
        enum quant_beside what, const char *dtype, uint64_t count)
{
    struct stored beside = all[what];
    if (!beside.tensor)
        return stored_fail(
                codes, "E0330", "tensor `%s` is stored without its `%s`",
                codes.tensor->name, quantized_ends[what]);
    if (strcmp(beside.tensor->dtype, dtype) == 0 &&
        beside.tensor->count == count)
        return ZD_OK;
    return stored_fail(
            beside, "E0330",
            "tensor `%s` has %llu elements of %s; %llu of %s belong to its "
            "weight",
            beside.tensor->name, (unsigned long long)beside.tensor->count,
            beside.tensor->dtype, (unsigned long long)count, dtype);
}

static enum zd_status take_bytes(struct stored stored, void *out)
{
    return st_read_bytes(
            stored.file, stored.tensor, 0, (size_t)stored.tensor->bytes, out);
}

static enum zd_status take(struct stored stored, float **out)
{
    *out = zd_array((size_t)stored.tensor->bytes, 1);
    return take_bytes(stored, *out);
}

/* Scales and values from a file must be finite, and so must their product with
 * the largest code. */
static enum zd_status check_finite(
        struct stored stored, const float *values, size_t count,
        float largest_code, float offset)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(fabsf(values[i]) * largest_code + fabsf(offset)))
            return refuse(
                    stored, "holds a value that decodes to no finite number");
    return ZD_OK;
}

static enum zd_status open_state(
        struct stored stored, enum quant_format format, struct quantized *w)
{
    char text[QUANT_STATE_BYTES_MAX];
    if (strcmp(stored.tensor->dtype, "U8") != 0 ||
        stored.tensor->bytes > sizeof text)
        return refuse(stored, "is not the text of a quant_state");
    ZD_TRY(take_bytes(stored, text));
    enum zd_status status = quant_state_parse(
            text, (size_t)stored.tensor->bytes, stored.tensor->name, &w->state);
    if (status != ZD_OK)
        return zd_fail_where("%s", stored.file->path);
    return w->state.matrix.format == format
                   ? ZD_OK
                   : refuse(stored, "has another type than its name says");
}

static enum zd_status open_nested(
        const struct stored beside[BESIDES], size_t blocks, struct quantized *w)
{
    size_t scale_count = quant_parts(blocks, w->state.matrix.nested_block);
    ZD_TRY(need(w->codes, beside, BESIDE_ABSMAX, "U8", blocks));
    ZD_TRY(need(w->codes, beside, BESIDE_NESTED_ABSMAX, "F32", scale_count));
    ZD_TRY(need(w->codes, beside, BESIDE_NESTED_QUANT_MAP, "F32", 256));
    w->absmax = beside[BESIDE_ABSMAX];
    ZD_TRY(take(beside[BESIDE_NESTED_ABSMAX], &w->scales));
    ZD_TRY(take(beside[BESIDE_NESTED_QUANT_MAP], &w->map));
    ZD_TRY(check_finite(
            beside[BESIDE_NESTED_ABSMAX], w->scales, scale_count, 1,
            w->state.nested_offset));
    return check_finite(beside[BESIDE_NESTED_QUANT_MAP], w->map, 256, 1, 0);
}

static enum zd_status open_4bit(
        const struct stored beside[BESIDES], struct quantized *w)
{
    bool is_nf4 = beside[BESIDE_STATE_NF4].tensor != NULL;
    struct stored state = beside[is_nf4 ? BESIDE_STATE_NF4 : BESIDE_STATE_FP4];
    if (is_nf4 && beside[BESIDE_STATE_FP4].tensor)
        return refuse(w->codes, "has two quant_states");
    ZD_TRY(open_state(state, is_nf4 ? QUANT_NF4 : QUANT_FP4, w));
    const struct quant_matrix *m = &w->state.matrix;
    size_t count = quant_matrix_count(m), blocks = quant_scale_count(m);
    if (w->codes.tensor->bytes != quant_parts(count, 2))
        return refuse(
                w->codes, "does not have the size that its quant_state says");
    ZD_TRY(need(w->codes, beside, BESIDE_QUANT_MAP, "F32", 16));
    ZD_TRY(take_bytes(beside[BESIDE_QUANT_MAP], w->values));
    ZD_TRY(check_finite(beside[BESIDE_QUANT_MAP], w->values, 16, 1, 0));
    if (m->nested_block)
        return open_nested(beside, blocks, w);
    if (beside[BESIDE_NESTED_ABSMAX].tensor ||
        beside[BESIDE_NESTED_QUANT_MAP].tensor)
        return refuse(
                w->codes, "is nested, which its quant_state does not say");
    w->absmax = beside[BESIDE_ABSMAX];
    return need(w->codes, beside, BESIDE_ABSMAX, "F32", blocks);
}

/* Opens a matrix of one-byte codes. */
static enum zd_status open_matrix(
        enum quant_format format, const char *dtype, struct quantized *w)
{
    const struct st_tensor *t = w->codes.tensor;
    if (strcmp(t->dtype, dtype) != 0 || t->dims != 2)
        return refuse(w->codes, "is not a matrix of the type of its scales");
    w->state = (struct quant_state){
            {format, t->shape[0], t->shape[1], 0, 0}, DTYPE_BF16};
    return ZD_OK;
}

static enum zd_status open_int8(
        const struct stored beside[BESIDES], struct quantized *w)
{
    uint8_t format;
    struct stored layout = beside[BESIDE_WEIGHT_FORMAT];
    ZD_TRY(open_matrix(QUANT_INT8, "I8", w));
    size_t rows = (size_t)w->state.matrix.rows;
    ZD_TRY(need(w->codes, beside, BESIDE_SCB, "F32", rows));
    if (layout.tensor) {
        ZD_TRY(need(w->codes, beside, BESIDE_WEIGHT_FORMAT, "U8", 1));
        ZD_TRY(take_bytes(layout, &format));
        if (format != 0)
            return refuse(layout, "says another layout than rows");
    }
    ZD_TRY(take(beside[BESIDE_SCB], &w->scales));
    return check_finite(beside[BESIDE_SCB], w->scales, rows, 128, 0);
}

static enum zd_status open_fp8(
        const struct stored beside[BESIDES], struct quantized *w)
{
    struct stored scale = beside[BESIDE_SCALE_INV];
    ZD_TRY(open_matrix(QUANT_FP8, "F8_E4M3", w));
    const struct quant_matrix *m = &w->state.matrix;
    size_t rows = quant_parts((size_t)m->rows, QUANT_TILE);
    size_t columns = quant_parts((size_t)m->columns, QUANT_TILE);
    if (scale.tensor->dims != 2 || scale.tensor->shape[0] != (int64_t)rows ||
        scale.tensor->shape[1] != (int64_t)columns)
        return refuse(scale, "is not of one scale for each 128 x 128 weights");
    w->scales = zd_array(rows * columns, sizeof *w->scales);
    ZD_TRY(st_read_float(
            scale.file, scale.tensor, 0, rows * columns, w->scales));
    return check_finite(scale, w->scales, rows * columns, 448, 0);
}

enum zd_status quantized_open(
        struct stored codes, const struct stored beside[BESIDES],
        struct quantized *weight_out)
{
    ZD_SCOPED(quantized_fini) struct quantized w = {.codes = codes};
    int kinds = (beside[BESIDE_STATE_NF4].tensor ||
                 beside[BESIDE_STATE_FP4].tensor) +
                (beside[BESIDE_SCB].tensor != NULL) +
                (beside[BESIDE_SCALE_INV].tensor != NULL);
    if (kinds != 1)
        return refuse(
                codes, kinds ? "has scales of two kinds"
                             : "has scales, but nothing that says of which "
                               "kind (a quant_state, SCB, weight_scale_inv)");
    ZD_TRY(beside[BESIDE_SCB].tensor         ? open_int8(beside, &w)
           : beside[BESIDE_SCALE_INV].tensor ? open_fp8(beside, &w)
                                             : open_4bit(beside, &w));
    *weight_out = ZD_TAKE(w);
    return ZD_OK;
}

void quantized_fini(struct quantized *weight)
{
    if (!weight)
        return;
    free(weight->map);
    free(weight->scales);
    memset(weight, 0, sizeof *weight);
}

/* --- reading -------------------------------------------------------------- */

/* Reads absmax of blocks first .. first + count - 1. */
static enum zd_status read_absmax(
        const struct quantized *w, size_t first, size_t count, float *absmax)
{
    uint8_t nested[CHUNK / QUANT_BLOCK_MIN + 1];
    const struct quant_state *s = &w->state;
    if (!s->matrix.nested_block)
        return st_read_bytes(
                w->absmax.file, w->absmax.tensor, 4 * first, 4 * count, absmax);
    ZD_TRY(st_read_bytes(
            w->absmax.file, w->absmax.tensor, first, count, nested));
    quant_unnest(
            absmax, nested, w->scales, w->map, s->nested_offset,
            s->matrix.nested_block, first, count);
    return ZD_OK;
}

/* Elements from `at` on that share one scale. */
static size_t run_at(const struct quant_matrix *m, size_t at)
{
    size_t columns = (size_t)m->columns, column = at % columns;
    if (quant_is_4bit(m))
        return m->block - at % m->block;
    return m->format == QUANT_INT8 ? columns - column
                                   : size_min(
                                             columns - column,
                                             QUANT_TILE - column % QUANT_TILE);
}

enum zd_status quantized_read(
        const struct quantized *w, size_t begin, size_t count, float *out)
{
    uint8_t codes[CHUNK];
    float absmax[CHUNK / QUANT_BLOCK_MIN + 1];
    const struct quant_matrix *m = &w->state.matrix;
    bool is_4bit = quant_is_4bit(m);
    for (size_t end = begin + count, n; begin < end; begin += n, out += n) {
        n = size_min(end - begin, CHUNK - 1);
        size_t skip = is_4bit ? begin % 2 : 0; /* index in its first byte */
        size_t first = quant_scale_of(m, begin);
        size_t scales = quant_scale_of(m, begin + n - 1) + 1 - first;
        ZD_TRY(st_read_bytes(
                w->codes.file, w->codes.tensor, is_4bit ? begin / 2 : begin,
                quant_code_bytes(m, skip + n), codes));
        if (is_4bit)
            ZD_TRY(read_absmax(w, first, scales, absmax));
        for (size_t i = 0, run; i < n; i += run) {
            size_t scale = quant_scale_of(m, begin + i);
            run = size_min(run_at(m, begin + i), n - i);
            quant_decode(
                    out + i, m->format, w->values, codes, skip + i,
                    is_4bit ? absmax[scale - first] : w->scales[scale], run);
        }
    }
    return ZD_OK;
}

/* Reads a part of the transpose: a piece of each row. */
enum zd_status quantized_read_transposed(
        const struct quantized *weight, size_t begin, size_t count, float *out)
{
    enum { PIECE = 256 };
    float piece[PIECE];
    const struct quant_matrix *m = &weight->state.matrix;
    size_t rows = (size_t)m->rows, columns = (size_t)m->columns;
    size_t first = begin / rows, end = (begin + count - 1) / rows + 1;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = first; c < end; c += PIECE) {
            size_t n = end - c < PIECE ? end - c : PIECE;
            ZD_TRY(quantized_read(weight, r * columns + c, n, piece));
            for (size_t i = 0; i < n; i++) {
                size_t to = (c + i) * rows + r;
                if (to >= begin && to < begin + count)
                    out[to - begin] = piece[i];
            }
        }
    return ZD_OK;
}

/* --- as it is ------------------------------------------------------------- */

enum zd_status quantized_read_codes(
        const struct quantized *weight, size_t begin, size_t count,
        uint8_t *codes)
{
    const struct quant_matrix *m = &weight->state.matrix;
    size_t bytes = quant_code_bytes(m, count);
    ZD_TRY(st_read_bytes(
            weight->codes.file, weight->codes.tensor,
            quant_code_bytes(m, begin), bytes, codes));
    for (size_t i = 0; m->format == QUANT_FP8 && i < bytes; i++)
        if ((codes[i] & 0x7f) == 0x7f)
            return refuse(weight->codes, "has a value that is NaN");
    return ZD_OK;
}

enum zd_status quantized_read_scales(const struct quantized *w, void *scales)
{
    const struct quant_matrix *m = &w->state.matrix;
    size_t count = quant_scale_count(m);
    float *out = scales, values[16], map[256];
    if (!quant_is_4bit(m)) {
        memcpy(out, w->scales, count * sizeof *out);
        return ZD_OK;
    }
    /* decoders use the format's own values, so the file must have the same */
    quant_values(m->format, values);
    quant_dynamic_map(map);
    if (memcmp(values, w->values, sizeof values) != 0 ||
        (m->nested_block && memcmp(map, w->map, sizeof map) != 0))
        return refuse(
                w->codes, "has its own quant_map, which training does not "
                          "support");
    if (!m->nested_block) {
        ZD_TRY(take_bytes(w->absmax, out));
        return check_finite(w->absmax, out, count, 1, 0);
    }
    size_t nested = quant_parts(count, m->nested_block);
    out[0] = w->state.nested_offset;
    memcpy(out + 1, w->scales, nested * sizeof *out);
    return take_bytes(w->absmax, out + 1 + nested);
}
