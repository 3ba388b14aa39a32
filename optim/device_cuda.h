/* device_cuda.h - the functions of optim/device.h on a GPU: *_cuda.cu of this
 * folder. Private to optim. */
#pragma once

#include "optim/device.h"

#ifdef __cplusplus
extern "C" {
#endif

optim_update_fn optim_update_cuda;
optim_add_squares_fn optim_add_squares_cuda;
optim_add_block_sums_fn optim_add_block_sums_cuda;
optim_update_blocks_fn optim_update_blocks_cuda;
optim_lane_clear_fn optim_lane_clear_cuda;
optim_convert_fn optim_convert_cuda;
optim_round_fn optim_round_cuda, optim_narrow_cuda;

#ifdef __cplusplus
}
#endif
