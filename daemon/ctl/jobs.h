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

/* Each socket in those folders, with its job's name. `owner`: of its folder,
 * where that is another user's; else 0. */
typedef void jobs_socket_fn(
        void *ctx, const char *name, const char *path, uid_t owner);
void jobs_sockets(bool all_users, jobs_socket_fn *take, void *ctx);
/* [{"name", "socket", ..}] of the jobs that run, by their names: with the
 * members of /v1/status where the job answers. `all_users`: also from the
 * folders of others (what root sees). New reference. */
json_t *jobs_find(bool all_users);
/* The folders of this user that may hold sockets, whether they are there or
 * not; returns how many. */
enum { JOBS_FOLDERS = 2, JOBS_PATH_MAX = 4096 };
int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX]);

#endif
