/* cgroup.h - what the memory of this process's control groups is limited to.
 *
 * Slurm and systemd put a process into its own group, which /proc/self/cgroup
 * names. The limits of all groups above it apply too. A container sees its own
 * group as the root. */
#pragma once

#include <stdint.h>

struct cgroup_memory {
    uint64_t limit; /* bytes; UINT64_MAX: none */
    uint64_t free;  /* under the tightest of its limits; page cache that the
                       system can drop counts as free */
};

/* `root` stands before /proc and /sys: "" but for tests. */
struct cgroup_memory cgroup_memory(const char *root);

/* The number after `name` at the beginning of a line of the file; 0: there is
 * none, or it is "max". */
uint64_t proc_number(const char *path, const char *name);
