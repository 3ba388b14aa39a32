#include "base/words.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "64MiB", "5 GB", "1.5e9" into bytes; false when it is none. */
bool words_size(const char *text, double *bytes_out)
{
    static const char prefixes[] = "kmgtp";
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    double bytes = strtod(text, &end);
    end += strspn(end, " ");
    const char *prefix =
            *end ? strchr(prefixes, tolower((unsigned char)*end)) : NULL;
    if (prefix) {
        bool is_binary = tolower((unsigned char)end[1]) == 'i';
        bytes *= pow(is_binary ? 1024 : 1000, (double)(prefix - prefixes + 1));
        end += 1 + is_binary;
    }
    if (strcasecmp(end, "B") != 0 && (prefix || *end))
        return false;
    *bytes_out = bytes;
    return true;
}

/* "90%" into 0.9. */
bool words_percent(const char *text, double *share_out)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    double share = strtod(text, &end) / 100;
    end += strspn(end, " ");
    if (strcmp(end, "%") != 0)
        return false;
    *share_out = share;
    return true;
}

/* "1h30m": numbers with units that become smaller. */
bool words_duration(const char *text, double *seconds_out)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}};
    double total = 0, last = INFINITY;
    while (*text) {
        char *end;
        double unit = 0;
        if (!isdigit((unsigned char)*text))
            return false;
        double number = strtod(text, &end);
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (*end && tolower((unsigned char)*end) == units[i].name[0])
                unit = units[i].seconds;
        if (unit == 0 || unit >= last)
            return false;
        total += number * unit;
        last = unit;
        text = end + 1;
    }
    *seconds_out = total;
    return isfinite(last); /* something was read */
}

bool words_next(const char **list, const char *marks, char *out, size_t bytes)
{
    if (!*list)
        return false;
    *list += strspn(*list, marks);
    size_t length = strcspn(*list, marks);
    snprintf(out, bytes, "%.*s", (int)length, *list);
    *list += length;
    return length > 0;
}

bool words_have(const char *list, const char *marks, const char *word)
{
    size_t bytes = strlen(word), length;
    for (; list && *list; list += length) {
        list += strspn(list, marks);
        length = strcspn(list, marks);
        if (length == bytes && length && memcmp(list, word, bytes) == 0)
            return true;
    }
    return false;
}
