#include "train/report/startup.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text_buffer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

double process_seconds(void)
{
    char line[1024];
    unsigned long long ticks;
    struct timespec now;
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file)
        return 0;
    size_t bytes = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[bytes] = 0;
    /* the program's name, in parentheses, may hold anything; the time of the
     * start is field 22 (proc(5)), 20 after it */
    const char *at = strrchr(line, ')');
    for (int field = 0; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, " %llu", &ticks) != 1)
        return 0;
    clock_gettime(CLOCK_BOOTTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
                     (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return seconds > 0 ? seconds : 0;
}

void startup_begin(struct startup *startup)
{
    *startup = (struct startup){.last = clock_seconds(), .count = 1};
    startup->phases[0] = (struct startup_phase){"launch", process_seconds()};
}

void startup_mark(struct startup *startup, const char *name)
{
    double now = clock_seconds();
    if (startup->count == STARTUP_PHASES)
        return;
    startup->phases[startup->count++] =
            (struct startup_phase){name, now - startup->last};
    startup->last = now;
}

void startup_tell(const struct startup *startup)
{
    char line[512] = "";
    struct text_buffer text = {.out = line, .bytes = sizeof line};
    double total = 0;
    for (int i = 0; i < startup->count; i++) {
        const struct startup_phase *phase = &startup->phases[i];
        total += phase->seconds;
        text_buffer_add(
                &text, "%s%s %.2f", i ? ", " : "", phase->name, phase->seconds);
    }
    zd_log_info("%.2f s to the first step's end: %s", total, line);
}
