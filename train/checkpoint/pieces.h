/* pieces.h - the arrays of an open checkpoint: which file has which
 * elements of which tensor, read for any cut. Internal to the checkpoint. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* Elements [begin, begin+count) of a tensor; with `slice` of that slice of it,
 * whose padding is left as it is. Scales are counted by the elements they cover
 * (OPTIM_QBLOCK each), blocks by themselves. */
struct pieces_range {
    const char *name;
    const struct param *slice; /* NULL: the tensor itself */
    size_t begin, count;
};

/* How a lane of a tensor was saved; NONE when it was not. */
enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name);
/* Did the tensor train? Then it holds its weights. */
bool pieces_trained(const struct checkpoint *checkpoint, const char *name);
enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const struct pieces_range *range,
        float *out);
/* Those of a lane as they were saved. ZD_ERR_DATA when some are missing. Of
 * 8-bit lanes with their scales; then `begin` is a multiple of 256, and so are
 * the elements at which runs of the slice begin. */
enum zd_status pieces_read_lane(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const struct pieces_range *range, void *values, float *scales);
/* Adam-mini's v of all `count` blocks of a tensor. */
enum zd_status pieces_read_blocks(
        const struct checkpoint *checkpoint, const char *name, size_t count,
        float *out);
