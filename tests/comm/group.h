/* group.h - ranks as threads of one process, over comm_local or each with a
 * comm for its device's memory over that, for programs that print TAP. */
#pragma once

#include "comm/comm.h"

enum { GROUP_MAX = 8 };

struct group_case {
    const char *name;         /* of the group, for the report */
    int size, ranks_per_node; /* ranks_per_node 0: one level */
    enum stream_mode mode;    /* of staged collectives on the CPU */
    size_t shard_bytes;       /* planned: small, so that rounds are many */
    bool on_host;             /* comm_local itself */
    bool on_gpu;
    enum comm_backend backend; /* on_gpu */
    enum comm_sums reduce;
    size_t reduce_bytes; /* planned for sums in rank order; 0: shard_bytes */
};

/* Run the suite; a line per case. */
void group_run(const struct group_case *group);
