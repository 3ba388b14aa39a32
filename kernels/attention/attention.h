/* attention.h - causal attention within documents, with grouped queries.
 *
 *   Token t of a sample sees the tokens doc_start[t] .. t of the same sample,
 *   at most the last `window` of them. scores = scale * q k^T, or with a soft
 *   cap c: c tanh(scores / c); p = softmax(scores), out = p v. Query head h
 *   uses key/value head h / (H / KV). doc_start does not decrease (documents
 *   are contiguous). Q is the number of queries in a sample: T, or fewer if
 *   only some tokens are queries (struct attention_queries).
 *
 * Source:  Vaswani et al. 2017, arXiv:1706.03762, equation 1; backward by
 *          recomputing p from the log-sum-exp (Dao et al. 2022,
 *          arXiv:2205.14135, algorithm 4): memory is O(T), not O(T^2).
 *          Windows: Beltagy et al. 2020, arXiv:2004.05150, section 3; soft
 *          caps: Gemma 2, arXiv:2408.00118, section 2.
 * Strides: in elements, between the rows of consecutive tokens; within a row
 *          head h begins at h*D. So q, k, v may be parts of one fused array.
 * Scratch: attention_scratch_bytes(...) bytes, the same for both directions. On
 *          the CPU it depends on the number of threads: call it after
 *          kernels_set_threads. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "base/number/host_device.h"

#include <stdint.h>

/* The queries of a sample if they are not all its tokens: `rows` of them in two
 * halves; row r is token r + ahead[r >= rows / 2]. Tokens increase with the
 * row. */
struct attention_queries {
    int rows; /* 0: all T, and row t is token t */
    int ahead[2];
};

struct attention_shape {
    int B, T, H, KV, D;
    int64_t q_stride, k_stride, v_stride; /* also those of dq, dk, dv */
    float scale;                          /* 1/sqrt(D) */
    /* Documents in all B samples, counted by the host; B: every sample is one
     * document; 0: unknown. Only selects a path: doc_start has the same
     * information. */
    int documents;
    /* On the device: the first token of each document, as an index into all
     * B*T, padded with B*T to attention_bucket(documents) + 1 entries; NULL:
     * unknown. Only cuDNN reads it, if documents > B. */
    const int32_t *first_tokens;
    size_t scratch_bytes; /* size of scratch; 0: attention_scratch_bytes */
    int window;           /* tokens seen, with the query's own; 0: no limit */
    float softcap;        /* 0: none */
    struct attention_queries queries;
};
/* Does the window hide tokens within a sample? */
static inline bool attention_slides(const struct attention_shape *shape)
{
    return shape->window > 0 && shape->window < shape->T;
}
/* The first token that token t sees; `start`: where its document begins. */
ZD_HOST_DEVICE static inline int attention_first(int window, int start, int t)
{
    int first = window ? t - window + 1 : 0;
    return start > first ? start : first;
}
/* The queries of rank `place` of `places` that share a sample of T tokens. The
 * sample is cut into 2 places pieces; each rank has one from the front and its
 * mirror image from the end, which balances causal work. */
static inline struct attention_queries attention_share(
        int T, int places, int place)
{
    int piece = T / (2 * places), last = 2 * places - 1 - place;
    return (struct attention_queries){
            2 * piece, {place * piece, (last - 1) * piece}};
}
/* The shape's queries, with `rows` set also if they are all tokens. */
static inline struct attention_queries attention_queries(
        const struct attention_shape *shape)
{
    struct attention_queries all = {shape->T, {0, 0}};
    return shape->queries.rows ? shape->queries : all;
}
ZD_HOST_DEVICE static inline int attention_token(
        struct attention_queries queries, int row)
{
    return row + (row < queries.rows / 2 ? queries.ahead[0] : queries.ahead[1]);
}
/* The first row whose token is at or after t; `rows`: none. */
ZD_HOST_DEVICE static inline int attention_row(
        struct attention_queries queries, int t)
{
    int half = queries.rows / 2, row = t - queries.ahead[0];
    if (row < half)
        return row > 0 ? row : 0;
    row = t - queries.ahead[1];
    row = row > half ? row : half;
    return row < queries.rows ? row : queries.rows;
}

/* The number of documents rounded up to a power of two, so that cuDNN needs few
 * graphs. 0: documents are too short on average for cuDNN. */
int attention_bucket(const struct attention_shape *shape);

/* On a GPU (attention_choice.h). AUTO: cuDNN for shapes that it computes
 * deterministically and, as timed, faster; else our own kernels. CUDNN: cuDNN
 * even if its dq is not deterministic; an error without cuDNN. OWN: never
 * cuDNN. */
enum attention_choice { ATTENTION_AUTO, ATTENTION_CUDNN, ATTENTION_OWN };
/* Call once at start, before anything is planned: it changes the size of
 * scratch. */
void kernels_set_attention(enum attention_choice choice);
enum attention_choice kernels_attention(void);

/* `backend` is not AUTO; a GPU's need can be planned on a machine without one.
 * The result suffices for any `documents`. */
size_t attention_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype,
        enum device_backend backend);

/* A pass. Rows of the gradients have the strides of q, k and v. */
struct attention {
    const struct attention_shape *shape;
    const void *q;            /* B*Q rows */
    const void *k, *v;        /* B*T rows */
    const int32_t *doc_start; /* (B, Q): index within the sample */
    void *scratch;
    void *out;  /* (B*Q, H*D), rows H*D apart; backward reads it */
    float *lse; /* (B, H, Q) log-sum-exp; backward reads it */
    /* backward only */
    const void *dout;   /* (B*Q, H*D) */
    void *dq, *dk, *dv; /* overwritten */
};

typedef enum zd_status attention_fn(
        struct stream *stream, const struct attention *a);
typedef attention_fn attention_forward_fn, attention_backward_fn;

/* New tokens against a cache of keys and values, for generation. The n new
 * tokens are at positions past .. past+n-1 of one document. k, v: (capacity,
 * KV*D), the new rows already stored; q: n rows; out: (n, H*D). Reads no other
 * field, and of the shape H, KV, D, q_stride, scale, window and softcap. */
typedef enum zd_status attention_decode_fn(
        struct stream *stream, const struct attention *a, int n, int past);

/* The widest head of the plain and fast CPU attention. */
enum { ATTENTION_MAX_D = 512 };
