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

/* Resident bytes: the second number of statm, in pages. */
static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0;
    int found = file ? fscanf(file, "%*s %lld", &pages) : 0;
    if (file)
        fclose(file);
    return found == 1 ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

/* Since 1970. */
static double start_seconds(void)
{
    double seconds = process_seconds();
    return seconds > 0 ? seconds_of(CLOCK_REALTIME) - seconds : NAN;
}

/* The folder's own descriptor is not counted. */
static double open_descriptors(void)
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
    const struct {
        const char *name;
        enum metric_family kind;
        const char *help;
        double value;
    } all[] = {
            {"process_cpu_seconds", FAMILY_COUNTER,
             "User and system time of the process.",
             seconds_of(CLOCK_PROCESS_CPUTIME_ID)},
            {"process_resident_memory_bytes", FAMILY_GAUGE,
             "Resident memory of the process.", resident_bytes()},
            {"process_start_time_seconds", FAMILY_GAUGE,
             "When the process started, since 1970.", start_seconds()},
            {"process_open_fds", FAMILY_GAUGE,
             "File descriptors that are open.", open_descriptors()},
    };
    to->job = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!isnan(all[i].value)) {
            family_open(to, all[i].name, all[i].kind, all[i].help);
            family_sample(to, all[i].value, NULL);
        }
}
