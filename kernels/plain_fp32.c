#include "kernels/plain.h"

#include <assert.h>
#include <math.h>

#define ELEM     float
#define REAL     float
#define LOAD(x)  ((double)(x))
#define ROUND(v) ((float)(v))
#define NAME(op) op##_plain_fp32

#include "kernels/plain_ops.inc"

const struct kernels kernels_plain_fp32 = {
        .dtype = DTYPE_FP32,
        .name = "plain fp32",
        .logits_dtype = DTYPE_FP32,
        .add_losses = add_losses_cpu,
        .matmul = matmul_plain_fp32,
        .matmul_codes = matmul_codes_plain_fp32,
#define OP(op) .op = op##_plain_fp32,
        KERNELS_EACH(OP)
#undef OP
};
