#include "kernels/cpu/threads.h"

#include <omp.h>

/* Set at start, before any operation runs. Ranks that are threads all set the
 * same value. 0: all that OpenMP offers. */
static _Atomic int kernel_threads;

void kernels_set_threads(int threads)
{
    kernel_threads = threads;
    if (threads > 0)
        omp_set_num_threads(threads);
}

/* OpenMP never starts more threads than its limit. */
static int within_limit(int threads)
{
    int limit = omp_get_thread_limit();
    return threads < limit ? threads : limit;
}

int kernels_threads(void)
{
    return within_limit(
            kernel_threads > 0 ? kernel_threads : omp_get_max_threads());
}

int kernels_library_threads(int threads)
{
    threads = within_limit(threads);
    if (omp_get_dynamic())
        omp_set_dynamic(0);
    if (omp_get_max_threads() != threads)
        omp_set_num_threads(threads);
    return threads;
}
