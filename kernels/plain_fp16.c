#include "kernels/plain.h"
#include "kernels/plain_round.h"

#include <assert.h>
#include <math.h>

#define ELEM     uint16_t
#define REAL     float
#define DTYPE    DTYPE_FP16
#define LOAD(x)  ((double)fp16_to_float(x))
#define ROUND(v) float_to_fp16(round_to_odd(v))
#define NAME(op) op##_plain_fp16
#define TABLE    kernels_plain_fp16

#include "kernels/plain_ops.inc"
#include "kernels/plain_table.inc"
