/* gate.h - a gate that a stream stops at until the test opens it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
};
#define GATE                                                                   \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false             \
    }

static inline void gate_pass(void *ctx, int64_t arg)
{
    struct gate *gate = (struct gate *)ctx;
    (void)arg;
    pthread_mutex_lock(&gate->lock);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* The main of a thread. */
static inline void *gate_open_later(void *gate)
{
    gate_open((struct gate *)gate);
    return NULL;
}
