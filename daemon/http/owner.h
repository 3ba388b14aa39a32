/* owner.h - whose job listens on a unix socket: looked at by who connects,
 * before a byte is sent or believed.
 *
 * Names of sockets lie where others can make files first (/tmp/zerod-UID), or
 * are read from files that others may write. So the process that listens
 * (SO_PEERCRED), the folder and the socket's file must be this user's, root's
 * or, where a job of somebody else was named on purpose, its `owner`'s. */
#ifndef ZD_DAEMON_HTTP_OWNER_H
#define ZD_DAEMON_HTTP_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

/* `fd` is connected to `path`. `owner`: of the job that was named; 0 (root) for
 * none. `acts`: what will be sent is more than a question: nobody but root
 * sends that to another user's process. *found_out: who it is that is not to be
 * believed. */
bool http_owner_is_trusted(
        int fd, const char *path, uid_t owner, bool acts, uid_t *found_out);

#endif
