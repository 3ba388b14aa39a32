/* cross_entropy.h - the loss of a chunk of tokens and its gradient, in one pass
 * over the logits.
 *
 *   loss_n = logsumexp(logits_n) - logits_n[target_n]
 *   dlogits_n = (softmax(logits_n) - onehot(target_n)) * dloss
 *
 * applied to y = scale z for logits z (`map`), or with a soft cap c to y = c
 * tanh(scale z / c); dlogits is the gradient of z.
 *
 * A row whose target is negative is masked: loss 0, gradient 0.
 *
 * Rows of logits and of their gradients are `stride` elements apart; elements
 * after the V-th are neither read nor written.
 *
 * With a sliced vocabulary each rank has the logits of some ids. Ranks exchange
 * the row_score of each row and merge them in the same order,
 *
 *   top = max top_i      sum = sum_i sum_i e^(top_i - top)
 *   loss = top + log(sum) - target      dlogits as above, for its ids
 *
 * Source: soft cap: Gemma 2, arXiv:2408.00118, section 2. */
#pragma once

#include "base/device/device.h"
#include "base/number/dtype.h"

#include <stdint.h>

struct logit_map {
    float scale;   /* above 0 */
    float softcap; /* 0: none */
};
/* On the host, in place; for generation. */
void logit_map_apply(const struct logit_map *map, float *logits, size_t count);

/* Columns 0 .. count - 1 of a row are the logits of ids first .. first + count
 * - 1; columns count .. columns - 1 are padding with gradient 0. */
struct vocabulary_slice {
    int first, count, columns;
};

struct loss_rows {
    float *losses;          /* (n), the same in each slice */
    void *dlogits;          /* (n, columns) compute type; NULL: loss only; may
                               be `logits` itself when the types agree */
    const void *logits;     /* (n, count), type: the table's logits_dtype */
    const int32_t *targets; /* (n); < 0 = masked */
    float dloss;            /* weight of each token's loss in the total */
    int n, stride;
    struct vocabulary_slice slice;
    const struct logit_map *map; /* NULL: logits as they are */
};

/* For a whole vocabulary. */
typedef enum zd_status cross_entropy_fn(
        struct stream *stream, const struct loss_rows *rows);

/* Elements from one row of logits to the next. Fast matmuls of a GPU (16-byte
 * accesses, tensor maps) need rows that begin at multiples of 16 bytes, so a
 * vocabulary of 50257 gets padding. */
static inline int logits_stride(enum device_backend backend, int V)
{
    enum { GPU_ROW = 64 };
    return backend == DEVICE_CUDA ? (V + GPU_ROW - 1) / GPU_ROW * GPU_ROW : V;
}

/* Of a row's mapped logits y: the largest, the sum of e^(y - top), and the
 * target's. Without columns top is ROW_NONE and sum 0; target is ROW_NONE if it
 * is in another slice. */
struct row_score {
    float top, sum, target;
};
#define ROW_NONE (-3.0e38f)

typedef enum zd_status row_scores_fn(
        struct stream *stream, struct row_score *scores, /* (n) */
        const struct loss_rows *rows);

typedef enum zd_status row_losses_fn(
        struct stream *stream, const struct loss_rows *rows,
        const struct row_score *scores, /* (slices, n) */
        int slices);
