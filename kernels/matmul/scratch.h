/* scratch.h - memory that a matmul borrows while it runs.
 *
 * A small pool: one block in a process whose only trainer calls matmul, one
 * for each rank where ranks are threads. A block is taken from the system the
 * first time so many are needed at once and kept for good, so a step allocates
 * nothing. Safe to call from several threads. */
#pragma once

#include "base/status.h"

struct scratch;

/* At least `bytes`, aligned to a page, contents undefined. ZD_ERR_MEMORY. */
enum zd_status scratch_acquire(size_t bytes, struct scratch **scratch_out);
void scratch_release(struct scratch *scratch);

float *scratch_floats(struct scratch *scratch);
