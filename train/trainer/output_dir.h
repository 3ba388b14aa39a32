/* output_dir.h - the folder of a run: made, locked by one job, seen by all its
 * ranks, leftovers of interrupted saves removed. Internal to train. */
#pragma once

#include "comm/comm.h"

#include <sys/types.h>

struct output_dir {
    const char *path; /* borrowed */
    mode_t mode;      /* of a folder that is made */
    int lock;         /* held open by rank 0; -1 elsewhere */
};

/* Collective. ZD_ERR_CREATE when it cannot be made, is locked by another job,
 * or is not the same folder on every host (checkpoints would be torn apart). */
enum zd_status output_dir_open(
        struct comm *comm, const char *path, mode_t mode,
        struct output_dir *dir);
void output_dir_close(struct output_dir *dir);
