#include "base/rfc3339.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Does `text` begin like `form`? A 0 of it stands for any digit. */
static bool is_like(const char *text, const char *form)
{
    for (; *form; form++, text++)
        if (*form == '0'   ? !isdigit((unsigned char)*text)
            : *form == 'T' ? !*text || !strchr("Tt ", *text)
                           : *text != *form)
            return false;
    return true;
}

/* What timegm changes is no time of the calendar. */
static bool is_moment(const struct tm *time, time_t *minute_out)
{
    struct tm made = *time;
    made.tm_sec = 0;
    *minute_out = timegm(&made);
    return time->tm_year >= 70 && time->tm_sec <= 60 &&
           made.tm_mon == time->tm_mon && made.tm_mday == time->tm_mday &&
           made.tm_hour == time->tm_hour && made.tm_min == time->tm_min;
}

/* "Z" or "+01:00", and no more. */
static bool read_offset(const char *text, int *seconds_out)
{
    int hours = 0, minutes = 0;
    bool has_hours = *text == '+' || *text == '-';
    if (has_hours ? !is_like(text + 1, "00:00") || text[6]
                  : strcasecmp(text, "Z") != 0)
        return false;
    sscanf(text + has_hours, "%2d:%2d", &hours, &minutes);
    *seconds_out = (*text == '-' ? -60 : 60) * (60 * hours + minutes);
    return hours < 24 && minutes < 60;
}

bool rfc3339_parse(const char *text, double *seconds_out)
{
    static const char form[] = "0000-00-00T00:00:00";
    struct tm time = {0};
    double fraction = 0;
    time_t minute;
    int east;
    if (!is_like(text, form))
        return false;
    sscanf(text, "%4d-%2d-%2d%*c%2d:%2d:%2d", &time.tm_year, &time.tm_mon,
           &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec);
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    text += strlen(form);
    if (is_like(text, ".0")) {
        fraction = atof(text);
        text += 1 + strspn(text + 1, "0123456789");
    }
    if (!read_offset(text, &east) || !is_moment(&time, &minute))
        return false;
    *seconds_out = (double)minute + time.tm_sec - east + fraction;
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
