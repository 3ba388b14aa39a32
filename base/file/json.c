#include "base/file/json.h"

#include "base/file/fs.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };

/* Digits that any int64 has room for; longer integers become reals. */
enum { INT_DIGITS = 18 };

/* Copy `text`, giving every integer longer than INT_DIGITS a ".0". jansson
 * refuses integers beyond 64 bits, yet tokenizer_config.json of most models has
 * one ("model_max_length": 1000000000000000019884624838656). */
static char *widen_integers(const char *text, size_t bytes, size_t *bytes_out)
{
    /* a number grows by 2 and has at least INT_DIGITS + 1 characters */
    char *out = malloc(bytes + bytes / INT_DIGITS * 2 + 4);
    size_t used = 0;
    bool in_string = false;
    if (!out)
        return NULL;
    for (size_t i = 0; i < bytes;) {
        char c = text[i];
        if (in_string || !isdigit((unsigned char)c)) {
            if (c == '"')
                in_string = !in_string;
            out[used++] = text[i++];
            if (in_string && c == '\\' && i < bytes)
                out[used++] = text[i++];
            continue;
        }
        size_t begin = i;
        while (i < bytes && isdigit((unsigned char)text[i]))
            out[used++] = text[i++];
        bool is_integer = (begin == 0 || !strchr(".eE+", text[begin - 1])) &&
                          (i == bytes || !strchr(".eE", text[i]));
        if (begin >= 2 && text[begin - 1] == '-' &&
            (text[begin - 2] == 'e' || text[begin - 2] == 'E'))
            is_integer = false;
        if (is_integer && i - begin > INT_DIGITS) {
            out[used++] = '.';
            out[used++] = '0';
        }
    }
    *bytes_out = used;
    return out;
}

/* The string that ends in front of byte `end`, into `out`; jansson does not
 * name a long key that is there twice, though it knows where. */
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

enum zd_status json_parse(
        const char *text, size_t bytes, const char *name, enum zd_status status,
        json_t **json_out)
{
    json_error_t error;
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; /* byte-order mark */
        bytes -= 3;
    }
    bool is_widened = false;
    json_t *json = json_loadb(text, bytes, JSON_FLAGS, &error);
    if (!json && json_error_code(&error) == json_error_numeric_overflow) {
        size_t wide_bytes;
        char *wide = widen_integers(text, bytes, &wide_bytes);
        if (wide)
            json = json_loadb(wide, wide_bytes, JSON_FLAGS, &error);
        free(wide);
        is_widened = true;
    }
    if (!json) {
        char key[208] = "";
        bool is_twice = json_error_code(&error) == json_error_duplicate_key;
        if (is_twice && !is_widened && error.position > 0 &&
            (size_t)error.position <= bytes)
            copy_string_before(text, (size_t)error.position, key, sizeof key);
        ZD_FAIL(status, "E0711",
                key[0] ? "%s is not valid JSON: duplicate key `%s`"
                       : "%s is not valid JSON: %s",
                name, key[0] ? key : error.text);
        zd_fail_where("%s:%d:%d", name, error.line, error.column);
        return status;
    }
    *json_out = json;
    return ZD_OK;
}

enum zd_status json_parse_file(
        const char *path, uint64_t max_bytes, json_t **json_out)
{
    char *text;
    size_t bytes;
    ZD_TRY(fs_read_file(path, max_bytes, &text, &bytes));
    enum zd_status status =
            json_parse(text, bytes, path, ZD_ERR_DATA, json_out);
    free(text);
    return status;
}

enum zd_status json_write_file(const char *path, const json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2));
    if (!text)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory writing %s", path);
    size_t bytes = strlen(text);
    text[bytes++] = '\n'; /* in the place of the NUL: bytes are counted */
    enum zd_status status = fs_write_file(path, text, bytes);
    free(text);
    return status;
}

json_t *json_number_or_null(double value)
{
    /* jansson prints 17 significant digits, which identify a double */
    return isfinite(value) ? json_real(value) : json_null();
}
