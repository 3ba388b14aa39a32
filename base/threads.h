/* threads.h - threads of our own. Signals are for the main thread, so every
 * other one blocks all but faults (SIGSEGV and the like), which are its own. */
#pragma once

#include "base/must.h"

#include <pthread.h>

/* Start body(ctx) as a thread of that name (the system keeps 15 characters).
 * Returns 0, or the error number of pthread_create. */
int thread_start(
        pthread_t *thread_out, const char *name, void *(*body)(void *),
        void *ctx);

/* The mutex is locked from here to the end of the scope, however that is left:
 * ZD_LOCKED(&offload->lock); */
#define ZD_LOCKED(mutex)                                                       \
    ZD_SCOPED(zd_unlock_at) pthread_mutex_t *zd_locked_ = zd_lock(mutex)
static inline pthread_mutex_t *zd_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}
static inline void zd_unlock_at(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}
