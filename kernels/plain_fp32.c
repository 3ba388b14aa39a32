#include "kernels/plain.h"

#include <assert.h>
#include <math.h>

#define ELEM     float
#define REAL     float
#define DTYPE    DTYPE_FP32
#define LOAD(x)  ((double)(x))
#define ROUND(v) ((float)(v))
#define NAME(op) op##_plain_fp32
#define TABLE    kernels_plain_fp32

#include "kernels/plain_ops.inc"
#include "kernels/plain_table.inc"
