/* stage.h - a ring of buffers between a stream and the workers, through which
 * chunks pass. Passages are numbered in the order in which the trainer requests
 * them; passage n uses buffer n % STAGE_BUFFERS, after passage n -
 * STAGE_BUFFERS has left it. Private to offload. */
#pragma once

#include "base/device/lease.h"
#include "offload/store.h"

enum { STAGE_BUFFERS = 4 };

struct stage {
    char *memory;
    size_t buffer_bytes;
    uint64_t next; /* number of the next passage; only the trainer uses it */
    struct tally filled[STAGE_BUFFERS], emptied[STAGE_BUFFERS]; /* times */
};

/* Bytes of the rings that a request needs: gradients, then parameters. */
size_t stage_bytes(const struct offload_request *request);
/* Bytes of the gradients' ring; 0 if gradients need none. */
size_t stage_grad_bytes(const struct offload_request *request);

void stage_init(struct stage *stage, void *memory, size_t buffer_bytes);
void stage_fini(struct stage *stage);
void *stage_buffer(const struct stage *stage, uint64_t number);
/* Done when the buffer is free, or full, for this passage. */
struct token stage_empty(struct stage *stage, uint64_t number);
struct token stage_full(struct stage *stage, uint64_t number);
void stage_note_filled(struct stage *stage, uint64_t number);
void stage_note_emptied(struct stage *stage, uint64_t number);
