/* slots.h - the scratch of sums in rank order, to its plan and its use. */
#pragma once

#include <stddef.h>

/* Alignment: kernels move 16 bytes at a time, and messages are aligned. */
enum { NCCL_SLOT_ALIGN = 256 };

/* Slots that the exchange of one operation needs, each of a piece of a shard.
 */
size_t nccl_ordered_slots(int world, int nodes);
