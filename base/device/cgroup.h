/* cgroup.h - what the memory of this process's control groups is limited to.
 *
 * Slurm and systemd put a process into a group of its own and leave
 * /sys/fs/cgroup as it is: the group is found by /proc/self/cgroup, and the
 * limits of all groups above it hold too. A container sees its own group as the
 * root. */
#pragma once

#include <stdint.h>

struct cgroup_memory {
    uint64_t limit; /* bytes; UINT64_MAX: none */
    uint64_t free;  /* under that of its limits that leaves least: less what is
                       used, but for files that the system can drop */
};

/* `root` stands before /proc and /sys: "" but for tests. */
struct cgroup_memory cgroup_memory(const char *root);

/* The number after `name` at the beginning of a line of the file; 0: there is
 * none, or it is "max". */
uint64_t proc_number(const char *path, const char *name);
