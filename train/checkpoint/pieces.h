/* pieces.h - reads any range of the arrays of an open checkpoint. Internal to
 * the checkpoint. */
#pragma once

#include "train/checkpoint/checkpoint.h"

/* Elements [begin, begin+count) of a tensor, or with `slice` of that slice,
 * whose padding is not written. Ranges of scales are in elements (OPTIM_QBLOCK
 * each), ranges of blocks in blocks. */
struct pieces_range {
    const char *name;
    const struct param *slice; /* NULL: the tensor itself */
    size_t begin, count;
};

/* The format in which a tensor's lane was saved; NONE: it was not. */
enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name);
/* Did the tensor train? Then the checkpoint holds its weights. */
bool pieces_trained(const struct checkpoint *checkpoint, const char *name);
enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const struct pieces_range *range,
        float *out);
/* Reads values of a lane as saved. ZD_ERR_DATA if some are missing. For 8-bit
 * lanes also reads scales; then `begin` and the starts of the slice's runs must
 * be multiples of 256. */
enum zd_status pieces_read_lane(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const struct pieces_range *range, void *values, float *scales);
/* Reads Adam-mini's v of all `count` blocks of a tensor. */
enum zd_status pieces_read_blocks(
        const struct checkpoint *checkpoint, const char *name, size_t count,
        float *out);
