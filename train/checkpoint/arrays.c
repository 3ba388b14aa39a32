#include "train/checkpoint/arrays.h"

#include "base/text_buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- columns -------------------------------------------------------------- */

struct columns columns_of(const struct param_slice *slice)
{
    struct columns columns = {0};
    if (!slice->by_column)
        return columns;
    columns.count = slice->range_count;
    for (int i = 0; i < slice->range_count; i++) {
        const struct slice_range *range = &slice->ranges[i];
        assert(!range->is_shared && range->count > 0);
        columns.ranges[i].begin = range->whole;
        columns.ranges[i].end = range->whole + range->count;
    }
    return columns;
}

static void columns_text(const struct columns *columns, char out[COLUMNS_TEXT])
{
    struct text_buffer text = {.out = out, .bytes = COLUMNS_TEXT};
    out[0] = '\0';
    for (int i = 0; i < columns->count; i++)
        text_buffer_add(
                &text, "%c%lld:%lld%s", i ? ',' : '[',
                (long long)columns->ranges[i].begin,
                (long long)columns->ranges[i].end,
                i + 1 < columns->count ? "" : "]");
}

/* Parses digits after one character; returns where one of `stops` follows, else
 * NULL. */
static const char *parse_count(const char *text, const char *stops, size_t *out)
{
    char *end;
    if (!text || text[1] < '0' || text[1] > '9')
        return NULL;
    errno = 0;
    *out = strtoull(text + 1, &end, 10);
    return errno || !*end || !strchr(stops, *end) ? NULL : end;
}

/* Parses columns in brackets; returns the text after them. NULL: invalid, or
 * not ascending. */
static const char *columns_parse(const char *text, struct columns *out)
{
    int64_t least = 0;
    do {
        size_t begin, end;
        text = parse_count(parse_count(text, ":", &begin), ",]", &end);
        if (!text || out->count == SLICE_RANGES || (int64_t)begin < least ||
            (int64_t)end <= (int64_t)begin)
            return NULL;
        least = out->ranges[out->count].end = (int64_t)end;
        out->ranges[out->count++].begin = (int64_t)begin;
    } while (*text == ',');
    return text + 1;
}

int columns_compare(const struct columns *a, const struct columns *b)
{
    if (a->count != b->count)
        return a->count - b->count;
    for (int i = 0; i < a->count; i++) {
        int64_t begin = a->ranges[i].begin - b->ranges[i].begin;
        int64_t end = a->ranges[i].end - b->ranges[i].end;
        if (begin || end)
            return (begin ? begin : end) < 0 ? -1 : 1;
    }
    return 0;
}

struct param columns_matrix(
        const struct columns *columns, const int64_t shape[2])
{
    struct param matrix = {.shape = {1, 1}};
    struct param_slice *slice = &matrix.slice;
    if (!columns->count)
        return matrix;
    matrix.shape[0] = shape[0];
    matrix.shape[1] = 0;
    slice->range_count = columns->count;
    slice->by_column = true;
    slice->shape[0] = shape[0];
    slice->shape[1] = shape[1];
    for (int i = 0; i < columns->count; i++) {
        struct slice_range *range = &slice->ranges[i];
        range->here = matrix.shape[1];
        range->whole = columns->ranges[i].begin;
        range->count = columns->ranges[i].end - range->whole;
        matrix.shape[1] += range->count;
    }
    return matrix;
}

size_t columns_before(const struct param *matrix, size_t whole)
{
    const struct param_slice *slice = &matrix->slice;
    if (!slice->range_count)
        return whole;
    int64_t row = (int64_t)whole / slice->shape[1];
    int64_t column = (int64_t)whole % slice->shape[1];
    int64_t before = row * matrix->shape[1];
    ZD_EACH(range, slice->ranges, slice->range_count) {
        int64_t in = column - range->whole;
        before += in < 0 ? 0 : in < range->count ? in : range->count;
    }
    return (size_t)before;
}

/* --- arrays --------------------------------------------------------------- */

static const struct {
    const char *name;
    int lane;
    bool is_scale;
} kinds[ARRAY_KINDS] = {
        [ARRAY_MASTER] = {"master", ZERO_WEIGHTS, false},
        [ARRAY_M] = {"m", OPTIM_M, false},
        [ARRAY_M_SCALE] = {"m_scale", OPTIM_M, true},
        [ARRAY_V] = {"v", OPTIM_V, false},
        [ARRAY_V_SCALE] = {"v_scale", OPTIM_V, true},
        [ARRAY_V_BLOCKS] = {"v_blocks", OPTIM_V, false}};

int array_lane(enum array_kind kind)
{
    return kinds[kind].lane;
}

const char *array_kind_name(enum array_kind kind)
{
    return kinds[kind].name;
}

/* The kind with this name; ARRAY_KINDS: none. */
static enum array_kind kind_of(const char *name)
{
    int kind = 0;
    while (kind < ARRAY_KINDS && strcmp(kinds[kind].name, name) != 0)
        kind++;
    return (enum array_kind)kind;
}

void array_name(
        char out[ARRAY_NAME], enum array_kind kind, const char *tensor,
        const struct columns *columns, size_t begin)
{
    char text[COLUMNS_TEXT] = "";
    if (kind != ARRAY_V_BLOCKS)
        columns_text(columns, text);
    snprintf(
            out, ARRAY_NAME, "%s/%s%s@%zu", kinds[kind].name, tensor, text,
            begin);
}

struct array_shape array_shape(
        enum array_kind kind, enum dtype weight_type,
        const struct optim_layout *layout, size_t count, size_t blocks)
{
    struct array_shape shape = {.type = format_type(OPTIM_FP32)};
    int lane = kinds[kind].lane;
    if (lane == ZERO_WEIGHTS)
        return (struct array_shape){
                dtype_safetensors_name(weight_type), count,
                count * dtype_bytes(weight_type)};
    enum optim_format format = layout->lane[lane];
    if (kind == ARRAY_V_BLOCKS) {
        shape.values = format == OPTIM_BLOCKS ? blocks : 0;
    } else if (kinds[kind].is_scale) {
        shape.values = optim_scale_count(format, count);
    } else if (format_type(format)[0]) {
        shape.type = format_type(format);
        shape.values = count;
        shape.bytes = optim_lane_bytes(format, count);
        return shape;
    }
    shape.bytes = shape.values * sizeof(float);
    return shape;
}

/* --- formats of lanes ----------------------------------------------------- */

static const struct {
    const char *name, *type;
} formats[] = {
        [OPTIM_NONE] = {"none", ""},     [OPTIM_FP32] = {"fp32", "F32"},
        [OPTIM_BF16] = {"bf16", "BF16"}, [OPTIM_8BIT] = {"8bit", "U8"},
        [OPTIM_BLOCKS] = {"blocks", ""},
};

const char *format_name(enum optim_format format)
{
    return formats[format].name;
}

const char *format_type(enum optim_format format)
{
    return formats[format].type;
}

enum optim_format format_of_type(const char *type)
{
    for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++)
        if (strcmp(formats[format].type, type) == 0)
            return (enum optim_format)format;
    return OPTIM_NONE;
}

/* --- in the manifest ------------------------------------------------------ */

void held_add(
        struct held *held, enum array_kind kind, const char *type,
        const char *digest)
{
    assert(held->array_count < ARRAY_KINDS);
    struct held_array *array = &held->arrays[held->array_count++];
    array->kind = kind;
    ZD_PRINT(array->type, "%s", type);
    ZD_PRINT(array->digest, "%.*s", HELD_DIGEST, digest);
}

void held_text(const struct held *held, char out[HELD_TEXT])
{
    char columns[COLUMNS_TEXT];
    struct text_buffer text = {.out = out, .bytes = HELD_TEXT};
    columns_text(&held->columns, columns);
    text_buffer_add(
            &text, "%s%s@%zu+%zu", held->name, columns, held->begin,
            held->count);
    for (int i = 0; i < held->array_count; i++)
        text_buffer_add(
                &text, " %s %s %s", kinds[held->arrays[i].kind].name,
                held->arrays[i].type, held->arrays[i].digest);
}

/* Parses three words; returns the text after them. */
static const char *parse_array(const char *text, struct held *held)
{
    char kind[16], type[12], digest[HELD_DIGEST + 1];
    int used = 0;
    if (sscanf(text, " %15s %11s %16s%n", kind, type, digest, &used) != 3 ||
        strlen(digest) != HELD_DIGEST || strcspn(text + used, " ") > 0 ||
        held->array_count == ARRAY_KINDS || kind_of(kind) == ARRAY_KINDS)
        return NULL;
    held_add(held, kind_of(kind), type, digest);
    return text + used;
}

bool held_parse(const char *text, struct held *out)
{
    *out = (struct held){.array_count = 0};
    const char *space = text ? strchr(text, ' ') : NULL;
    const char *at = space ? memrchr(text, '@', (size_t)(space - text)) : NULL;
    const char *end = at ? memchr(text, '[', (size_t)(at - text)) : NULL;
    if (end && columns_parse(end, &out->columns) != at)
        return false;
    end = end ? end : at;
    if (!end || end == text || (size_t)(end - text) >= sizeof out->name)
        return false;
    memcpy(out->name, text, (size_t)(end - text));
    const char *rest =
            parse_count(parse_count(at, "+", &out->begin), " ", &out->count);
    if (!rest || out->count == 0)
        return false;
    for (; rest && *rest; rest += strspn(rest, " "))
        if (!(rest = parse_array(rest, out)))
            return false;
    return out->begin <= INT64_MAX && out->count <= INT64_MAX - out->begin &&
           out->array_count > 0;
}
