/* threads.h - threads of our own. Signals are for the main thread, so every
 * other one blocks all but faults (SIGSEGV and the like), which are its own. */
#pragma once

#include <pthread.h>

/* Start body(ctx) as a thread of that name, of which the system keeps 15
 * letters. Returns what pthread_create does: 0, or an error number and no
 * thread. */
int thread_start(
        pthread_t *thread_out, const char *name, void *(*body)(void *),
        void *ctx);
