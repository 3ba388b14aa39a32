/* fast.h - what the fast CPU paths share: vectors, and their threads.
 *
 * A path declares what it defines by the type of its family's header, and
 * fast_table.c has them all by their names: they cannot drift apart.
 *
 * A fast path divides its rows, columns or tiles among threads in any way it
 * likes; what one row, column or tile sums, and in which order, depends on the
 * shapes alone. So the bits do not depend on the number of threads. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/cpu/threads.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

/* Threads worth waking for `work` elements: waking them costs microseconds,
 * and much more where ranks share cores. */
static inline int threads_for(size_t work)
{
    return work < 32768 ? 1 : kernels_threads();
}
