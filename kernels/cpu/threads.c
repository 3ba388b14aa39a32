#include "kernels/cpu/threads.h"

#include <omp.h>

/* Set at start, before any operation runs, and by ranks that are threads of one
 * process each to the same; 0: all OpenMP offers. */
static _Atomic int kernel_threads;

void kernels_set_threads(int threads)
{
    kernel_threads = threads;
    if (threads > 0)
        omp_set_num_threads(threads);
}

int kernels_threads(void)
{
    return kernel_threads > 0 ? kernel_threads : omp_get_max_threads();
}
