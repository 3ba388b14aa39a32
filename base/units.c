#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without an exponent, and without trailing zeros of a fraction. */
static void print_plain(double value, int digits, char out[UNITS_TEXT])
{
    char rounded[UNITS_TEXT];
    snprintf(rounded, sizeof rounded, "%.*e", digits - 1, value);
    int decimals = digits - 1 - atoi(strchr(rounded, 'e') + 1);
    int used = snprintf(
            out, UNITS_TEXT, "%.*f", decimals > 0 ? decimals : 0,
            strtod(rounded, NULL));
    if (used >= UNITS_TEXT || decimals <= 0)
        return;
    while (out[used - 1] == '0')
        out[--used] = '\0';
    if (out[used - 1] == '.')
        out[used - 1] = '\0';
}

const char *units_number(double value, int digits, char out[UNITS_TEXT])
{
    static const char units[] = {'k', 'M', 'G', 'T', 'P'};
    int unit = -1;
    if (!isfinite(value) || fabs(value) < 1e-15 || fabs(value) >= 1e18) {
        snprintf(out, UNITS_TEXT, "%.*g", digits, value);
        return out;
    }
    if (fabs(value) >= 9999.5)
        for (; fabs(value) >= 999.5; unit++)
            value /= 1000;
    print_plain(value, digits, out);
    size_t used = strlen(out);
    if (unit >= 0 && used + 1 < UNITS_TEXT)
        snprintf(out + used, UNITS_TEXT - used, "%c", units[unit]);
    return out;
}

const char *units_exact(double value, char out[UNITS_TEXT])
{
    int digits = 6;
    do
        snprintf(out, UNITS_TEXT, "%.*g", digits, value);
    while (strtod(out, NULL) != value && digits++ < 17);
    return out;
}

static const char *print_bytes(
        double value, int least_unit, bool rounds_up, char out[UNITS_TEXT])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < least_unit || (value >= 1024 && unit < 4)) {
        value /= 1024;
        unit++;
    }
    if (rounds_up)
        value = ceil(value * 100) / 100;
    snprintf(out, UNITS_TEXT, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *units_bytes(uint64_t bytes, char out[UNITS_TEXT])
{
    return print_bytes((double)bytes, 0, false, out);
}

const char *units_bytes_up(uint64_t bytes, char out[UNITS_TEXT])
{
    return print_bytes((double)bytes, 1, true, out);
}

const char *units_time(double seconds, int digits, char out[UNITS_TEXT])
{
    static const struct {
        double from, seconds;
        const char *name;
    } units[] = {
            {172800, 86400, "days"},
            {7200, 3600, "h"},
            {120, 60, "min"},
            {0, 1, "s"}};
    int i = 0;
    while (i < 3 && seconds < units[i].from)
        i++;
    units_number(seconds / units[i].seconds, digits, out);
    size_t used = strlen(out);
    snprintf(out + used, UNITS_TEXT - used, " %s", units[i].name);
    return out;
}
