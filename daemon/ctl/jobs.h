/* jobs.h - which jobs run here: the sockets of this user's folders, each asked
 * for its status.
 *
 *   $XDG_RUNTIME_DIR/zerod/JOB.sock and /tmp/zerod-UID/JOB.sock
 *
 * and ./control.sock, for a run whose output folder this program was started
 * in. Both folders are searched, because a job may have been started without
 * that variable. Another user's folder is skipped, and a socket that no one
 * listens on. */
#ifndef ZD_CTL_JOBS_H
#define ZD_CTL_JOBS_H

#include "base/file/json.h"

#include <sys/types.h>

struct job_found {
    char *name;     /* of the socket's file, without .sock */
    char *socket;   /* path */
    json_t *status; /* of /v1/status; NULL: it listens, and does not answer */
};

struct jobs {
    struct job_found *items; /* sorted by name */
    int count;
};

/* Each socket in those folders, with its job's name. `owner`: of its folder,
 * where that is another user's; else 0. */
typedef void jobs_socket_fn(
        void *ctx, const char *name, const char *path, uid_t owner);
void jobs_sockets(bool all_users, jobs_socket_fn *take, void *ctx);
/* `all_users`: also the folders of others (what root sees). */
void jobs_find(bool all_users, struct jobs *jobs_out);
void jobs_fini(struct jobs *jobs);
/* The folders of this user that may hold sockets, whether they are there or
 * not; returns how many. */
enum { JOBS_FOLDERS = 2, JOBS_PATH_MAX = 4096 };
int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX]);

#endif
