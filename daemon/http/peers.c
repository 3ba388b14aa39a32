/* peers.c - who is on the other side of a unix socket: the system says,
 * before a byte is read. */
#include "daemon/http/server.h"

#include <stdlib.h>
#include <sys/socket.h>

enum { GROUPS_MAX = 1 << 16 }; /* NGROUPS_MAX of Linux */

/* Groups beside the first one; as they were when the client connected. */
static bool is_in_groups(int fd, gid_t gid)
{
    gid_t few[32], *groups = few;
    socklen_t bytes = sizeof few;
    int result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &bytes);
    if (result && bytes > sizeof few && bytes <= GROUPS_MAX * sizeof *groups) {
        groups = malloc(bytes);
        if (!groups)
            return false;
        result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes);
    }
    bool is_in = false;
    for (size_t i = 0; !result && i < bytes / sizeof *groups; i++)
        is_in |= groups[i] == gid;
    if (groups != few)
        free(groups);
    return is_in;
}

bool http_peer_read(
        const struct http_server *server, int fd, struct http_peer *peer_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes))
        return false;
    bool may_act = cred.uid == server->owner || cred.uid == 0;
    *peer_out = (struct http_peer){
            .uid = cred.uid, .pid = cred.pid, .may_act = may_act};
    if (may_act)
        return true;
    gid_t gid = (gid_t)server->options.status_gid;
    return server->options.status_gid >= 0 &&
           (cred.gid == gid || is_in_groups(fd, gid));
}
