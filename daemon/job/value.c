/* value.c - one TOML value into one field of the options. */
#include "daemon/job/job_internal.h"

#include "base/rfc3339.h"
#include "daemon/job/value_parts.h"
#include "daemon/job/value_words.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STRING_MAX = 1000 }; /* paths are joined in buffers of PATH_MAX */

/* --- scalars --- */

static bool is_auto(const struct toml_node *node)
{
    return node->kind == TOML_STRING && strcasecmp(node->string, "auto") == 0;
}

/* Integers may be written 5e8. */
static bool get_integer(const struct toml_node *node, int64_t *value_out)
{
    if (node->kind == TOML_INTEGER)
        *value_out = node->integer;
    else if (
            node->kind == TOML_REAL && fabs(node->real) <= 9e15 &&
            node->real == floor(node->real))
        *value_out = (int64_t)node->real;
    else
        return false;
    return true;
}

static bool get_number(const struct toml_node *node, double *value_out)
{
    if (node->kind == TOML_REAL)
        *value_out = node->real;
    else if (node->kind == TOML_INTEGER)
        *value_out = (double)node->integer;
    else
        return false;
    return true;
}

static bool in_range(const struct schema_key *key, double value)
{
    if (!isfinite(value) || value < key->min || value > key->max)
        return false;
    if ((key->flags & SCHEMA_ABOVE_MIN) && value == key->min)
        return false;
    if ((key->flags & SCHEMA_BELOW_MAX) && value == key->max)
        return false;
    return !((key->flags & SCHEMA_NOT_ZERO) && value == 0);
}

static bool read_integer(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    int64_t value = key->flags & SCHEMA_ZERO ? -1 : 0;
    if (!((key->flags & SCHEMA_AUTO) && is_auto(node))) {
        if (!get_integer(node, &value))
            return value_fail_type(job, key, node);
        if (!in_range(key, (double)value))
            return value_fail_range(job, key, node);
    }
    if (key->type == SCHEMA_INT)
        *FIELD(int, base, key->offset) = (int)value;
    else if (key->type == SCHEMA_INT64)
        *FIELD(int64_t, base, key->offset) = value;
    else
        *FIELD(uint64_t, base, key->offset) = (uint64_t)value;
    return true;
}

static bool read_real(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    double value;
    if (!get_number(node, &value))
        return value_fail_type(job, key, node);
    bool is_whole = value == floor(value);
    if (!in_range(key, value) ||
        (key->type == SCHEMA_STEPS && value > 1 && !is_whole))
        return value_fail_range(job, key, node);
    *FIELD(double, base, key->offset) = value;
    return true;
}

static bool read_string(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    if (node->kind != TOML_STRING)
        return value_fail_type(job, key, node);
    size_t length = strlen(node->string);
    if (key->flags & SCHEMA_NAMES) {
        for (size_t i = 0; i < length; i++)
            if (!isalnum((unsigned char)node->string[i]) &&
                !strchr("._-", node->string[i]))
                return value_fail_range(job, key, node);
        bool is_dots = strspn(node->string, ".") == length;
        if (is_dots || length > 48)
            return value_fail_range(job, key, node);
    }
    if (length > STRING_MAX) {
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0206", node->place, NULL,
                "`%s` in [%s] is %zu bytes long; %d are allowed", key->name,
                key->section, length, STRING_MAX);
        return false;
    }
    bool is_null = length == 0 && (key->flags & SCHEMA_NULLABLE);
    *FIELD(const char *, base, key->offset) =
            is_null ? NULL : job_string(job, "%s", node->string);
    return true;
}

/* --- sizes and times --- */

static bool read_size(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    double bytes, share = 0;
    if ((key->flags & SCHEMA_AUTO) && is_auto(node)) {
        *FIELD(uint64_t, base, key->offset) = 0;
        return true;
    }
    if (node->kind == TOML_STRING) {
        if (key->type == SCHEMA_LIMIT && words_percent(node->string, &share)) {
            if (!(share > 0 && share <= 1))
                return value_fail_range(job, key, node);
            bytes = 0;
        } else if (!words_size(node->string, &bytes))
            return value_fail_word(job, key, node);
    } else if (!get_number(node, &bytes))
        return value_fail_type(job, key, node);
    if (!(bytes >= 0 && bytes <= 1e18) ||
        (bytes < 1 && (key->flags & SCHEMA_ABOVE_MIN)))
        return value_fail_range(job, key, node);
    *FIELD(uint64_t, base, key->offset) = (uint64_t)bytes;
    if (key->type == SCHEMA_LIMIT)
        *FIELD(double, base, key->offset2) = share;
    return true;
}

static bool read_duration(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    double seconds;
    if (node->kind != TOML_STRING)
        return value_fail_type(job, key, node);
    if ((key->flags & SCHEMA_AUTO) && is_auto(node)) {
        *FIELD(double, base, key->offset) = key->flags & SCHEMA_ZERO ? -1 : 0;
        return true;
    }
    if (!words_duration(node->string, &seconds))
        return value_fail_word(job, key, node);
    if (!in_range(key, seconds))
        return value_fail_range(job, key, node);
    *FIELD(double, base, key->offset) = seconds;
    return true;
}

/* Of the two that are written one is 0: both, when "" says that there is none.
 */
static bool read_moment(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    double at = 0, after = 0;
    bool is_text = node->kind == TOML_STRING || node->kind == TOML_DATETIME;
    if (!is_text || !node->string)
        return value_fail_type(job, key, node);
    if (node->string[0] && !rfc3339_parse(node->string, &at)) {
        if (!words_duration(node->string, &after))
            return value_fail_word(job, key, node);
        if (!(after > 0 && after <= key->max))
            return value_fail_range(job, key, node);
    }
    *FIELD(double, base, key->offset) = at;
    *FIELD(double, base, key->offset2) = after;
    return true;
}

/* --- arrays --- */

static bool read_strings(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    if (node->kind != TOML_ARRAY)
        return value_fail_type(job, key, node);
    const char **strings =
            job_alloc(job, (size_t)(node->count + 1) * sizeof *strings);
    for (int i = 0; i < node->count; i++) {
        if (node->items[i]->kind != TOML_STRING)
            return value_fail_type(job, key, node->items[i]);
        strings[i] = job_string(job, "%s", node->items[i]->string);
    }
    *FIELD(const char *const *, base, key->offset) = strings;
    *FIELD(int, base, key->offset2) = node->count;
    return true;
}

/* A string or an integer, or an array of such: kept as it is. */
static bool read_some(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, enum toml_kind kind, void *base)
{
    json_t *json;
    if (node->kind != kind && node->kind != TOML_ARRAY)
        return value_fail_type(job, key, node);
    for (int i = 0; node->kind == TOML_ARRAY && i < node->count; i++)
        if (node->items[i]->kind != kind)
            return value_fail_type(job, key, node->items[i]);
    bool is_none = node->kind == TOML_ARRAY ? node->count == 0
                   : kind == TOML_STRING    ? !node->string[0]
                                            : false;
    if (is_none && !(key->flags & SCHEMA_NULLABLE))
        return value_fail_range(job, key, node);
    json = is_none ? NULL : value_node_json(job, node);
    *FIELD(json_t *, base, key->offset) = json;
    return is_none || json;
}

bool value_read(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    int64_t version;
    switch (key->type) {
    case SCHEMA_STRING:
        return read_string(job, key, node, base);
    case SCHEMA_WORD:
    case SCHEMA_ENUM:
    case SCHEMA_DTYPE:
        return value_read_choice(job, key, node, base);
    case SCHEMA_OPTIMIZER:
        return value_read_optimizer(job, key, node, base);
    case SCHEMA_BOOL:
        if (node->kind != TOML_BOOL)
            return value_fail_type(job, key, node);
        *FIELD(bool, base, key->offset) = node->boolean;
        return true;
    case SCHEMA_INT:
    case SCHEMA_INT64:
    case SCHEMA_UINT64:
        return read_integer(job, key, node, base);
    case SCHEMA_REAL:
    case SCHEMA_STEPS:
        return read_real(job, key, node, base);
    case SCHEMA_SIZE:
    case SCHEMA_LIMIT:
        return read_size(job, key, node, base);
    case SCHEMA_DURATION:
        return read_duration(job, key, node, base);
    case SCHEMA_MOMENT:
        return read_moment(job, key, node, base);
    case SCHEMA_STRINGS:
        return read_strings(job, key, node, base);
    case SCHEMA_MODULES:
        return read_some(job, key, node, TOML_STRING, base);
    case SCHEMA_LAYERS:
        return read_some(job, key, node, TOML_INTEGER, base);
    case SCHEMA_RESUME:
        return value_read_resume(job, key, node, base);
    case SCHEMA_SOCKET:
        return value_read_socket(job, key, node, base);
    case SCHEMA_CHECKPOINTING:
        return value_read_checkpointing(job, key, node, base);
    case SCHEMA_VERSION:
        if (!get_integer(node, &version))
            return value_fail_type(job, key, node);
        if (version != 1) {
            problem_add(
                    &job->problems, ZD_ERR_CONFIG, "E0218", node->place,
                    "this zerod reads schema = 1", "schema %lld is not known",
                    (long long)version);
            return false;
        }
        return true;
    case SCHEMA_TABLE:
        if (node->kind != TOML_TABLE)
            return value_fail_type(job, key, node);
        *FIELD(json_t *, base, key->offset) = value_table_json(job, node);
        return *FIELD(json_t *, base, key->offset) != NULL;
    case SCHEMA_ENTRIES: /* keys.c walks them */
    case SCHEMA_EXTENDS: /* tree.c followed it */
        return true;
    }
    return false;
}

/* --- keys that do nothing yet --- */

static bool is_literal(const struct toml_node *node, const char *word)
{
    double number;
    char *end;
    switch (node->kind) {
    case TOML_STRING:
        return strcasecmp(node->string, word) == 0;
    case TOML_BOOL:
        return strcmp(word, node->boolean ? "true" : "false") == 0;
    case TOML_INTEGER:
    case TOML_REAL:
        number = strtod(word, &end);
        return end != word && !*end &&
               number == (node->kind == TOML_REAL ? node->real
                                                  : (double)node->integer);
    case TOML_ARRAY:
        return node->count == 0 && strcmp(word, "[]") == 0;
    default:
        return false;
    }
}

bool value_is_off(const struct schema_key *key, const struct toml_node *node)
{
    const char *list = key->off;
    while (list) {
        char word[32];
        const char *bar = strchr(list, '|');
        int length = bar ? (int)(bar - list) : (int)strlen(list);
        snprintf(word, sizeof word, "%.*s", length, list);
        if (is_literal(node, word))
            return true;
        list = bar ? bar + 1 : NULL;
    }
    return false;
}
