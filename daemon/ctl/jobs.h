/* jobs.h - which jobs run here: the sockets of this user's folders, each asked
 * for its status.
 *
 *   $XDG_RUNTIME_DIR/zerod/JOB.sock and /tmp/zerod-UID/JOB.sock
 *
 * Both folders are searched, because a job may have been started without
 * that variable. Another user's folder is skipped, and a socket that no one
 * listens on. */
#pragma once

#include "base/file/json.h"

/* Each socket in those folders, with its job's name. */
typedef void jobs_socket_fn(void *ctx, const char *name, const char *path);
void jobs_sockets(jobs_socket_fn *take, void *ctx);
/* [{"name", "socket", ..}] of the jobs that run, by their names: with the
 * members of /v1/status where the job answers. New reference. */
json_t *jobs_find(void);
/* The folders of this user that may hold sockets, whether they are there or
 * not; returns how many. */
enum { JOBS_FOLDERS = 2, JOBS_PATH_MAX = 4096 };
int jobs_folders(char folders[JOBS_FOLDERS][JOBS_PATH_MAX]);
