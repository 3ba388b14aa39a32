/* slice.h - tensor parallelism: the slice of a model for one of `size` places,
 * and its position in the whole tensors.
 *
 *   extent of a tensor   slice
 *   Q, F                 equal shares: of heads, of the MLP's width
 *   KV                   likewise; where size exceeds the key-value heads, all
 *   QKV, 2F              a range of q, of k and of v; of gate and of up
 *   V                    ceil(V / size) rows; those past the end are padding
 *   C, positions, D      all
 *
 * A norm over all heads is cut like the heads: places add up its sums.
 *
 * Rows of a linear weight are cut, or its columns if those are Q or F (o and
 * down). A tensor that is not cut is the same on each place, and so are shared
 * ranges, which come last; each place computes a part of their gradients.
 * Padding is 0, and so are its gradient and states; files do not contain it.
 *
 * Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. */
#pragma once

#include "model/weights.h"

/* A place's configuration. If key-value heads are not cut, kv_heads is all of
 * them; the place's query heads then share one. Pointers are borrowed from
 * `whole`, which must outlive the slice; do not free the slice. ZD_ERR_CONFIG
 * names a size that tp.size must divide but does not. */
enum zd_status model_config_slice(
        const struct model_config *whole, struct tp tp,
        struct model_config *slice_out);

/* As param_table_build, with the same ids; shapes and counts are the slice's,
 * and param.slice is each tensor's position in the whole. */
enum zd_status param_table_slice(
        const struct model_config *whole, struct tp tp,
        const char *const *freeze, int freeze_count,
        struct param_table *table_out);

/* Elements of the whole tensor. */
size_t param_whole_count(const struct param *param);
/* With tensor parallelism: the number of leading elements that no other place
 * has. */
size_t param_own_count(const struct param *param);
/* Sets a slice's own blocks (Adam-mini) from `blocks` of the whole, with the
 * same numbers; padding, which is always 0, is in block 0. */
void param_cut_blocks(struct param *param);
/* The blocks of the whole. */
const struct tensor_blocks *param_whole_blocks(const struct param *param);
/* Elements of a slice that are contiguous in the whole tensor. */
struct slice_run {
    size_t begin, count; /* in the slice */
    size_t whole;        /* position of the first in the whole tensor */
    bool is_shared;      /* each place has them */
    bool is_padding;     /* padding; `whole` is undefined */
};
/* Iterates over the runs of elements [begin, end) of a slice: start with
 * run->begin = begin and run->count = 0; false after the last. */
bool param_slice_next(
        const struct param *param, size_t end, struct slice_run *run);
