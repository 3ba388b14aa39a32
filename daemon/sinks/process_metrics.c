/* process_metrics.c - rank 0's process, under the names that every Prometheus
 * client has for one. */
#include "daemon/sinks/exposition.h"
#include "train/report/startup.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double cpu_seconds(const void *from, int i)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

/* Resident bytes: the second number of statm, in pages. */
static double resident_bytes(const void *from, int i)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0;
    int found = file ? fscanf(file, "%*s %lld", &pages) : 0;
    if (file)
        fclose(file);
    return found == 1 ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

/* Since 1970. */
static double start_seconds(const void *from, int i)
{
    double seconds = process_seconds();
    return seconds > 0 ? seconds_of(CLOCK_REALTIME) - seconds : NAN;
}

/* The folder's own descriptor is not counted. */
static double open_descriptors(const void *from, int i)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = -1;
    if (!dir)
        return NAN;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

void exposition_process(struct exposition *to)
{
    /* clang-format off */
    static const struct metric rows[] = {
    {.family = "process_cpu_seconds", .value = cpu_seconds, .kind = FAMILY_COUNTER, .help = "User and system time of the process."},
    {.family = "process_resident_memory_bytes", .value = resident_bytes, .help = "Resident memory of the process."},
    {.family = "process_start_time_seconds", .value = start_seconds, .help = "When the process started, since 1970."},
    {.family = "process_open_fds", .value = open_descriptors, .help = "File descriptors that are open."},
    };
    /* clang-format on */
    const struct metric_table table = {rows, sizeof rows / sizeof rows[0]};
    to->job = NULL;
    exposition_table(to, &table, rows, 0, 1);
}
