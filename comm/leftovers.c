/* leftovers.c - removes stale shared memory segments of Open MPI, which would
 * otherwise fill /dev/shm. Only those of this user and host that no process has
 * mapped. */
#include "comm/comm_mpi.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "vader_segment.HOST.UID." of Open MPI 4, "sm_segment.HOST.UID." of 5; mapped
 * by who made it within microseconds. */
static bool is_ours(const char *name, const struct stat *info)
{
    enum { MAPPED_AFTER = 1 }; /* seconds */
    static const char *const kinds[] = {"vader_segment", "sm_segment"};
    char host[256] = "", begin[320];
    gethostname(host, sizeof host - 1);
    for (int k = 0; k < 2; k++) {
        int length = ZD_PRINT(
                begin, "%s.%s.%u.", kinds[k], host, (unsigned)geteuid());
        if (strncmp(name, begin, (size_t)length) == 0)
            return S_ISREG(info->st_mode) && info->st_uid == geteuid() &&
                   info->st_mtime + MAPPED_AFTER < time(NULL);
    }
    return false;
}

/* Whether this process of /proc has mapped it. Another user's process, which we
 * cannot inspect, maps none of our segments. */
static bool is_mapped_by(const char *pid, const char *name)
{
    char path[64], *line = NULL;
    size_t room = 0;
    bool is_mapped = false;
    ZD_PRINT(path, "/proc/%.32s/maps", pid);
    FILE *file = fopen(path, "re");
    while (file && !is_mapped && getline(&line, &room, file) > 0)
        is_mapped = strstr(line, name) != NULL;
    free(line);
    if (file)
        fclose(file);
    return is_mapped;
}

static bool is_mapped(const char *name)
{
    DIR *dir = opendir("/proc");
    bool is_mapped = !dir; /* unknown: assume it is */
    for (struct dirent *entry;
         dir && !is_mapped && (entry = readdir(dir)) != NULL;)
        is_mapped = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
                    is_mapped_by(entry->d_name, name);
    if (dir)
        closedir(dir);
    return is_mapped;
}

void leftovers_sweep(void)
{
    DIR *dir = opendir("/dev/shm");
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) ==
                    0 &&
            is_ours(entry->d_name, &info) && !is_mapped(entry->d_name))
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
}
