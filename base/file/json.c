#include "base/file/json.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Digits that any int64 has room for; longer integers become reals. */
enum { INT_DIGITS = 18 };

/* The byte after the string that begins at `at` with its quote. */
static size_t string_end(const char *text, size_t at, size_t bytes)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < bytes ? at + 1 : bytes;
}

/* Copy `text`, giving every integer longer than INT_DIGITS a ".0". jansson
 * refuses integers beyond 64 bits, yet tokenizer_config.json of most models has
 * one ("model_max_length": 1000000000000000019884624838656). */
static char *widen_integers(const char *text, size_t bytes, size_t *bytes_out)
{
    /* a number grows by 2 and has at least INT_DIGITS + 1 characters */
    char *out = zd_must(malloc(bytes + bytes / INT_DIGITS * 2 + 4));
    size_t used = 0, next;
    for (size_t i = 0; i < bytes; i = next) {
        bool is_integer = isdigit((unsigned char)text[i]);
        next = text[i] == '"' ? string_end(text, i, bytes) : i + 1;
        while (is_integer && next < bytes && isdigit((unsigned char)text[next]))
            next++;
        memcpy(out + used, text + i, next - i);
        used += next - i;
        if ((i > 0 && strchr(".eE+", text[i - 1])) ||
            (next < bytes && strchr(".eE", text[next])) ||
            (i >= 2 && text[i - 1] == '-' && strchr("eE", text[i - 2])))
            is_integer = false;
        if (is_integer && next - i > INT_DIGITS) {
            out[used++] = '.';
            out[used++] = '0';
        }
    }
    *bytes_out = used;
    return out;
}

/* Copies the string that ends before byte `end`: jansson gives the position of
 * a long duplicate key, but not its name. */
static void copy_string_before(
        const char *text, size_t end, char *out, size_t out_bytes)
{
    size_t last = end, begin;
    while (last > 0 && text[last - 1] != '"')
        last--;
    begin = last > 0 ? last - 1 : 0;
    while (begin > 0 && text[begin - 1] != '"')
        begin--;
    size_t bytes = last > begin ? last - 1 - begin : 0;
    snprintf(
            out, out_bytes, "%.*s", (int)(bytes < 200 ? bytes : 200),
            text + begin);
}

static void *take(size_t bytes)
{
    return zd_must(malloc(bytes));
}

void json_must_have_memory(void)
{
    json_set_alloc_funcs(take, free);
}

/* Counts values and keys: the first of the text, those after a comma or colon,
 * and the first in brackets that are not empty. Strings are recognized without
 * a parser, so this agrees with the parser up to the first error. */
static bool has_more_values(const char *text, size_t bytes, size_t most)
{
    size_t count = 1;
    bool is_open = false; /* the last character was a bracket */
    if (bytes < most)
        return false;
    for (size_t i = 0; i < bytes && count <= most; i++) {
        char c = text[i];
        if (isspace((unsigned char)c))
            continue;
        count += c == ',' || c == ':' || (is_open && c != ']' && c != '}');
        is_open = c == '[' || c == '{';
        if (c == '"')
            i = string_end(text, i, bytes) - 1;
    }
    return count > most;
}

static enum zd_status parse(
        const char *text, size_t bytes, size_t most, const char *name,
        size_t flags, enum zd_status status, json_t **json_out)
{
    json_error_t error;
    if (has_more_values(text, bytes, most)) {
        ZD_FAIL(status, "E0713", "%s holds more than %zu JSON values", name,
                most);
        zd_fail_where("%s", name);
        return status;
    }
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; /* byte-order mark */
        bytes -= 3;
    }
    bool is_widened = false;
    json_t *json = json_loadb(text, bytes, flags, &error);
    if (!json && json_error_code(&error) == json_error_numeric_overflow) {
        size_t wide_bytes;
        char *wide = widen_integers(text, bytes, &wide_bytes);
        json = json_loadb(wide, wide_bytes, flags, &error);
        free(wide);
        is_widened = true;
    }
    if (!json) {
        char key[208] = "", *last = strstr(error.text, "end of file");
        if (last && strcmp(last, "end of file") == 0)
            strcpy(last, "the end"); /* it may be a line of a file */
        enum json_error_code code = json_error_code(&error);
        if (code == json_error_duplicate_key && !is_widened &&
            error.position > 0 && (size_t)error.position <= bytes)
            copy_string_before(text, (size_t)error.position, key, sizeof key);
        if (code == json_error_null_character ||
            code == json_error_null_byte_in_key)
            ZD_FAIL(status, "E0711",
                    "%s: strings with NUL (\\u0000) are not supported", name);
        else
            ZD_FAIL(status, "E0711",
                    key[0] ? "%s is not valid JSON: duplicate key `%s`"
                           : "%s is not valid JSON: %s",
                    name, key[0] ? key : error.text);
        int column = error.column > 0 ? error.column : 1; /* 0: line begins */
        zd_fail_where("%s:%d:%d", name, error.line, column);
        return status;
    }
    *json_out = json;
    return ZD_OK;
}

json_t *json_of_line(const char *text, size_t bytes)
{
    if (has_more_values(text, bytes, JSON_VALUES_MAX))
        return NULL;
    return json_loadb(text, bytes, 0, NULL);
}

enum zd_status json_parse(
        const char *text, size_t bytes, const char *name, enum zd_status status,
        json_t **json_out)
{
    return json_parse_upto(
            text, bytes, JSON_VALUES_MAX, name, status, json_out);
}

enum zd_status json_parse_upto(
        const char *text, size_t bytes, size_t most, const char *name,
        enum zd_status status, json_t **json_out)
{
    return parse(
            text, bytes, most, name, JSON_REJECT_DUPLICATES, status, json_out);
}

enum zd_status json_parse_record(
        const char *text, size_t bytes, const char *name, enum zd_status status,
        json_t **json_out)
{
    return parse(
            text, bytes, JSON_VALUES_MAX, name,
            JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, status,
            json_out);
}

enum zd_status json_parse_file(
        const char *path, uint64_t max_bytes, json_t **json_out)
{
    return json_parse_file_upto(path, max_bytes, JSON_VALUES_MAX, json_out);
}

enum zd_status json_parse_file_upto(
        const char *path, uint64_t max_bytes, size_t most, json_t **json_out)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    ZD_TRY(fs_read_file(path, max_bytes, &text, &bytes));
    return json_parse_upto(text, bytes, most, path, ZD_ERR_DATA, json_out);
}

/* Writes the number at `text` in the fewest digits that read back exactly;
 * returns the bytes written to `out`. */
static size_t shorten_real(const char *text, char out[UNITS_TEXT])
{
    units_exact(strtod(text, NULL), out);
    if (!strpbrk(out, ".e"))
        strcat(out, ".0");
    return strlen(out);
}

/* Copy `text` with shorter reals: jansson writes 17 digits, so that 1e-06 would
 * become 9.9999999999999995e-7. */
static char *shorten_reals(const char *text)
{
    size_t bytes = strlen(text), used = 0;
    /* 1e22 becomes 1e+22 */
    char *out = zd_must(malloc(2 * bytes + UNITS_TEXT));
    for (size_t i = 0, next; i < bytes; i = next) {
        size_t length = strspn(text + i, "+-.0123456789eE");
        bool is_number = isdigit((unsigned char)text[i]) || text[i] == '-';
        if (is_number && strcspn(text + i, ".eE") < length) {
            used += shorten_real(text + i, out + used);
            next = i + length;
            continue;
        }
        next = text[i] == '"' ? string_end(text, i, bytes) : i + 1;
        memcpy(out + used, text + i, next - i);
        used += next - i;
    }
    out[used] = '\0';
    return out;
}

char *json_text(const json_t *json)
{
    ZD_FREED char *dumped = zd_must(json_dumps(json, JSON_INDENT(2)));
    char *text = shorten_reals(dumped);
    strcat(text, "\n"); /* there is room for it */
    return text;
}

enum zd_status json_write_file(const char *path, const json_t *json)
{
    ZD_FREED char *text = json_text(json);
    return fs_write_file(path, text, strlen(text));
}

json_t *json_number_or_null(double value)
{
    /* jansson prints 17 significant digits, which identify a double */
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_string_or_null(const char *text)
{
    json_t *string = text ? json_string(text) : json_null();
    if (string)
        return string;
    ZD_FREED char *copy = zd_must(strdup(text));
    for (char *c = copy; *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    return json_string(copy);
}
