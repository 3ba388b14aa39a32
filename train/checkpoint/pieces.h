/* pieces.h - the arrays of an open checkpoint: which file has which
 * elements of which tensor, read for any cut. Internal to the checkpoint. */
#ifndef ZD_TRAIN_CHECKPOINT_PIECES_H
#define ZD_TRAIN_CHECKPOINT_PIECES_H

#include "train/checkpoint/checkpoint.h"

/* Element counts are the tensor's; scales are counted by the elements they
 * cover (OPTIM_QBLOCK each), blocks by themselves. */

/* How a lane of a tensor was saved; NONE when it was not. */
enum optim_format pieces_format(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name);
/* Did the tensor train? Then it holds its weights. */
bool pieces_trained(const struct checkpoint *checkpoint, const char *name);
/* Elements [begin, begin+count) of them. */
enum zd_status pieces_read_weights(
        const struct checkpoint *checkpoint, const char *name, size_t begin,
        size_t count, float *out);
/* Those of a lane as they were saved; scales of 8-bit lanes. `begin` is a
 * multiple of 256. ZD_ERR_DATA when some are missing. */
enum zd_status pieces_read_lane(
        const struct checkpoint *checkpoint, enum optim_lane lane,
        const char *name, size_t begin, size_t count, void *values,
        float *scales);
/* Adam-mini's v of all `count` blocks of a tensor. */
enum zd_status pieces_read_blocks(
        const struct checkpoint *checkpoint, const char *name, size_t count,
        float *out);

#endif
