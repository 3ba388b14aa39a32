#include "kernels/plain.h"

#include <assert.h>
#include <math.h>

/* A double to bf16, rounded once: through float it would be rounded twice, so
 * the float is first made odd where it is inexact (Boldo, Melquiond 2008). */
static uint16_t round_bf16(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isfinite(f) && (double)f != v) {
        if (fabs((double)f) > fabs(v))
            bits--;
        bits |= 1u;
        memcpy(&f, &bits, sizeof f);
    }
    return float_to_bf16(f);
}

#define ELEM     uint16_t
#define REAL     float
#define LOAD(x)  ((double)bf16_to_float(x))
#define ROUND(v) round_bf16(v)
#define NAME(op) op##_plain_bf16

#include "kernels/plain_ops.inc"

#include "kernels/plain_attention.inc"

const struct kernels kernels_plain_bf16 = {
        .dtype = DTYPE_BF16,
        .name = "plain bf16",
#define OP(op) .op = op##_plain_bf16,
        KERNELS_EACH(OP)
#undef OP
};
