/* library.h - one interface to matmuls of oneDNN and OpenBLAS.
 *
 * The implementation depends only on the machine's instruction set (see
 * kernels.c), never on timing, so bits do not change from run to run. */
#pragma once

#include "kernels/matmul/matmul.h"

/* "oneDNN 2.6", "OpenBLAS 0.3.21". */
const char *matmul_library(void);

/* Whether the library multiplies bf16 on AMX tiles on this machine. */
bool library_has_amx(void);

/* Any fp32 matmul without gaps and epilogue, on `threads` threads.
 * ZD_ERR_DEVICE if the library refuses. */
enum zd_status library_sgemm(const struct matmul *m, int threads);

/* By a oneDNN matmul primitive for the operands' type. ZD_ERR_UNFIT, without a
 * message, if oneDNN has none for this CPU and type, or this build has no
 * oneDNN. Primitives are created at first use and kept. */
enum zd_status library_primitive(const struct matmul *m, int threads);
