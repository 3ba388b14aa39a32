#include "daemon/reference/key_text.h"

#include "daemon/job/job_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "none | cpu | a path": what is one word is typed, what is more describes. */
static void put_words(FILE *stream, const char *words)
{
    for (const char *at = words; *at;) {
        const char *end = strstr(at, " | ");
        int length = end ? (int)(end - at) : (int)strlen(at);
        bool is_typed = !memchr(at, ' ', (size_t)length);
        fprintf(stream, is_typed ? "`%.*s`" : "%.*s", length, at);
        fputs(end ? ", " : "", stream);
        at += length + (end ? 3 : 0);
    }
}

void key_put_accepts(FILE *stream, const struct schema_key *key)
{
    char text[1024];
    schema_accepts(key, text, sizeof text);
    if (key->type == SCHEMA_SIZE)
        fputs("a size", stream);
    else if (key->type == SCHEMA_LIMIT)
        fputs("a size, or a share like `\"90%\"`", stream);
    else if (strstr(text, " | "))
        put_words(stream, text);
    else if (key->flags & SCHEMA_AUTO)
        fprintf(stream, "%.*s`auto`", (int)(strlen(text) - strlen("\"auto\"")),
                text);
    else
        fputs(text, stream);
}

/* --- defaults --- */

/* The fewest digits that come back exactly; 2e-5, 0.1, 3.0. */
static void put_real(FILE *stream, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    char *exponent = strchr(text, 'e');
    if (exponent) {
        fprintf(stream, "%.*se%d", (int)(exponent - text), text,
                atoi(exponent + 1));
        return;
    }
    fprintf(stream, "%s%s", text, strchr(text, '.') ? "" : ".0");
}

static void put_size(FILE *stream, uint64_t bytes)
{
    static const struct {
        uint64_t bytes;
        const char *name;
    } units[] = {
            {1u << 30, "GiB"},
            {1000000000, "GB"},
            {1u << 20, "MiB"},
            {1000000, "MB"}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (bytes && bytes % units[i].bytes == 0) {
            fprintf(stream, "`\"%llu%s\"`",
                    (unsigned long long)(bytes / units[i].bytes),
                    units[i].name);
            return;
        }
    fprintf(stream, "%llu", (unsigned long long)bytes);
}

static void put_duration(FILE *stream, const char *seconds)
{
    long value = strtol(seconds, NULL, 10);
    if (value && value % 60 == 0)
        fprintf(stream, "`\"%ldm\"`", value / 60);
    else
        fprintf(stream, "`\"%s\"`", seconds);
}

static void put_integer(FILE *stream, json_int_t value)
{
    if (value >= 10000000 && fmod((double)value, 1e6) == 0)
        put_real(stream, (double)value);
    else
        fprintf(stream, "%lld", (long long)value);
}

static void put_json(
        FILE *stream, const struct schema_key *key, const json_t *value)
{
    if (key->type == SCHEMA_DURATION)
        put_duration(stream, json_string_value(value));
    else if (key->type == SCHEMA_SIZE && json_is_integer(value))
        put_size(stream, (uint64_t)json_integer_value(value));
    else if (json_is_real(value))
        put_real(stream, json_real_value(value));
    else if (json_is_integer(value))
        put_integer(stream, json_integer_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", stream);
    else {
        fputc('`', stream);
        json_dumpf(value, stream, JSON_ENCODE_ANY);
        fputc('`', stream);
    }
}

void key_put_default(FILE *stream, const struct schema_key *key)
{
    struct train_job job = train_job_default();
    struct data_entry entry = data_entry_default();
    bool is_entry = strncmp(key->section, "data.", 5) == 0;
    if (key->fallback) {
        fputs(key->fallback, stream);
        return;
    }
    json_t *value = NULL;
    if (key->type != SCHEMA_ENTRIES && key->type != SCHEMA_TABLE)
        value = value_json(key, is_entry ? (void *)&entry : (void *)&job);
    bool is_absent = !value || ((key->flags & SCHEMA_NULLABLE) &&
                                json_string_length(value) == 0);
    if (is_absent)
        fputs("none", stream);
    else
        put_json(stream, key, value);
    json_decref(value);
}

/* --- the rest --- */

/* Other words of a key of choices; the optimizers' are too many. */
static void put_other_words(FILE *stream, const struct schema_key *key)
{
    bool is_first = true;
    if (!key->choices || key->type == SCHEMA_OPTIMIZER)
        return;
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (c->note && c->note[0] == '=') {
            fprintf(stream, "%s`%s`", is_first ? ". Read too: " : ", ",
                    c->name);
            is_first = false;
        }
}

void key_put_help(FILE *stream, const struct schema_key *key)
{
    fputs(key->help, stream);
    put_other_words(stream, key);
    if (!key->aliases)
        return;
    fputs(". Also: ", stream);
    for (const char *at = key->aliases; *at;) {
        int length = (int)strcspn(at, " ");
        fprintf(stream, "`%.*s`%s", length, at, at[length] ? ", " : "");
        at += length + (at[length] == ' ');
    }
}

void key_put_section(FILE *stream, const char *section)
{
    bool is_array = strncmp(section, "data.", 5) == 0;
    if (!section[0])
        fputs("Above all sections", stream);
    else
        fprintf(stream, is_array ? "[[%s]]" : "[%s]", section);
}

bool key_is_available(const struct schema_key *key)
{
    return !(key->flags & SCHEMA_UNAVAILABLE);
}

bool key_begins_section(const struct schema_key *key)
{
    bool is_first =
            key == schema_table || strcmp(key[-1].section, key->section) != 0;
    for (; is_first && key < schema_table + schema_count; key++) {
        if (key_is_available(key))
            return true;
        is_first = key + 1 < schema_table + schema_count &&
                   strcmp(key[1].section, key->section) == 0;
    }
    return false;
}
