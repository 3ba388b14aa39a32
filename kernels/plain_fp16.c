#include "kernels/plain.h"
#include "kernels/plain_round.h"

#include <assert.h>
#include <math.h>

#define ELEM     uint16_t
#define REAL     float
#define LOAD(x)  ((double)fp16_to_float(x))
#define ROUND(v) float_to_fp16(round_to_odd(v))
#define NAME(op) op##_plain_fp16

#include "kernels/plain_ops.inc"

const struct kernels kernels_plain_fp16 = {
        .dtype = DTYPE_FP16,
        .name = "plain fp16",
        .logits_dtype = DTYPE_FP32,
        .add_losses = add_losses_cpu,
        .matmul = matmul_plain_fp16,
        .matmul_codes = matmul_codes_plain_fp16,
#define OP(op) .op = op##_plain_fp16,
        KERNELS_EACH(OP)
#undef OP
};
