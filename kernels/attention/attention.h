/* attention.h - causal attention within documents, grouped queries.
 *
 *   Token t of a sample sees the tokens doc_start[t] .. t of the same sample,
 *   of these the last `window`. scores = scale * q k^T, with a soft cap c of
 *   these c tanh(scores / c); p = softmax(scores), out = p v. Query head h uses
 *   key/value head h / (H / KV). doc_start never falls from a token to the next
 *   (documents lie one after the other). Queries may be some of the tokens
 *   (struct attention_queries), Q of them in a sample; else Q is T.
 *
 * Source:  Vaswani et al. 2017, arXiv:1706.03762, equation 1; backward by
 *          recomputing p from the log-sum-exp (Dao et al. 2022,
 *          arXiv:2205.14135, algorithm 4): memory is O(T), not O(T^2).
 *          Windows: Beltagy et al. 2020, arXiv:2004.05150, section 3; soft
 *          caps: Gemma 2, arXiv:2408.00118, section 2.
 * Strides: in elements, between the rows of consecutive tokens; within a row
 *          head h begins at h*D. So q, k, v may lie in one fused array.
 * Scratch: attention_scratch_bytes(...) bytes, same for both directions. There
 *          is a part for each thread: ask after kernels_set_threads. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"
#include "base/number/host_device.h"

#include <stdint.h>

/* The queries of a sample where they are not all its tokens: `rows` of them in
 * two halves, of which row r is token r + ahead[r >= rows / 2]. Tokens rise
 * from row to row. */
struct attention_queries {
    int rows; /* 0: all T, and row t is token t */
    int ahead[2];
};

struct attention_shape {
    int B, T, H, KV, D;
    int64_t q_stride, k_stride, v_stride; /* also those of dq, dk, dv */
    float scale;                          /* 1/sqrt(D) */
    /* Documents in the B samples together, as the host counted them in what it
     * sent to the device; B: every sample is one document. 0: not known. It
     * chooses a path and says nothing that doc_start does not say. */
    int documents;
    /* On the device: the first token of each document, counted over all B*T,
     * and B*T in the rest of attention_bucket(documents) + 1 places; NULL: not
     * told. cuDNN reads it where documents > B. */
    const int32_t *first_tokens;
    size_t scratch_bytes; /* that are there; 0: attention_scratch_bytes says */
    int window;           /* tokens seen, the own one too; 0: no limit */
    float softcap;        /* 0: none */
    struct attention_queries queries;
};
/* Does the window hide a token that a document does not? */
static inline bool attention_slides(const struct attention_shape *shape)
{
    return shape->window > 0 && shape->window < shape->T;
}
/* The first token that token t sees, whose document begins with `start`. */
ZD_HOST_DEVICE static inline int attention_first(int window, int start, int t)
{
    int first = window ? t - window + 1 : 0;
    return start > first ? start : first;
}
/* Those of one of `places` that share a sample of T tokens: of 2 places pieces
 * it has piece `place` and the one as far from the end, so that each does as
 * much. */
static inline struct attention_queries attention_share(
        int T, int places, int place)
{
    int piece = T / (2 * places), last = 2 * places - 1 - place;
    return (struct attention_queries){
            2 * piece, {place * piece, (last - 1) * piece}};
}
/* With its rows, where those are all tokens too. */
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
/* The first row whose token is t or a later one; `rows`: there is none. */
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

/* Documents are told to cuDNN by the bucket, so that graphs are few: the next
 * power of two. 0: none is told, since documents are too short for it. */
int attention_bucket(const struct attention_shape *shape);

/* On a GPU (attention_choice.h). AUTO: cuDNN where it does a shape with sums in
 * an order that never changes and is faster, as timed, and our own kernels
 * else; CUDNN: also where the
 * sums of dq are in no fixed order, and an error where there is no cuDNN; OWN:
 * never cuDNN. */
enum attention_choice { ATTENTION_AUTO, ATTENTION_CUDNN, ATTENTION_OWN };
/* Once at start, before anything is planned: it changes what scratch is. */
void kernels_set_attention(enum attention_choice choice);
enum attention_choice kernels_attention(void);

/* `backend` is resolved: what a GPU needs can be planned where there is none.
 * Enough for any `documents`. */
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
    /* of backward alone */
    const void *dout;   /* (B*Q, H*D) */
    void *dq, *dk, *dv; /* overwritten */
};

typedef enum zd_status attention_fn(
        struct stream *stream, const struct attention *a);
typedef attention_fn attention_forward_fn, attention_backward_fn;

/* New tokens against a cache of keys and values, for generation. The n new
 * tokens are at positions past .. past+n-1 of one document. k, v: (capacity,
 * KV*D), the new rows already stored; q: n rows; out: (n, H*D). Nothing else is
 * read, and of the shape H, KV, D, q_stride, scale, window and softcap. */
typedef enum zd_status attention_decode_fn(
        struct stream *stream, const struct attention *a, int n, int past);

/* Channels a head may have, in the plain and in the fast attention. */
enum { ATTENTION_MAX_D = 512 };
