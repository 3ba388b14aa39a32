/* scratch.h - a pool of scratch memory for matmuls.
 *
 * A process has one block per rank that is one of its threads. A block is
 * allocated the first time that this many are in use at once, and never freed,
 * so steps do not allocate. Thread-safe. */
#pragma once

#include "base/status.h"

struct scratch;

/* At least `bytes`, aligned to a page, contents undefined. ZD_ERR_MEMORY. */
enum zd_status scratch_acquire(size_t bytes, struct scratch **scratch_out);
void scratch_release(struct scratch *scratch);

float *scratch_floats(struct scratch *scratch);
