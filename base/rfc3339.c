#include "base/rfc3339.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* `count` digits within [low, high]; *at moves past them. */
static bool digits(const char **at, int count, int low, int high, int *out)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!isdigit((unsigned char)(*at)[i]))
            return false;
        value = 10 * value + (*at)[i] - '0';
    }
    *at += count;
    *out = value;
    return value >= low && value <= high;
}

static bool sign(const char **at, const char *one_of)
{
    return **at && strchr(one_of, **at) && (*at)++;
}

static bool date(const char **at, struct tm *time)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (!digits(at, 4, 1970, 9999, &time->tm_year) || !sign(at, "-") ||
        !digits(at, 2, 1, 12, &time->tm_mon) || !sign(at, "-") ||
        !digits(at, 2, 1, 31, &time->tm_mday))
        return false;
    int year = time->tm_year;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int most = days[time->tm_mon - 1] + (time->tm_mon == 2 && leap);
    time->tm_year -= 1900;
    time->tm_mon -= 1;
    return time->tm_mday <= most;
}

static bool offset(const char **at, int *seconds_out)
{
    int hours, minutes;
    char first = **at;
    *seconds_out = 0;
    if (sign(at, "Zz"))
        return true;
    if (!sign(at, "+-") || !digits(at, 2, 0, 23, &hours) || !sign(at, ":") ||
        !digits(at, 2, 0, 59, &minutes))
        return false;
    *seconds_out = (first == '-' ? -60 : 60) * (60 * hours + minutes);
    return true;
}

bool rfc3339_parse(const char *text, double *seconds_out)
{
    struct tm time = {0};
    const char *at = text;
    double fraction = 0;
    int east;
    if (!date(&at, &time) || !sign(&at, "Tt ") ||
        !digits(&at, 2, 0, 23, &time.tm_hour) || !sign(&at, ":") ||
        !digits(&at, 2, 0, 59, &time.tm_min) || !sign(&at, ":") ||
        !digits(&at, 2, 0, 60, &time.tm_sec))
        return false;
    if (*at == '.') {
        size_t length = strspn(at + 1, "0123456789");
        if (length == 0 || length > 9)
            return false;
        fraction = atof(at);
        at += 1 + length;
    }
    if (!offset(&at, &east) || *at)
        return false;
    *seconds_out = (double)timegm(&time) - east + fraction;
    return true;
}

void rfc3339_print(double seconds, char out[RFC3339_BYTES])
{
    struct tm time;
    time_t whole = (time_t)seconds;
    out[0] = '\0';
    if (gmtime_r(&whole, &time))
        strftime(out, RFC3339_BYTES, "%Y-%m-%dT%H:%M:%SZ", &time);
}
