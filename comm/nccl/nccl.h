/* nccl.h - the NCCL back end to the choice of back ends; for comm/
 * only. Without ZD_HAVE_NCCL all of it is refused by name. */
#pragma once

#include "comm/backend.h"

/* Is there a library to open? ZD_ERR_UNFIT, with what was tried. */
enum zd_status nccl_available(void);
/* Joins the ranks of control, each on its own GPU. */
enum zd_status comm_nccl_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out);

/* Device memory in addition to the caller's: sums that are added to fp32
 * shards, and intermediate results of two levels. */
size_t nccl_device_bytes(const struct comm_needs *needs);

/* Sums in rank order: slots that the exchange of one operation needs, each of a
 * piece of a shard. Kernels move 16 bytes at a time, and messages are aligned.
 */
enum { NCCL_SLOT_ALIGN = 256 };
size_t nccl_ordered_slots(int world, int nodes);
