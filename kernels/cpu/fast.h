/* fast.h - shared by the fast CPU paths: vectors and threads.
 *
 * A path defines functions with the types of its family's header, and
 * fast_table.c lists them by name, so a wrong signature does not compile.
 *
 * A fast path may divide its rows, columns or tiles among threads in any way,
 * but the terms of a sum and their order depend only on the shapes. So the bits
 * do not depend on the number of threads. */
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/cpu/threads.h"

#include <assert.h>
#include <math.h>
#include <omp.h>

/* Threads to use for `work` elements: waking threads costs microseconds, and
 * much more if ranks share cores. */
static inline int threads_for(size_t work)
{
    return work < 32768 ? 1 : kernels_threads();
}
