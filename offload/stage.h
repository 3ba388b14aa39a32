/* stage.h - a ring of buffers that chunks pass through between a stream and the
 * workers. Passages are numbered in the order in which the trainer asked for
 * them; number n uses buffer n % STAGE_BUFFERS, after n - STAGE_BUFFERS has
 * left it. Private to offload. */
#ifndef ZD_OFFLOAD_STAGE_H
#define ZD_OFFLOAD_STAGE_H

#include "offload/store.h"

#include <pthread.h>

enum { STAGE_BUFFERS = 4 };

struct stage {
    char *memory;
    size_t buffer_bytes;
    uint64_t next;        /* number of the next passage; the trainer's */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    uint64_t filled[STAGE_BUFFERS], emptied[STAGE_BUFFERS]; /* times */
};

/* Bytes of the rings that a request needs: gradients, then parameters. */
size_t stage_bytes(const struct offload_request *request);
/* Of the first of them alone; 0 where gradients need none. */
size_t stage_grad_bytes(const struct offload_request *request);

void stage_init(struct stage *stage, void *memory, size_t buffer_bytes);
void stage_fini(struct stage *stage);
void *stage_buffer(const struct stage *stage, uint64_t number);
/* Wait until the buffer is free / full for this number. */
void stage_await_empty(struct stage *stage, uint64_t number);
void stage_await_filled(struct stage *stage, uint64_t number);
void stage_note_filled(struct stage *stage, uint64_t number);
void stage_note_emptied(struct stage *stage, uint64_t number);

#endif
