/* device.h - what the optimizers do to memory of a device: the same as optim.h,
 * on the thread's current device and in the order of its compute stream.
 *
 * Pointers of arrays (spans, lanes, sums, blocks of v) are of the device;
 * structs and step->options are the host's and are read before the call
 * returns. On the CPU these are the functions of optim.h on all OpenMP threads.
 * Both give the same bits. */
#pragma once

#include "optim/optim.h"

struct optim_device {
    enum zd_status (*update)(
            const struct optim_span *span, const struct optim_step *step);
    /* *sum, of the device, begins as bytes of zero. It is the host's to read
     * (device_read) and to carry. */
    enum zd_status (*add_squares)(
            struct exact_sum *sum, const void *grad, enum dtype type,
            size_t count);
    enum zd_status (*add_block_sums)(
            int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
            enum dtype type, size_t begin, size_t count, double norm);
    enum zd_status (*update_blocks)(
            float *block_v, const int64_t *sums,
            const struct tensor_blocks *blocks, const struct optim_step *step,
            double norm);
    enum zd_status (*lane_clear)(
            enum optim_lane lane, enum optim_format format, void *values,
            float *scales, size_t count);

    /* Values of one type to another, to nearest even; no overlap. */
    enum zd_status (*convert)(
            void *to, enum dtype to_type, const void *from,
            enum dtype from_type, size_t count);
    /* Floats that stay floats and have `type`'s precision. */
    enum zd_status (*round)(float *values, enum dtype type, size_t count);
    /* Floats become 16-bit values at the front of their own memory. */
    enum zd_status (*narrow)(float *values, enum dtype type, size_t count);
};

/* The table of the thread's current device. */
const struct optim_device *optim_device(void);
