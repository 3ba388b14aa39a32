#include "daemon/http/owner.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_one_of_us(uid_t found, uid_t owner, uid_t *found_out)
{
    *found_out = found;
    return found == geteuid() || found == 0 || found == owner;
}

/* Of a link: its own owner and that of what it leads to. */
static bool is_path_ours(const char *path, uid_t owner, uid_t *found_out)
{
    struct stat itself, target;
    return lstat(path, &itself) == 0 && stat(path, &target) == 0 &&
           is_one_of_us(itself.st_uid, owner, found_out) &&
           is_one_of_us(target.st_uid, owner, found_out);
}

static void folder_of(const char *path, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int bytes = !slash ? 1 : slash == path ? 1 : (int)(slash - path);
    snprintf(out, PATH_MAX, "%.*s", bytes, slash ? path : ".");
}

bool http_owner_is_trusted(
        int fd, const char *path, uid_t owner, bool acts, uid_t *found_out)
{
    struct ucred cred;
    socklen_t bytes = sizeof cred;
    char folder[PATH_MAX];
    *found_out = (uid_t)-1;
    folder_of(path, folder);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0 ||
        !is_path_ours(folder, owner, found_out) ||
        !is_path_ours(path, owner, found_out) ||
        !is_one_of_us(cred.uid, owner, found_out))
        return false;
    return !acts || geteuid() == 0 || cred.uid == 0 || cred.uid == geteuid();
}
