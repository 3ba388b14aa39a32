#include "daemon/sinks/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *suffix(enum family_type type)
{
    return type == FAMILY_COUNTER ? "_total"
           : type == FAMILY_INFO  ? "_info"
                                  : "";
}

/* --- texts and numbers --- */

/* `quotes`: inside quotes, or help of OpenMetrics. */
static void put_escaped(FILE *out, const char *text, bool quotes)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\\\", out);
        else if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' && quotes)
            fputs("\\\"", out);
        else
            fputc(*text, out);
    }
}

/* The shortest text that reads back as the same number. */
static void put_number(FILE *out, double value)
{
    char text[40];
    if (isnan(value)) {
        fputs("NaN", out);
    } else if (isinf(value)) {
        fputs(value > 0 ? "+Inf" : "-Inf", out);
    } else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
        fputs(text, out);
    }
}

/* A bound as OpenMetrics wants it, "1.0" and not "1": the same series then
 * whichever format is asked for. */
static void format_bound(double bound, char *text, size_t room)
{
    snprintf(text, room, "%.6g", bound);
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
}

/* --- families --- */

void family_open(struct exposition *to, const struct family *family)
{
    static const char *const types[] = {
            "gauge", "counter", "info", "histogram"};
    bool open = to->open_metrics;
    const char *end = open ? "" : suffix(family->type);
    const char *type = !open && family->type == FAMILY_INFO
                               ? "gauge"
                               : types[family->type];
    to->family = *family;
    fprintf(to->out, "# HELP %s%s ", family->name, end);
    put_escaped(to->out, family->help, open);
    fprintf(to->out, "\n# TYPE %s%s %s\n", family->name, end, type);
    if (open && family->unit)
        fprintf(to->out, "# UNIT %s %s\n", family->name, family->unit);
}

static void put_label(
        struct exposition *to, const char *name, const char *value, char *mark)
{
    fprintf(to->out, "%c%s=\"", *mark, name);
    put_escaped(to->out, value, true);
    fputc('"', to->out);
    *mark = ',';
}

/* name + end, the labels that every sample has, `name`="value" when there is
 * one, and the pairs of `rest`. */
static void put_sample(
        struct exposition *to, const char *end, double value, const char *name,
        va_list *rest)
{
    char mark = '{';
    fprintf(to->out, "%s%s", to->family.name, end);
    if (to->job)
        put_label(to, "zerod_job", to->job, &mark);
    while (name) {
        put_label(to, name, va_arg(*rest, const char *), &mark);
        name = va_arg(*rest, const char *);
    }
    fputs(mark == ',' ? "} " : " ", to->out);
    put_number(to->out, value);
    fputc('\n', to->out);
}

void family_sample(struct exposition *to, double value, ...)
{
    va_list rest;
    va_start(rest, value);
    const char *name = va_arg(rest, const char *);
    put_sample(to, suffix(to->family.type), value, name, &rest);
    va_end(rest);
}

static void put_part(struct exposition *to, const char *end, double value, ...)
{
    va_list rest;
    va_start(rest, value);
    const char *name = va_arg(rest, const char *);
    put_sample(to, end, value, name, &rest);
    va_end(rest);
}

void family_histogram(
        struct exposition *to, const struct run_histogram *histogram)
{
    uint64_t below = 0;
    const char *const none = NULL;
    for (int i = 0; i < STEP_BUCKETS; i++) {
        char bound[32];
        format_bound(histogram->bound[i], bound, sizeof bound);
        below += histogram->count[i];
        put_part(to, "_bucket", (double)below, "le", bound, none);
    }
    below += histogram->count[STEP_BUCKETS];
    put_part(to, "_bucket", (double)below, "le", "+Inf", none);
    put_part(to, "_sum", histogram->sum, none);
    put_part(to, "_count", (double)below, none);
}

void exposition_end(struct exposition *to)
{
    if (to->open_metrics)
        fputs("# EOF\n", to->out);
}
