#include "daemon/cli/fill.h"

#include "base/must.h"
#include "base/text_stream.h"
#include "base/units.h"

#include <math.h>
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
        ZD_PRINT(key, "%.*s", (int)length, path + at);
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

/* --- kinds --- */

/* "210 GFLOP/s": the unit's letter belongs to the unit. */
static void print_rate(double value, FILE *out)
{
    char text[TEXT_SHORT];
    size_t digits = strcspn(text_count(value, text), "kMGTPE");
    fprintf(out, "%.*s %sFLOP/s", (int)digits, text, text + digits);
}

static void print_number(const struct look *look, char kind, double value)
{
    char text[TEXT_SHORT] = "";
    switch (kind) {
    case 'n':
        text_number(value, text);
        break;
    case 'c':
        text_count(value, text);
        break;
    case 'z':
    case 'b':
        text_bytes(kind == 'z' && value == 0 ? NAN : value, text);
        break;
    case 'd':
        text_duration(value, text);
        break;
    case 'a':
        text_duration(look->now - value, text);
        break;
    case 't':
        text_time(look, value, text);
        break;
    case 'f':
        print_rate(value, look->out);
        break;
    case 'p':
    case 'P':
        strcpy(text, value == 1 ? "" : kind == 'p' ? "s" : "es");
        break;
    case 'm':
        ZD_PRINT(text, "%.3f", units_mib((uint64_t)value));
        break;
    case '%':
        ZD_PRINT(text, "%.3g", 100 * value);
        break;
    case '.':
    case '<':
        break;
    default:
        fprintf(look->out,
                kind == '2'          ? "%.2f"
                : fabs(value) < 1e15 ? "%.0f"
                                     : "%.3e",
                value);
    }
    fputs(text, look->out);
}

static bool print_text(const struct look *look, const json_t *value)
{
    JSON_EACH_AT(i, item, value) {
        fputs(i ? ", " : "", look->out);
        print_text(look, item);
    }
    if (json_is_string(value))
        text_print(look, json_string_value(value), false);
    return json_string_length(value) > 0 || json_array_size(value) > 0;
}

static bool print_json(const struct look *look, const json_t *value)
{
    ZD_FREED char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    text_print(look, text ? text : "", false);
    return text != NULL;
}

/* False: it is missing. */
static bool print_member(
        const struct look *look, const json_t *object, const char *path,
        size_t bytes, char kind)
{
    const json_t *member = find(object, path, bytes);
    if (kind == '?')
        return json_is_true(member);
    if (kind == '!')
        return !member || json_is_false(member);
    if (kind == 'j')
        return print_json(look, member);
    if (kind == 's')
        return print_text(look, member);
    double value = number_of(object, path, bytes);
    bool is_there = (isfinite(value) && (kind != '+' || value != 0) &&
                     ((kind != '>' && kind != '<') || value > 1)) ||
                    kind == 'p' || kind == 'P';
    if (is_there)
        print_number(look, kind, value);
    return is_there;
}

/* --- templates --- */

/* Up to `end`; false: a member is missing. */
static bool fill_part(
        const struct look *look, const json_t *object, const char *at,
        const char *end)
{
    bool is_whole = true;
    while (at < end) {
        size_t bytes = strcspn(at, "{[");
        bytes = bytes > (size_t)(end - at) ? (size_t)(end - at) : bytes;
        fwrite(at, 1, bytes, look->out);
        at += bytes;
        if (at < end && *at == '{') {
            const char *bar = strchr(at, '|');
            if (!print_member(
                        look, object, at + 1, (size_t)(bar - at - 1), bar[1])) {
                fputs(strchr("?.!<", bar[1]) ? "" : "-", look->out);
                is_whole = false;
            }
            at = bar + 3;
        } else if (at < end) {
            const char *close = strchr(at, ']');
            ZD_FREED char *text = NULL;
            struct look part = *look;
            part.out = text_stream_open(&text, NULL);
            bool is_there = fill_part(&part, object, at + 1, close);
            fclose(part.out);
            fputs(is_there ? text : "", look->out);
            at = close + 1;
        }
    }
    return is_whole;
}

void fill_print(
        const struct look *look, const json_t *object, const char *template)
{
    fill_part(look, object, template, template + strlen(template));
}

char *fill(const struct look *look, const json_t *object, const char *template)
{
    char *text = NULL;
    struct look whole = *look;
    whole.out = text_stream_open(&text, NULL);
    fill_print(&whole, object, template);
    fclose(whole.out);
    return text;
}
