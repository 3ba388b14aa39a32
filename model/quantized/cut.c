#include "model/quantized/cut.h"

#include "base/must.h"

#include <assert.h>

/* --- where ---------------------------------------------------------------- */

/* Are columns of the quantized matrix (out, in) cut? */
static bool cuts_columns(const struct param *param)
{
    return param->slice.range_count > 0 &&
           param->slice.by_column != param->conv1d;
}

int codes_ranges(
        const struct param *param, const struct quant_matrix *whole, int place,
        struct codes_range ranges[SLICE_RANGES])
{
    const struct param_slice *slice = &param->slice;
    const struct codes_range all = {
            .rows = whole->rows,
            .columns = whole->columns,
            .is_owned = place == 0};
    ranges[0] = all;
    if (cuts_columns(param)) {
        assert(slice->range_count == 1);
        ranges[0].column = slice->ranges[0].whole;
        ranges[0].columns = slice->ranges[0].count;
        return 1;
    }
    for (int i = 0; i < slice->range_count; i++) {
        const struct slice_range *range = &slice->ranges[i];
        ranges[i] = all;
        ranges[i].row = range->whole;
        ranges[i].rows = range->count;
        ranges[i].here = range->here;
        ranges[i].is_owned |= !range->is_shared;
    }
    return slice->range_count > 1 ? slice->range_count : 1;
}

/* The granularity in rows, or columns of a row, at which a cut does not split a
 * block or group of `together` elements. */
static int64_t unit_of(
        const struct param *param, const struct quant_matrix *whole,
        size_t together)
{
    if (whole->format == QUANT_FP8)
        return QUANT_TILE;
    if (whole->format == QUANT_INT8)
        return 1;
    int64_t block = (int64_t)together, rows = block;
    while (!cuts_columns(param) && rows % 2 == 0 &&
           rows / 2 * whole->columns % block == 0)
        rows /= 2; /* block sizes are powers of two */
    return rows;
}

/* Do all places' ranges begin at multiples of `unit`, in the slice and in the
 * whole tensor? */
static bool begins_at(
        const struct param *param, const struct quant_matrix *whole,
        int64_t unit)
{
    struct codes_range ranges[SLICE_RANGES];
    int count = codes_ranges(param, whole, 0, ranges);
    bool is_so = true, by_column = cuts_columns(param);
    for (int i = 0; i < count; i++) {
        const struct codes_range *r = &ranges[i];
        int64_t first = by_column ? r->column : r->row;
        int64_t share = by_column ? r->columns : r->rows;
        bool is_shared = param->slice.ranges[i].is_shared;
        is_so = is_so && r->here % unit == 0 && first % unit == 0 &&
                (is_shared || share % unit == 0);
    }
    return is_so;
}

bool codes_can_cut(const struct param *param, const struct quant_matrix *whole)
{
    int64_t unit = unit_of(param, whole, whole->block);
    bool goes_on = quant_is_4bit(whole) && whole->columns % unit;
    if (!param->slice.range_count)
        return true;
    return !(cuts_columns(param) && goes_on) && begins_at(param, whole, unit);
}

/* --- how ------------------------------------------------------------------ */

void codes_cut(const struct param_table *whole, struct param_table *slice)
{
    size_t count = (size_t)slice->count;
    if (!whole->codes)
        return;
    assert(whole->count == slice->count);
    slice->codes = zd_array(count, sizeof *slice->codes);
    slice->whole_codes = zd_array(count, sizeof *slice->whole_codes);
    for (int id = 0; id < slice->count; id++) {
        if (!param_is_quantized(whole, id))
            continue;
        const struct param *p = &slice->params[id];
        const struct quant_matrix *all = &whole->codes[id];
        struct quant_matrix *m = &slice->codes[id];
        size_t group = all->block * all->nested_block;
        slice->whole_codes[id] = *m = *all;
        m->rows = param_out(p);
        m->columns = param_in(p);
        if (p->slice.range_count && group &&
            (cuts_columns(p) || !begins_at(p, all, unit_of(p, all, group))))
            m->nested_block = 0;
    }
}

/* --- scales --------------------------------------------------------------- */

/* The index in the whole tensor of element `first` of the slice. */
static size_t element_of(
        const struct codes_range *ranges, int count,
        const struct quant_matrix *slice, const struct quant_matrix *whole,
        size_t first)
{
    int64_t row = (int64_t)first / slice->columns;
    int64_t column = (int64_t)first % slice->columns;
    int i = count - 1;
    while (row < ranges[i].here)
        i--;
    row += ranges[i].row - ranges[i].here;
    return (size_t)(row * whole->columns + ranges[i].column + column);
}

void codes_cut_scales(
        const struct param_table *slice, int id, void *whole, float *of_blocks,
        void *out)
{
    const struct quant_matrix *m = &slice->codes[id];
    const struct quant_matrix *all = param_whole_codes(slice, id);
    struct codes_range ranges[SLICE_RANGES];
    int count = codes_ranges(&slice->params[id], all, 0, ranges);
    struct quant_scales from = quant_scales_of(all, whole);
    struct quant_scales to = quant_scales_of(m, out);
    if (to.offset)
        *to.offset = *from.offset;
    else
        quant_read_scales(of_blocks, whole, all);
    for (size_t i = 0; i < quant_scale_count(m); i++) {
        size_t first = quant_scale_first(m, i);
        size_t at =
                quant_scale_of(all, element_of(ranges, count, m, all, first));
        if (!to.offset) {
            to.values[i] = of_blocks[at];
            continue;
        }
        to.codes[i] = from.codes[at];
        to.values[i / m->nested_block] = from.values[at / all->nested_block];
    }
}
