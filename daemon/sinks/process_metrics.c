/* process_metrics.c - rank 0's process, under the names that every Prometheus
 * client has for one. */
#include "daemon/sinks/exposition.h"

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

/* Since 1970. Field 22 of stat, in ticks since the machine started; the name
 * in field 2 may hold blanks and parentheses. */
static double start_seconds(void)
{
    enum { FIELDS_AFTER_NAME = 20 };
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    char *field = strrchr(text, ')');
    for (int i = 0; field && i < FIELDS_AFTER_NAME; i++)
        field = strchr(field + 1, ' ');
    if (!field)
        return NAN;
    double booted = seconds_of(CLOCK_REALTIME) - seconds_of(CLOCK_BOOTTIME);
    return booted + strtod(field, NULL) / (double)sysconf(_SC_CLK_TCK);
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
        struct family family;
        double value;
    } all[] = {
            {{"process_cpu_seconds", FAMILY_COUNTER, "seconds",
              "User and system time of the process."},
             seconds_of(CLOCK_PROCESS_CPUTIME_ID)},
            {{"process_resident_memory_bytes", FAMILY_GAUGE, "bytes",
              "Resident memory of the process."},
             resident_bytes()},
            {{"process_start_time_seconds", FAMILY_GAUGE, "seconds",
              "When the process started, since 1970."},
             start_seconds()},
            {{"process_open_fds", FAMILY_GAUGE, NULL,
              "File descriptors that are open."},
             open_descriptors()},
    };
    to->job = NULL;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!isnan(all[i].value)) {
            family_open(to, &all[i].family);
            family_sample(to, all[i].value, NULL);
        }
}
