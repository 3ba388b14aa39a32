#include "daemon/report/report.h"

#include <math.h>
#include <stdio.h>

struct words report_duration(double seconds)
{
    struct words out;
    long whole = (long)(seconds + 0.5);
    if (!(seconds < 1e9))
        ZD_PRINT(out.text, "?");
    else if (seconds < 60)
        ZD_PRINT(out.text, "%.1fs", seconds);
    else if (whole < 3600)
        ZD_PRINT(out.text, "%ldm%02lds", whole / 60, whole % 60);
    else
        ZD_PRINT(out.text, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    return out;
}

struct words report_short(double value)
{
    static const char units[] = {' ', 'k', 'M', 'G', 'T', 'P'};
    struct words out;
    size_t unit = 0;
    while (fabs(value) >= 999.5 && unit + 1 < sizeof units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        ZD_PRINT(out.text, value < 10 ? "%.1f" : "%.0f", value);
    else
        ZD_PRINT(out.text, "%.3g%c", value, units[unit]);
    return out;
}

struct words report_bytes(size_t bytes)
{
    struct words out;
    bool is_large = bytes >= (size_t)1 << 30;
    ZD_PRINT(
            out.text, is_large ? "%.2f GiB" : "%.1f MiB",
            (double)bytes / (is_large ? 0x1p30 : 0x1p20));
    return out;
}
