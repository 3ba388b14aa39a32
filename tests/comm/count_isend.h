/* count_isend.h - the transport's own count: MPI_Isend of this program counts
 * what it is given and passes it on to PMPI_Isend. */
#pragma once

#include <stdint.h>

/* Bytes sent so far with a tag (of 0 .. 15). */
uint64_t isend_bytes(int tag);
