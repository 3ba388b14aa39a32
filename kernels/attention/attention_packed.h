/* attention_packed.h - what cuDNN is told of packed documents, made on the
 * device, and its results put where ours lie (attention_choice.h has the room).
 *
 * Tables: (PACKED_TABLES, plane) int32, `bucket` + 1 of each used.
 * Order:  queued on `stream`, a cudaStream_t.
 * Errors: ZD_ERR_DEVICE if a launch is refused. */
#pragma once

#include "kernels/attention/attention_choice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `by_head`: PACKED_LSE counts in (H, B*T), else in (B, H, T). */
enum zd_status attention_packed_tables(
        void *stream, int32_t *tables, const struct packed_room *room,
        const struct attention_shape *shape, bool by_head);
/* to (H, B*T) from lse (B, H, T). */
enum zd_status attention_packed_lse(
        void *stream, float *to, const float *lse,
        const struct attention_shape *shape);
/* Rows of 16-bit elements without gaps to rows `stride` apart, of dq, dk and
 * dv. D % 8 == 0; everything is aligned to 16 bytes. */
enum zd_status attention_packed_results(
        void *stream, void *const to[3], const void *const from[3],
        const struct attention_shape *shape);

/* How far cuDNN's rows of D elements (of each token `heads`, tokens `stride`
 * elements apart) are from our own: the largest of |got - own| / (|own| + the
 * root of the mean of |own|^2), infinite where a row of `got` is not finite.
 * *worst, of the device; -1: our own say nothing, since they are not finite or
 * all zeros like cuDNN's. By one block: it is for a graph's first use. */
struct packed_rows {
    const void *at;
    int64_t stride;
};
enum zd_status attention_packed_compare(
        void *stream, float *worst, enum dtype dtype, struct packed_rows own,
        struct packed_rows got, int heads, int D, int64_t tokens);

#ifdef __cplusplus
}
#endif
