/* plain.h - the tables of plain definitions, one for each compute type. */
#pragma once

#include "kernels/kernels.h"

/* Every operation that is a function per type, to fill a table by name.
 */
#define KERNELS_EACH(OP)                                                       \
    OP(norm_forward)                                                           \
    OP(norm_backward)                                                          \
    OP(head_norm_rope_forward)                                                 \
    OP(head_norm_rope_backward)                                                \
    OP(rope)                                                                   \
    OP(attention_forward)                                                      \
    OP(attention_backward)                                                     \
    OP(attention_decode)                                                       \
    OP(gelu_forward)                                                           \
    OP(gelu_backward)                                                          \
    OP(gated_forward)                                                          \
    OP(gated_backward)                                                         \
    OP(embedding_forward)                                                      \
    OP(embedding_backward)                                                     \
    OP(cross_entropy)                                                          \
    OP(row_scores)                                                             \
    OP(row_losses)                                                             \
    OP(add)                                                                    \
    OP(reduce_rows)                                                            \
    OP(scale_rows)                                                             \
    OP(row_gains)                                                              \
    OP(scale_columns)                                                          \
    OP(column_dots)                                                            \
    OP(dequantize)                                                             \
    OP(codes_rows)                                                             \
    OP(fp8_amax)                                                               \
    OP(fp8_cast)

extern const struct kernels kernels_plain_fp32;
extern const struct kernels kernels_plain_bf16;
extern const struct kernels kernels_plain_fp16;
