/* attention_packed.h - builds cuDNN's tables of packed documents on the device,
 * and copies its results to the caller's arrays (layout: attention_choice.h).
 *
 * Tables: (PACKED_TABLES, plane) int32, `bucket` + 1 of each used.
 * Order:  queued on `stream`, a cudaStream_t.
 * Errors: ZD_ERR_DEVICE if a launch is refused. */
#pragma once

#include "kernels/attention/attention_choice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `by_head`: offsets of PACKED_LSE are for (H, B*T), else for (B, H, T). */
enum zd_status attention_packed_tables(
        void *stream, int32_t *tables, const struct packed_room *room,
        const struct attention_shape *shape, bool by_head);
/* Transposes lse (B, H, T) to (H, B*T). */
enum zd_status attention_packed_lse(
        void *stream, float *to, const float *lse,
        const struct attention_shape *shape);
/* Copies dense rows of 16-bit elements to rows with the strides of dq, dk and
 * dv. D % 8 == 0; everything is aligned to 16 bytes. */
enum zd_status attention_packed_results(
        void *stream, void *const to[3], const void *const from[3],
        const struct attention_shape *shape);

/* Compares cuDNN's rows with our own: `heads` rows of D elements per token,
 * tokens `stride` elements apart. *worst (device memory): the largest of |got -
 * own| / (|own| + the root mean square of own), infinite where a row of `got`
 * is not finite; -1: undecided, because our own rows are not finite, or both
 * are all zeros. Runs as one block: it is only for a graph's first use. */
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
