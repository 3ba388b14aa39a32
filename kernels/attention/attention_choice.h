/* attention_choice.h - decides whether cuDNN may compute attention of a shape
 * on a GPU. The answer depends only on the shape and the facts below. The plan
 * sizes scratch by it, a run follows it (with "auto" it also times cuDNN
 * against our own kernels), and `zerod doctor` prints it.
 *
 * Source: the restrictions of cuDNN 9, from the checks of cudnn-frontend 1.32
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
    bool has_cudnn; /* built with cuDNN, and if it was tried, it opened */
    int cudnn;      /* 91900: 9.19; 0: unknown */
    int major;      /* of the GPU's compute capability; 0: no GPU here */
};

struct attention_answer {
    /* Scratch for cuDNN, besides that of our own kernels: an upper bound, which
     * a run replaces by what the graphs ask for. */
    size_t work_bytes[ATTENTION_DIRECTIONS];
    const char *why[ATTENTION_DIRECTIONS]; /* not cuDNN; static; "": cuDNN */
    bool is_packed; /* cuDNN gets the documents' offsets */
};

/* With shape->documents 0 (unknown) the answer is our own kernels. */
struct attention_answer attention_choose(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
/* The same shape with the number of documents that a plan assumes for packed
 * data. */
struct attention_shape attention_packed_case(
        const struct attention_shape *shape,
        const struct attention_facts *facts);
/* An upper bound on work_bytes for this shape with any number of documents. */
size_t attention_work_bound(
        const struct attention_shape *shape,
        const struct attention_facts *facts);

/* Our own kernels' part at the front of the scratch: delta of every row. */
size_t attention_own_scratch_bytes(const struct attention_shape *shape);

/* The layout of cuDNN's work space for packed documents: tables of the
 * documents, then its results before they are copied to the caller's arrays.
 * Offsets are in bytes from the start of the work space. */
enum packed_table {
    PACKED_LENGTHS, /* tokens of each document */
    PACKED_Q,       /* offset of each in elements, by q's stride */
    PACKED_K,
    PACKED_V,
    PACKED_OUT, /* rows H*D apart: out, dout, dq */
    PACKED_KV,  /* rows KV*D apart: dk, dv */
    PACKED_LSE,
    PACKED_TABLES
};
struct packed_room {
    int bucket;             /* documents, including empty ones */
    size_t plane;           /* int32 from one table to the next */
    size_t lse, dq, dk, dv; /* lse: (H, B*T); the others: dense rows */
    size_t graph;           /* the rest belongs to the graph */
};
struct packed_room attention_packed_room(
        const struct attention_shape *shape, int direction);

/* Bytes after `graph` for our own results of one sample. The first results of a
 * graph are compared with them. */
size_t attention_check_bytes(
        const struct attention_shape *shape, int direction);

#ifdef __cplusplus
}
#endif
