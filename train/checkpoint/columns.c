#include "train/checkpoint/columns.h"

#include "base/text_buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

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

void columns_text(const struct columns *columns, char out[COLUMNS_TEXT])
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

/* Digits alone; returns what follows them. */
static const char *parse_column(const char *text, int64_t *out)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return NULL;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno ? NULL : end;
}

const char *columns_parse(const char *text, struct columns *out)
{
    int64_t least = 0;
    *out = (struct columns){0};
    do {
        int i = out->count++;
        if (i == SLICE_RANGES)
            return NULL;
        text = parse_column(text + 1, &out->ranges[i].begin);
        if (!text || *text != ':')
            return NULL;
        text = parse_column(text + 1, &out->ranges[i].end);
        if (!text || out->ranges[i].begin < least ||
            out->ranges[i].end <= out->ranges[i].begin)
            return NULL;
        least = out->ranges[i].end;
    } while (*text == ',');
    return *text == ']' ? text + 1 : NULL;
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
    for (int i = 0; i < slice->range_count; i++) {
        const struct slice_range *range = &slice->ranges[i];
        int64_t in = column - range->whole;
        before += in < 0 ? 0 : in < range->count ? in : range->count;
    }
    return (size_t)before;
}
