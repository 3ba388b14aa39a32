#include "model/slice.h"

/* --- what a place computes with ------------------------------------------- */

#define REFUSE(...) ZD_FAIL(ZD_ERR_CONFIG, "E0224", __VA_ARGS__)

static enum zd_status check_size(const struct model_config *whole, int size)
{
    if (whole->heads % size)
        return REFUSE(
                "parallel.tp_size = %d does not divide the model's %d heads",
                size, whole->heads);
    if (whole->intermediate_size % size)
        return REFUSE(
                "parallel.tp_size = %d does not divide the model's "
                "feed-forward width of %d",
                size, whole->intermediate_size);
    if (whole->kv_heads % size && size % whole->kv_heads)
        return REFUSE(
                "parallel.tp_size = %d neither divides the model's %d "
                "key-value heads nor is a multiple of them",
                size, whole->kv_heads);
    return ZD_OK;
}

enum zd_status model_config_slice(
        const struct model_config *whole, struct tp tp,
        struct model_config *slice_out)
{
    int size = tp.size > 1 ? tp.size : 1;
    ZD_TRY(check_size(whole, size));
    *slice_out = *whole;
    slice_out->tp = tp;
    slice_out->heads /= size;
    slice_out->intermediate_size /= size;
    slice_out->vocab_size = (whole->vocab_size - 1) / size + 1;
    if (whole->kv_heads % size == 0) {
        slice_out->kv_heads /= size;
    } else {
        slice_out->kv_used = 1;
        slice_out->first_kv = tp.place / (size / whole->kv_heads);
    }
    return ZD_OK;
}

/* --- where its tensors lie ------------------------------------------------ */

size_t param_whole_count(const struct param *param)
{
    const struct param_slice *slice = &param->slice;
    return slice->range_count
                   ? (size_t)slice->shape[0] * (size_t)slice->shape[1]
                   : param->count;
}

size_t param_own_count(const struct param *param)
{
    const struct param_slice *slice = &param->slice;
    for (int r = 0; r < slice->range_count; r++)
        if (slice->ranges[r].is_shared) /* rows */
            return (size_t)slice->ranges[r].here * (size_t)param->shape[1];
    return slice->range_count ? param->count : 0;
}

static struct tensor_blocks blocks_of_slice(const struct param *p)
{
    const struct tensor_blocks *whole = &p->whole_blocks;
    struct tensor_blocks blocks = *whole;
    const struct param_slice *slice = &p->slice;
    int64_t end = 0;
    blocks.rows = p->shape[0];
    blocks.columns = p->shape[1];
    if (slice->by_column != whole->by_column)
        return blocks; /* each line is cut, so each has its own block */
    blocks.section_count = 0;
    ZD_EACH(range, slice->ranges, slice->range_count) {
        int s = tensor_blocks_section(whole, range->whole);
        end = range->here + range->count;
        if (range->count)
            blocks.sections[blocks.section_count++] = (struct tensor_section){
                    range->here, whole->sections[s].group,
                    tensor_blocks_of_line(whole, range->whole)};
    }
    int64_t lines = tensor_blocks_lines(&blocks);
    if (end < lines)
        blocks.sections[blocks.section_count++] =
                (struct tensor_section){end, lines, 0};
    return blocks;
}

void param_cut_blocks(struct param *param)
{
    if (!param->slice.range_count)
        return;
    param->whole_blocks = param->blocks;
    param->blocks = blocks_of_slice(param);
}

const struct tensor_blocks *param_whole_blocks(const struct param *param)
{
    return param->slice.range_count ? &param->whole_blocks : &param->blocks;
}

bool param_slice_next(
        const struct param *param, size_t end, struct slice_run *run)
{
    const struct param_slice *slice = &param->slice;
    size_t begin = run->begin + run->count;
    size_t columns = (size_t)param->shape[1], row = begin / columns;
    size_t column = begin % columns;
    *run = (struct slice_run){.begin = begin, .count = end - begin};
    if (begin >= end)
        return false;
    run->whole = begin;
    run->is_shared = !slice->range_count;
    if (!slice->range_count)
        return true;
    size_t line = slice->by_column ? column : row, left = end - begin;
    const struct slice_range *range = slice->ranges;
    const struct slice_range *last = range + slice->range_count;
    while (range < last && (int64_t)line >= range->here + range->count)
        range++;
    run->is_padding = range == last;
    if (run->is_padding) /* padding rows of the vocabulary, to the end */
        return true;
    run->is_shared = range->is_shared;
    size_t first = (size_t)(range->whole - range->here) + line;
    size_t lines = (size_t)(range->here + range->count) - line;
    run->whole = slice->by_column ? row * (size_t)slice->shape[1] + first
                                  : first * columns + column;
    run->count = slice->by_column ? lines : lines * columns - column;
    run->count = run->count < left ? run->count : left;
    return true;
}
