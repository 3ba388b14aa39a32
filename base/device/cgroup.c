#include "base/device/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct version { /* file names of cgroup v2 and v1 */
    const char *folder, *limit, *used, *stat, *files[2];
};
static const struct version versions[] = {
        {"/sys/fs/cgroup",
         "memory.max",
         "memory.current",
         "memory.stat",
         {"inactive_file ", "active_file "}},
        {"/sys/fs/cgroup/memory",
         "memory.limit_in_bytes",
         "memory.usage_in_bytes",
         "memory.stat",
         {"total_inactive_file ", "total_active_file "}},
};

uint64_t proc_number(const char *path, const char *name)
{
    char line[256];
    size_t length = strlen(name);
    unsigned long long value = 0;
    FILE *stream = fopen(path, "re");
    while (stream && fgets(line, sizeof line, stream))
        if (strncmp(line, name, length) == 0 &&
            sscanf(line + length, "%llu", &value) == 1)
            break;
    if (stream)
        fclose(stream);
    return value;
}

static uint64_t read_number(
        const char *folder, const char *file, const char *name)
{
    char path[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return proc_number(path, name);
}

/* The group of the process: "0::/PATH" in v2, "4:memory:/PATH" in v1. False:
 * there is none. */
static bool find_group(const char *root, bool is_first_form, char *out)
{
    char path[PATH_MAX], line[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "re");
    while (stream && !found && fgets(line, sizeof line, stream)) {
        char *kinds = strchr(line, ':');
        char *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        found = is_first_form ? strstr(kinds + 1, "memory") != NULL
                              : kinds[1] == '\0';
        if (found)
            snprintf(out, PATH_MAX, "%s", group);
    }
    if (stream)
        fclose(stream);
    return found;
}

static void look_at(
        const struct version *version, const char *folder,
        struct cgroup_memory *memory)
{
    uint64_t limit = read_number(folder, version->limit, "");
    if (!limit)
        return;
    uint64_t used = read_number(folder, version->used, "");
    uint64_t files = 0;
    for (int i = 0; i < 2; i++)
        files += read_number(folder, version->stat, version->files[i]);
    used = used > files ? used - files : 0;
    uint64_t left = limit > used ? limit - used : 0;
    memory->limit = limit < memory->limit ? limit : memory->limit;
    memory->free = left < memory->free ? left : memory->free;
}

struct cgroup_memory cgroup_memory(const char *root)
{
    struct cgroup_memory memory = {UINT64_MAX, UINT64_MAX};
    char group[PATH_MAX], folder[2 * PATH_MAX];
    for (int v = 0; v < 2; v++) {
        const struct version *version = &versions[v];
        if (!find_group(root, v == 1, group) || strstr(group, "/.."))
            strcpy(group, "/");
        for (;;) { /* the group, those above it, the root */
            char *slash = strrchr(group, '/');
            snprintf(
                    folder, sizeof folder, "%s%s%s", root, version->folder,
                    group);
            look_at(version, folder, &memory);
            if (!slash || !group[1])
                break;
            slash[slash == group] = '\0';
        }
    }
    return memory;
}
