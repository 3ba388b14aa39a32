/* device_cuda.h - the functions of optim/device.h on a GPU: *_cuda.cu of this
 * folder. Private to optim. */
#pragma once

#include "optim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zd_status optim_update_cuda(
        const struct optim_span *span, const struct optim_step *step);
enum zd_status optim_add_squares_cuda(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count);
enum zd_status optim_add_block_sums_cuda(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm);
enum zd_status optim_update_blocks_cuda(
        float *block_v, const int64_t *sums, const struct tensor_blocks *blocks,
        const struct optim_step *step, double norm);
enum zd_status optim_lane_clear_cuda(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count);
enum zd_status optim_convert_cuda(
        void *to, enum dtype to_type, const void *from, enum dtype from_type,
        size_t count);
enum zd_status optim_round_cuda(float *values, enum dtype type, size_t count);
enum zd_status optim_narrow_cuda(float *values, enum dtype type, size_t count);

#ifdef __cplusplus
}
#endif
