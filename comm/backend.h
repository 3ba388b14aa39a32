/* backend.h - what every back end fills in; for this folder only. */
#ifndef ZD_COMM_BACKEND_H
#define ZD_COMM_BACKEND_H

#include "comm/comm.h"

enum { COMM_HOST_MAX = 256 };

struct comm {
    int rank, size;
    int local_rank, local_size;
    char host[COMM_HOST_MAX];
    struct comm_options options;
    struct comm_counters counters;
};

#endif
