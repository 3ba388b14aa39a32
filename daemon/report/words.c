#include "daemon/report/words.h"

#include <math.h>
#include <stdio.h>

void report_duration(double seconds, char *out, size_t out_bytes)
{
    long whole = (long)(seconds + 0.5);
    if (!(seconds < 1e9))
        snprintf(out, out_bytes, "?");
    else if (seconds < 60)
        snprintf(out, out_bytes, "%.1fs", seconds);
    else if (whole < 3600)
        snprintf(out, out_bytes, "%ldm%02lds", whole / 60, whole % 60);
    else
        snprintf(out, out_bytes, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
}

void report_short(double value, char *out, size_t out_bytes)
{
    static const char units[] = {' ', 'k', 'M', 'G', 'T', 'P'};
    size_t unit = 0;
    while (fabs(value) >= 999.5 && unit + 1 < sizeof units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(out, out_bytes, value < 10 ? "%.1f" : "%.0f", value);
    else
        snprintf(out, out_bytes, "%.3g%c", value, units[unit]);
}
