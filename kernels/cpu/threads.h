/* threads.h - threads that CPU operations use (OpenMP). */
#pragma once

/* And every other OpenMP region of the calling thread; call once at start. */
void kernels_set_threads(int threads);
/* As set; all of them when that was not called. No more than OpenMP starts
 * (OMP_THREAD_LIMIT). With OMP_DYNAMIC it may start fewer: a kernel computes
 * all of its work with any number. */
int kernels_threads(void);
/* Before a call of a library, which cuts its work for the threads it asks for
 * and computes only a part of it, or waits for ever, where OpenMP starts fewer.
 * Settings of the calling thread: at most `threads`, and exactly as many as are
 * asked for. Returns how many. */
int kernels_library_threads(int threads);
