/* output_dir.h - opens the folder of a run: creates it, locks it for one job,
 * checks that all ranks see it, and removes leftovers of interrupted saves.
 * Internal to train. */
#pragma once

#include "comm/comm.h"

#include <sys/types.h>

struct output_dir {
    const char *path; /* borrowed */
    mode_t mode;      /* of a new folder */
    int lock;         /* held open by rank 0; -1 elsewhere */
};

/* Collective. ZD_ERR_CREATE: it cannot be created, is locked by another job, or
 * is not the same folder on every host (checkpoints would be incomplete). */
enum zd_status output_dir_open(
        struct comm *comm, const char *path, mode_t mode,
        struct output_dir *dir);
void output_dir_close(struct output_dir *dir);
