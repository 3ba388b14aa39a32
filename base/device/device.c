#include "base/device/device.h"
#include "base/device/cgroup.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device_options device_options_default(void)
{
    return (struct device_options){
            .backend = DEVICE_AUTO, .gpus = "auto", .numa_bind = true};
}

uint64_t device_system_memory(void)
{
    /* Read once: a search asks for each plan, and reading a group's files makes
     * the kernel sum up its use, which takes longer than the plan. */
    static _Atomic uint64_t known;
    if (!known) {
        uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                         (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t limit = cgroup_memory("").limit;
        known = limit < bytes ? limit : bytes;
    }
    return known;
}

uint64_t device_available_memory(void)
{
    uint64_t machine = 1024 * proc_number("/proc/meminfo", "MemAvailable:");
    uint64_t group = cgroup_memory("").free;
    return machine < group ? machine : group;
}

int device_affinity_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return device_online_cpus();
    return CPU_COUNT(&set);
}

void device_affinity_list(char *out, size_t bytes)
{
    cpu_set_t set;
    size_t used = 0;
    out[0] = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char run[32];
        int last = cpu;
        if (!CPU_ISSET(cpu, &set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
            last++;
        ZD_PRINT(
                run, last > cpu ? "%s%d-%d" : "%s%d", used ? "," : "", cpu,
                last);
        if (used + strlen(run) + sizeof ".." > bytes) {
            snprintf(out + used, bytes - used, "..");
            return;
        }
        strcpy(out + used, run);
        used += strlen(run);
        cpu = last;
    }
}

int device_online_cpus(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

/* A mask smaller than the machine's share of a rank was set for this rank alone
 * (mpirun's binding); a full one is shared by the host's ranks. */
int device_rank_cpus(int mask_cpus, int online_cpus, int local_size)
{
    bool is_shared = mask_cpus * local_size > online_cpus;
    int cpus = is_shared ? mask_cpus / local_size : mask_cpus;
    return cpus > 0 ? cpus : 1;
}

/* The first number of a variable of OpenMP ("4" or "4,2"); 0: there is none. */
static int openmp_number(const char *variable)
{
    enum { MOST = 4096 }; /* as device.cpu_threads */
    const char *text = getenv(variable);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : 0;
    bool is_number = text && end != text && (!*end || *end == ',');
    return is_number && number > 0 && number <= MOST ? (int)number : 0;
}

int device_threads(
        const struct device_options *options, int mask_cpus, int online_cpus,
        int local_size)
{
    int limit = openmp_number("OMP_THREAD_LIMIT");
    int threads = options->cpu_threads > 0 ? options->cpu_threads
                                           : openmp_number("OMP_NUM_THREADS");
    if (threads <= 0)
        threads = device_rank_cpus(mask_cpus, online_cpus, local_size);
    return limit > 0 && threads > limit ? limit : threads;
}
