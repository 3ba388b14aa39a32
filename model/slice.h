/* slice.h - tensor parallelism: the slice of a model that one of `size` places
 * computes with, and where it lies in the whole tensors.
 *
 *   extent of a tensor   slice
 *   Q, F                 equal shares: of heads, of the MLP's width
 *   KV                   likewise; where size exceeds the key-value heads, all
 *   QKV, 2F              a range of q, of k and of v; of gate and of up
 *   V                    ceil(V / size) rows; those past the end are padding
 *   C, positions, D      all
 *
 * A norm over all heads is cut as they are: places add up its sums.
 *
 * Rows of a linear weight are cut, or its columns where those are Q or F (o and
 * down). A tensor that is not cut is the same on each place, and so are shared
 * ranges, which come last; each place makes a part of their gradients. Padding
 * is 0, and so are its gradient and states; no file contains it.
 *
 * Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. */
#pragma once

#include "model/weights.h"

/* What a place computes with. kv_heads are all of them where they are not cut;
 * its query heads then share one. Pointers are the whole's: it must outlive the
 * slice, which is not to be freed. ZD_ERR_CONFIG where tp.size does not divide
 * what it must, naming that. */
enum zd_status model_config_slice(
        const struct model_config *whole, struct tp tp,
        struct model_config *slice_out);

/* As param_table_build of the whole, with the same ids; shapes and counts are
 * the slice's, and each tensor knows where it lies (param.slice). */
enum zd_status param_table_slice(
        const struct model_config *whole, struct tp tp,
        const char *const *freeze, int freeze_count,
        struct param_table *table_out);

/* Elements of the whole tensor. */
size_t param_whole_count(const struct param *param);
/* With tensor parallelism: the first elements, which no other place has. */
size_t param_own_count(const struct param *param);
/* Gives a slice its own blocks (Adam-mini), where `blocks` are the whole's:
 * numbered as those are; padding, which is always 0, is of block 0. */
void param_cut_blocks(struct param *param);
/* Those of the whole. */
const struct tensor_blocks *param_whole_blocks(const struct param *param);
/* Elements of a slice that follow each other in the whole tensor too. */
struct slice_run {
    size_t begin, count; /* in the slice */
    size_t whole;        /* of the first in the whole tensor */
    bool is_shared;      /* the same on each place */
    bool is_padding;     /* of no element; `whole` means nothing */
};
/* The runs of elements [begin, end) of a slice: begin with run->begin = begin
 * and run->count = 0; false after the last. */
bool param_slice_next(
        const struct param *param, size_t end, struct slice_run *run);
