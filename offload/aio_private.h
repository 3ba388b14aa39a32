/* aio_private.h - what the queue (aio.c) and the ring (aio_uring.c) share. */
#ifndef ZD_OFFLOAD_AIO_PRIVATE_H
#define ZD_OFFLOAD_AIO_PRIVATE_H

#include "offload/aio.h"

#include <pthread.h>

/* A part of an op, of at most block_bytes. */
struct aio_transfer {
    struct aio_op *op;
    size_t at, bytes; /* within the op: what is still to be moved */
};

struct aio_uring;

struct aio {
    struct aio_options options; /* backend settled */
    int refused;

    pthread_mutex_t lock;        /* of all below */
    pthread_cond_t changed;      /* an op was queued, a batch ended, or stop */
    struct aio_op *first, *last; /* ops with bytes left to cut */
    int under_way;               /* transfers */
    int batch_left; /* without overlap_events: of the batch being taken */
    bool stop;
    bool ring_waits; /* its thread waits in the kernel: wake it there */

    struct aio_uring *uring; /* NULL: threads */
    int thread_count;
    pthread_t threads[];
};

/* Both with aio->lock held. */
bool aio_can_take(const struct aio *aio);
struct aio_transfer aio_take(struct aio *aio);
/* A transfer moved `result` bytes, or failed with -result. Returns true when
 * the rest of it is to be made; else the transfer is over, and so may its op
 * be. Without the lock. */
bool aio_goes_on(struct aio *aio, struct aio_transfer *transfer, long result);

/* aio_uring.c. Setting up returns an errno. */
int aio_uring_try(void);
int aio_uring_create(int queue_depth, struct aio_uring **uring_out);
void aio_uring_destroy(struct aio_uring *uring);
int aio_uring_register(
        struct aio_uring *uring, const struct iovec *buffers, int count);
void *aio_uring_run(void *aio); /* its thread */
void aio_uring_wake(struct aio_uring *uring);

#endif
