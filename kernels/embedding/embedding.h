/* embedding.h - looks up rows of a table by index; backward is the transpose.
 *
 * Backward adds the rows of dout to the rows of dtable in token order (so equal
 * ids sum in a fixed order); dtable is never cleared here. An id below 0 refers
 * to a row of another table: it reads zeros and adds nothing. */
#pragma once

#include "base/device/device.h"

#include <stdint.h>

typedef enum zd_status embedding_forward_fn(
        struct stream *stream, void *out, /* (N, C) */
        const int32_t *ids,               /* (N), each < the table's rows */
        const void *table,                /* (rows, C) */
        int N, int C, bool add);          /* out += instead of out = */

typedef enum zd_status embedding_backward_fn(
        struct stream *stream, float *dtable, /* (rows, C), added to */
        const int32_t *ids,                   /* (N) */
        const int32_t *order, /* (N) tokens sorted by id, and by index among
                                 equal ids; ids below 0 last. NULL on the CPU,
                                 which does not read it */
        const void *dout,     /* (N, C) */
        int N, int C);

/* On the host: computes `order` from ids. scratch: (rows + 1). */
void embedding_order(
        int32_t *order, const int32_t *ids, int N, int rows, int32_t *scratch);
