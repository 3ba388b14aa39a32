#include "base/numa.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 256, PATH_BYTES = 512, LINE_BYTES = 4096 };

/* "/sys", or what the environment says. */
static const char *sysfs(void)
{
    const char *root = getenv("ZEROD_TEST_SYSFS");
    return root && *root ? root : "/sys";
}

/* The first line of a file; false: there is none. */
static bool read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    bool has_line = file && fgets(line, bytes, file);
    if (file)
        fclose(file);
    return has_line;
}

int numa_node_of_pci(const char *pci)
{
    char path[PATH_BYTES], line[32];
    snprintf(
            path, sizeof path, "%s/bus/pci/devices/%s/numa_node", sysfs(),
            pci);
    if (!*pci || !read_line(path, line, sizeof line))
        return -1;
    int node = atoi(line);
    return node >= 0 && node < NODES_MAX ? node : -1;
}

/* "0-15,32-47" */
static void parse_cpus(const char *list, cpu_set_t *set)
{
    char *end;
    CPU_ZERO(set);
    while (*list >= '0' && *list <= '9') {
        long first = strtol(list, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_SET((size_t)cpu, set);
        list = *end == ',' ? end + 1 : end;
    }
}

/* False: there is no such node. */
static bool read_node(int node, cpu_set_t *set)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(
            path, sizeof path, "%s/devices/system/node/node%d/cpulist",
            sysfs(), node);
    if (!read_line(path, line, sizeof line))
        return false;
    parse_cpus(line, set);
    return true;
}

/* Part `place` of `places`, in the order of their numbers. */
static void take_part(cpu_set_t *set, int place, int places)
{
    int count = CPU_COUNT(set), at = 0;
    int first = count * place / places, end = count * (place + 1) / places;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        if (at < first || at >= end)
            CPU_CLR(cpu, set);
        at++;
    }
}

bool numa_bind(int node, int place, int places)
{
    cpu_set_t mine, there;
    if (node < 0 || sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        !read_node(node, &there))
        return false;
    CPU_AND(&there, &there, &mine);
    if (CPU_EQUAL(&there, &mine) || CPU_COUNT(&there) < places)
        return false;
    take_part(&there, place, places);
    return sched_setaffinity(0, sizeof there, &there) == 0;
}
