#include "comm/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEGMENTS_MAX = 1024 };

struct segment {
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
    bool is_used;
};

/* "vader_segment.HOST.UID." of Open MPI 4, "sm_segment.HOST.UID." of 5 */
static bool is_ours(const char *name)
{
    static const char *const kinds[] = {"vader_segment", "sm_segment"};
    char host[256] = "", begin[320];
    gethostname(host, sizeof host - 1);
    for (int k = 0; k < 2; k++) {
        int length = snprintf(
                begin, sizeof begin, "%s.%s.%u.", kinds[k], host,
                (unsigned)geteuid());
        if (strncmp(name, begin, (size_t)length) == 0)
            return true;
    }
    return false;
}

static int find_segments(const char *folder, struct segment *segments)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry;
         dir && count < SEGMENTS_MAX && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        if (!is_ours(entry->d_name) ||
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) !=
                    0 ||
            !S_ISREG(info.st_mode) || info.st_uid != geteuid())
            continue;
        struct segment *segment = &segments[count++];
        *segment =
                (struct segment){.device = info.st_dev, .inode = info.st_ino};
        memcpy(segment->name, entry->d_name, strlen(entry->d_name) + 1);
    }
    if (dir)
        closedir(dir);
    return count;
}

/* What a link of /proc leads to is in use. */
static void mark(const char *path, struct segment *segments, int count)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return;
    for (int i = 0; i < count; i++)
        if (segments[i].device == info.st_dev &&
            segments[i].inode == info.st_ino)
            segments[i].is_used = true;
}

/* What it has open. */
static void mark_open(const char *pid, struct segment *segments, int count)
{
    char path[600];
    snprintf(path, sizeof path, "/proc/%.32s/fd", pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        snprintf(
                path, sizeof path, "/proc/%.32s/fd/%.255s", pid, entry->d_name);
        if (entry->d_name[0] != '.')
            mark(path, segments, count);
    }
    if (dir)
        closedir(dir);
}

/* What it has mapped, by its name. */
static void mark_maps(const char *pid, struct segment *segments, int count)
{
    char path[64], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%.32s/maps", pid);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0)
        for (int i = 0; i < count; i++)
            if (strstr(line, segments[i].name))
                segments[i].is_used = true;
    free(line);
    if (file)
        fclose(file);
}

static bool is_of_this_user(const char *pid)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%.32s", pid);
    return stat(path, &info) == 0 && info.st_uid == geteuid();
}

/* Who makes a segment has it open, then maps it, then closes it: looked for in
 * that order, none that is in use is missed. A process that may not be looked
 * into is none of ours. */
static void mark_used(struct segment *segments, int count)
{
    DIR *dir = opendir("/proc");
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        const char *pid = entry->d_name;
        if (pid[0] < '0' || pid[0] > '9' || !is_of_this_user(pid))
            continue;
        mark_open(pid, segments, count);
        mark_maps(pid, segments, count);
    }
    if (dir)
        closedir(dir);
    else
        for (int i = 0; i < count; i++)
            segments[i].is_used = true;
}

void leftovers_sweep(const char *folder)
{
    char path[PATH_MAX];
    struct segment *segments = calloc(SEGMENTS_MAX, sizeof *segments);
    if (!segments)
        return;
    int count = find_segments(folder, segments);
    if (count)
        mark_used(segments, count);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, segments[i].name);
        if (!segments[i].is_used)
            unlink(path);
    }
    free(segments);
}
