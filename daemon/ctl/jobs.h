/* jobs.h - which jobs run here: the sockets of this user's folders, each asked
 * for its status.
 *
 *   $XDG_RUNTIME_DIR/zerod/JOB.sock and /tmp/zerod-UID/JOB.sock
 *
 * Both folders are looked at, for a job may have been started without that
 * variable. A folder of somebody else is passed over, a socket that nobody
 * listens on too. */
#ifndef ZD_CTL_JOBS_H
#define ZD_CTL_JOBS_H

#include "base/file/json.h"

struct job_found {
    char *name;     /* of the socket's file, without .sock */
    char *socket;   /* path */
    json_t *status; /* of /v1/status; NULL: it listens, and does not answer */
};

struct jobs {
    struct job_found *items; /* sorted by name */
    int count;
};

/* `all_users`: also the folders of others (what root sees). Only a lack of
 * memory fails. */
enum zd_status jobs_find(bool all_users, struct jobs *jobs_out);
void jobs_fini(struct jobs *jobs);
/* The folders of this user that may hold sockets, whether they are there or
 * not; returns how many. */
enum { JOBS_FOLDERS = 2, JOBS_PATH_MAX = 4096 };
int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX]);

#endif
