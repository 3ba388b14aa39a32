/* plain.h - the tables of plain definitions, one for each compute type. */
#pragma once

#include "kernels/kernels.h"

extern const struct kernels kernels_plain_fp32;
extern const struct kernels kernels_plain_bf16;
extern const struct kernels kernels_plain_fp16;
