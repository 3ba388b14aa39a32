#include "kernels/plain.h"
#include "kernels/plain_round.h"

#include <assert.h>
#include <math.h>

#define ELEM     uint16_t
#define REAL     float
#define LOAD(x)  ((double)bf16_to_float(x))
#define ROUND(v) float_to_bf16(round_to_odd(v))
#define NAME(op) op##_plain_bf16

#include "kernels/plain_ops.inc"

const struct kernels kernels_plain_bf16 = {
        .dtype = DTYPE_BF16,
        .name = "plain bf16",
        .logits_dtype = DTYPE_FP32,
        .add_losses = add_losses_cpu,
        .matmul = matmul_plain_bf16,
        .matmul_codes = matmul_codes_plain_bf16,
#define OP(op) .op = op##_plain_bf16,
        KERNELS_EACH(OP)
#undef OP
};
