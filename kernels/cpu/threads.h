/* threads.h - the number of OpenMP threads of CPU operations. */
#pragma once

/* Also applies to every other OpenMP region of the calling thread. Call once at
 * start. */
void kernels_set_threads(int threads);
/* The number that was set, by default all that OpenMP offers, limited by
 * OMP_THREAD_LIMIT. With OMP_DYNAMIC OpenMP may start fewer: a kernel must
 * complete its work with any number. */
int kernels_threads(void);
/* Call before a library that divides its work among the threads it requests: if
 * OpenMP starts fewer, it computes only a part or hangs. Sets the calling
 * thread to at most `threads`, without OMP_DYNAMIC. Returns the number. */
int kernels_library_threads(int threads);
