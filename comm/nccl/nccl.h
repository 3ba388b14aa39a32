/* nccl.h - the NCCL back end, for the choice of back ends in comm/. Without
 * ZD_HAVE_NCCL every call fails and says so. */
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

/* Sums in rank order: the number of slots that one operation's exchange needs,
 * each for a piece of a shard. Kernels move 16 bytes at a time, and messages
 * are aligned. */
enum { NCCL_SLOT_ALIGN = 256 };
size_t nccl_ordered_slots(int world, int nodes);
