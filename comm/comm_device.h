/* comm_device.h - what the back ends for a device's memory share; for this
 * folder only. */
#pragma once

#include "comm/backend.h"

/* to += from, in memory of the thread's device; stream NULL: the compute one.
 */
enum zd_status comm_device_add(
        struct stream *stream, float *to, const float *from, size_t count);

/* Pinned memory of staged collectives: slots of a piece from every rank and one
 * of this rank's own. */
enum { STAGED_SLOTS = 4 };
size_t staged_pinned_bytes(int size, size_t shard_bytes);
