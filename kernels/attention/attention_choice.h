/* attention_choice.h - who may do attention on a GPU: one answer, from the
 * shape and from what is known of the machine, and from nothing else. The plan
 * counts by it, a run acts by it (with auto, what cuDNN may do is timed against
 * our own kernels), `zerod doctor` prints it.
 *
 * Source: what cuDNN 9 refuses, from the checks of cudnn-frontend 1.32
 *         (node/scaled_dot_product_flash_attention.h). */
#pragma once

#include "kernels/attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_FORWARD, ATTENTION_BACKWARD, ATTENTION_DIRECTIONS };

struct attention_facts {
    enum attention_choice choice; /* model.attn */
    enum dtype dtype;
    bool has_cudnn; /* this program speaks it, and it opens if it was asked */
    int cudnn;      /* 91900: 9.19; 0: no one could ask it */
    int major;      /* of the GPU's compute capability; 0: no GPU to ask */
};

struct attention_answer {
    /* For cuDNN, after what our own kernels use: a bound on what its graphs
     * need, which a run replaces by what they do need. */
    size_t work_bytes[ATTENTION_DIRECTIONS];
    const char *why[ATTENTION_DIRECTIONS]; /* not cuDNN; static; "": cuDNN */
    bool is_packed; /* cuDNN is told where documents begin */
};

/* shape->documents 0: no one counted, which is our own kernels'. */
struct attention_answer attention_choose(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
/* The same shape with as many documents as a plan takes for packed data. */
struct attention_shape attention_packed_case(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
/* Bytes that no answer for this shape exceeds, whatever its documents. */
size_t attention_work_bound(
        const struct attention_shape *shape,
        const struct attention_facts *facts);

/* The front of the scratch, which our own kernels use: delta of every row. */
size_t attention_own_scratch_bytes(const struct attention_shape *shape);

/* What cuDNN is told of packed documents, and its results before they are put
 * where ours lie; bytes from the begin of its work space. */
enum packed_table {
    PACKED_LENGTHS, /* tokens of each document */
    PACKED_Q,       /* elements before each, in rows of that stride */
    PACKED_K,
    PACKED_V,
    PACKED_OUT, /* rows H*D apart: out, dout, dq */
    PACKED_KV,  /* rows KV*D apart: dk, dv */
    PACKED_LSE,
    PACKED_TABLES
};
struct packed_room {
    int bucket;             /* documents, the empty ones too */
    size_t plane;           /* int32 from one table to the next */
    size_t lse, dq, dk, dv; /* (H, B*T); rows without gaps */
    size_t graph;           /* what is left is the graph's */
};
struct packed_room attention_packed_room(
        const struct attention_shape *shape, int direction);

/* Bytes after `graph` that hold our own results of one sample, which a graph's
 * first ones are compared with when it is done. */
size_t attention_check_bytes(
        const struct attention_shape *shape, int direction);

#ifdef __cplusplus
}
#endif
