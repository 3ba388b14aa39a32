/* library.h - matmuls by oneDNN or OpenBLAS, behind one door.
 *
 * Which implementation a machine uses depends on its instruction set alone (see
 * kernels.c), never on a race, so bits do not change from run to run. */
#pragma once

#include "kernels/matmul/matmul.h"

/* "oneDNN 2.6", "OpenBLAS 0.3.21". */
const char *matmul_library(void);

/* Whether it multiplies bf16 on AMX tiles here. */
bool library_has_amx(void);

/* All of fp32, on `threads`; no gaps, no epilogue. ZD_ERR_DEVICE if the library
 * refuses. */
enum zd_status library_sgemm(const struct matmul *m, int threads);

/* By a oneDNN matmul primitive for the operands' type. ZD_ERR_UNFIT, without a
 * record, if oneDNN has none for this CPU and type, or there is no oneDNN.
 * Primitives are made when first used, and kept. */
enum zd_status library_primitive(const struct matmul *m, int threads);
