/* device.h - the functions of optim.h for the thread's current device, in the
 * order of its compute stream.
 *
 * Pointers of arrays (spans, lanes, sums, blocks of v) are of the device;
 * structs and step->options are the host's and are read before the call
 * returns. On the CPU these are the functions of optim.h on all OpenMP threads.
 * Both give the same bits. */
#pragma once

#include "optim/optim.h"

/* Values of one type to another, to nearest even; no overlap. */
typedef enum zd_status optim_convert_fn(
        void *to, enum dtype to_type, const void *from, enum dtype from_type,
        size_t count);
typedef enum zd_status optim_round_fn(
        float *values, enum dtype type, size_t count);

struct optim_device {
    optim_update_fn *update;
    /* *sum is device memory and starts all-zero. The host reads it
     * (device_read) and carries it. */
    optim_add_squares_fn *add_squares;
    optim_add_block_sums_fn *add_block_sums;
    optim_update_blocks_fn *update_blocks;
    optim_lane_clear_fn *lane_clear;
    optim_convert_fn *convert;
    optim_round_fn *round;  /* floats stay floats of `type`'s precision */
    optim_round_fn *narrow; /* .. become 16-bit values at the front of their
                               own memory */
};

/* The table of the thread's current device. */
const struct optim_device *optim_device(void);
