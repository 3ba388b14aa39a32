#include "daemon/cli/fill.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 96 };

/* --- members --- */

/* The member that `path` names, up to `bytes`; NULL: missing or null. */
static json_t *find(const json_t *object, const char *path, size_t bytes)
{
    char key[PATH_BYTES];
    json_t *value = (json_t *)object;
    for (size_t at = 0; value && at < bytes;) {
        size_t length = strcspn(path + at, ".");
        length = length > bytes - at ? bytes - at : length;
        snprintf(key, sizeof key, "%.*s", (int)length, path + at);
        value = json_object_get(value, key);
        at += length + 1;
    }
    return json_is_null(value) ? NULL : value;
}

/* The sum of the members that are there. */
static double number_of(const json_t *object, const char *path, size_t bytes)
{
    double sum = NAN;
    for (size_t at = 0; at < bytes;) {
        size_t length = strcspn(path + at, "+");
        length = length > bytes - at ? bytes - at : length;
        json_t *value = find(object, path + at, length);
        if (json_is_number(value))
            sum = (isnan(sum) ? 0 : sum) + json_number_value(value);
        at += length + 1;
    }
    return sum;
}

double fill_number(const json_t *object, const char *path)
{
    return number_of(object, path, strlen(path));
}

const char *json_text_of(
        const json_t *object, const char *key, const char *fallback)
{
    const char *text = json_string_at(object, key);
    return text ? text : fallback;
}

/* --- kinds --- */

/* "210 GFLOP/s": the unit's letter belongs to the unit. */
static void print_rate(double value, FILE *out)
{
    char text[TEXT_SHORT];
    size_t digits = strcspn(text_count(value, text), "kMGTPE");
    fprintf(out, "%.*s %sFLOP/s", (int)digits, text, text + digits);
}

static void print_number(
        const struct look *look, char kind, double value, FILE *out)
{
    char text[TEXT_SHORT];
    switch (kind) {
    case 'n':
        fputs(text_number(value, text), out);
        break;
    case 'c':
        fputs(text_count(value, text), out);
        break;
    case 'b':
    case 'z':
        fputs(kind == 'z' && value == 0 ? "-" : text_bytes(value, text), out);
        break;
    case 'd':
        fputs(text_duration(value, text), out);
        break;
    case 'a':
        fputs(text_duration(look->now - value, text), out);
        break;
    case 't':
        fputs(text_time(look, value, text), out);
        break;
    case 'f':
        print_rate(value, out);
        break;
    case 'p':
    case 'P':
        fputs(value == 1 ? "" : kind == 'p' ? "s" : "es", out);
        break;
    case 'm':
        fprintf(out, "%.3f", units_mib((uint64_t)value));
        break;
    case '%':
        fprintf(out, "%.3g", 100 * value);
        break;
    case '.':
    case '<':
        break;
    default:
        fprintf(out,
                kind == '2'          ? "%.2f"
                : fabs(value) < 1e15 ? "%.0f"
                                     : "%.3e",
                value);
    }
}

static bool print_text(const struct look *look, const json_t *value, FILE *out)
{
    json_t *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        fputs(i ? ", " : "", out);
        print_text(look, item, out);
    }
    if (json_is_string(value))
        text_print(look, json_string_value(value), false, out);
    return json_string_length(value) > 0 || json_array_size(value) > 0;
}

static bool print_json(const struct look *look, const json_t *value, FILE *out)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    text_print(look, text ? text : "", false, out);
    free(text);
    return text != NULL;
}

/* False: it is missing. */
static bool print_member(
        const struct look *look, const json_t *object, const char *path,
        size_t bytes, char kind, FILE *out)
{
    double value;
    if (kind == '?')
        return json_is_true(find(object, path, bytes));
    if (kind == '!')
        return !find(object, path, bytes) ||
               json_is_false(find(object, path, bytes));
    if (kind == 'j')
        return print_json(look, find(object, path, bytes), out);
    if (kind == 's')
        return print_text(look, find(object, path, bytes), out);
    value = number_of(object, path, bytes);
    bool is_there = (isfinite(value) && (kind != '+' || value != 0) &&
                     ((kind != '>' && kind != '<') || value > 1)) ||
                    kind == 'p' || kind == 'P';
    if (is_there)
        print_number(look, kind, value, out);
    return is_there;
}

/* --- templates --- */

/* Up to `end`; false: a member is missing. */
static bool fill_part(
        const struct look *look, const json_t *object, const char *at,
        const char *end, FILE *out)
{
    bool is_whole = true;
    while (at < end) {
        size_t bytes = strcspn(at, "{[");
        bytes = bytes > (size_t)(end - at) ? (size_t)(end - at) : bytes;
        fwrite(at, 1, bytes, out);
        at += bytes;
        if (at < end && *at == '{') {
            const char *bar = strchr(at, '|');
            if (!print_member(
                        look, object, at + 1, (size_t)(bar - at - 1), bar[1],
                        out)) {
                fputs(strchr("?.!<", bar[1]) ? "" : "-", out);
                is_whole = false;
            }
            at = bar + 3;
        } else if (at < end) {
            const char *close = strchr(at, ']');
            char *text = NULL;
            size_t size;
            FILE *part = text_stream_open(&text, &size);
            bool is_there = fill_part(look, object, at + 1, close, part);
            fclose(part);
            fputs(is_there ? text : "", out);
            free(text);
            at = close + 1;
        }
    }
    return is_whole;
}

void fill_print(
        const struct look *look, const json_t *object, const char *template,
        FILE *out)
{
    fill_part(look, object, template, template + strlen(template), out);
}

char *fill(const struct look *look, const json_t *object, const char *template)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = text_stream_open(&text, &bytes);
    fill_print(look, object, template, out);
    fclose(out);
    return text;
}
