/* threads.h - threads that CPU operations use (OpenMP). */
#ifndef ZD_KERNELS_CPU_THREADS_H
#define ZD_KERNELS_CPU_THREADS_H

/* And every other OpenMP region of the calling thread; call once at start. */
void kernels_set_threads(int threads);
/* As set; all of them when that was not called. */
int kernels_threads(void);

#endif
