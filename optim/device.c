/* device.c - the tables of devices; that of the CPU is optim.h on all OpenMP
 * threads. */
#include "optim/device.h"

#include "base/device/device.h"
#include "zd_config.h"

#if ZD_HAVE_CUDA
#include "optim/device_cuda.h"
#endif

enum { TURN = 65536 }; /* elements that keep a thread busy */

/* --- conversions ---------------------------------------------------------- */

static enum zd_status convert(
        void *to, enum dtype to_type, const void *from, enum dtype from_type,
        size_t count)
{
    size_t turns = (count + TURN - 1) / TURN;
#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = turn * TURN;
        dtype_convert(
                (char *)to + at * dtype_bytes(to_type), to_type,
                (const char *)from + at * dtype_bytes(from_type), from_type,
                count - at < TURN ? count - at : TURN);
    }
    return ZD_OK;
}

static enum zd_status round_values(float *values, enum dtype type, size_t count)
{
    size_t turns = (count + TURN - 1) / TURN;
#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = turn * TURN;
        dtype_round(values + at, type, count - at < TURN ? count - at : TURN);
    }
    return ZD_OK;
}

/* Elements [begin, 2 begin) move to where those before them lay, which have
 * moved, so each doubling can be shared among threads. */
static enum zd_status narrow(float *values, enum dtype type, size_t count)
{
    size_t begin = count < TURN ? count : TURN;
    dtype_narrow_in_place(values, type, begin);
    for (size_t n = begin; begin < count; begin += n, n = begin) {
        n = count - begin < n ? count - begin : n;
        convert((uint16_t *)values + begin, type, values + begin, DTYPE_FP32,
                n);
    }
    return ZD_OK;
}

static const struct optim_device cpu_table = {
        .update = optim_update_threads,
        .add_squares = optim_add_squares_threads,
        .add_block_sums = optim_add_block_sums_threads,
        .update_blocks = optim_update_blocks,
        .lane_clear = optim_lane_clear,
        .convert = convert,
        .round = round_values,
        .narrow = narrow};

#if ZD_HAVE_CUDA
static const struct optim_device cuda_table = {
        .update = optim_update_cuda,
        .add_squares = optim_add_squares_cuda,
        .add_block_sums = optim_add_block_sums_cuda,
        .update_blocks = optim_update_blocks_cuda,
        .lane_clear = optim_lane_clear_cuda,
        .convert = optim_convert_cuda,
        .round = optim_round_cuda,
        .narrow = optim_narrow_cuda};
#endif

const struct optim_device *optim_device(void)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        return &cuda_table;
#endif
    return &cpu_table;
}
