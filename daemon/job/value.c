/* value.c - one TOML value into one field of the options, and back as JSON: one
 * row a type. */
#include "daemon/job/job_internal.h"

#include "base/text_buffer.h"
#include "base/words.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { STRING_MAX = 1000 }; /* paths are joined in buffers of PATH_MAX */

/* `field` and `field2` are those of the key. A writer's result is a new
 * reference. */
#define READ(name)                                                             \
    static enum value_fault name(                                              \
            struct job *job, const struct schema_key *key,                     \
            const struct toml_node *node, void *field, void *field2)
#define WRITE(name)                                                            \
    static json_t *name(                                                       \
            const struct schema_key *key, const void *field,                   \
            const void *field2)

/* --- scalars --- */

static bool is_auto(const struct toml_node *node)
{
    return node->kind == TOML_STRING && strcasecmp(node->string, "auto") == 0;
}

static bool is_size(const struct schema_key *key)
{
    return key->type == SCHEMA_SIZE || key->type == SCHEMA_LIMIT;
}

/* What "auto" is stored as. */
static int auto_value(const struct schema_key *key)
{
    return key->flags & SCHEMA_ZERO ? -1 : 0;
}

/* A number, a size or a time, as TOML has it. Integers may be written 5e8. */
static enum value_fault get_value(
        const struct schema_key *key, const struct toml_node *node, double *out)
{
    bool is_text = node->kind == TOML_STRING;
    if (is_text && is_size(key))
        return words_size(node->string, out) ? VALUE_FINE : VALUE_WORD;
    if (is_text && key->type == SCHEMA_DURATION)
        return words_duration(node->string, out) ? VALUE_FINE : VALUE_WORD;
    bool is_real = is_size(key) || key->type == SCHEMA_REAL ||
                   key->type == SCHEMA_STEPS;
    bool is_whole = node->kind == TOML_INTEGER ||
                    (node->kind == TOML_REAL && fabs(node->real) <= 9e15 &&
                     node->real == floor(node->real));
    if (key->type == SCHEMA_DURATION ||
        !(is_whole || (is_real && node->kind == TOML_REAL)))
        return VALUE_TYPE;
    *out = node->kind == TOML_REAL ? node->real : (double)node->integer;
    return VALUE_FINE;
}

static bool in_range(const struct schema_key *key, double value)
{
    if (is_size(key))
        return value >= 0 && value <= 1e18 &&
               !(value < 1 && key->flags & SCHEMA_ABOVE_MIN);
    if (!isfinite(value) || value < key->min || value > key->max)
        return false;
    if ((key->flags & SCHEMA_ABOVE_MIN) && value == key->min)
        return false;
    if ((key->flags & SCHEMA_BELOW_MAX) && value == key->max)
        return false;
    if (key->type == SCHEMA_STEPS && value > 1 && value != floor(value))
        return false;
    return !((key->flags & SCHEMA_NOT_ZERO) && value == 0);
}

/* All integers that are accepted are doubles too. */
READ(read_number)
{
    double value = auto_value(key), share = 0;
    bool chooses = key->flags & SCHEMA_AUTO && is_auto(node);
    if (key->type == SCHEMA_LIMIT && node->kind == TOML_STRING &&
        words_percent(node->string, &share)) {
        if (!(share > 0 && share <= 1))
            return VALUE_RANGE;
    } else if (!chooses) {
        enum value_fault fault = get_value(key, node, &value);
        if (fault != VALUE_FINE)
            return fault;
        if (!in_range(key, value))
            return VALUE_RANGE;
    }
    switch (key->type) {
    case SCHEMA_INT:
        *(int *)field = (int)value;
        break;
    case SCHEMA_REAL:
    case SCHEMA_STEPS:
    case SCHEMA_DURATION:
        *(double *)field = value;
        break;
    case SCHEMA_LIMIT:
        *(double *)field2 = share;
        /* fall through */
    default:
        *(int64_t *)field = (int64_t)value; /* not negative in a uint64_t */
    }
    return VALUE_FINE;
}

WRITE(write_number)
{
    bool is_real = key->type == SCHEMA_REAL || key->type == SCHEMA_STEPS ||
                   key->type == SCHEMA_DURATION;
    double value = key->type == SCHEMA_INT ? *(const int *)field
                   : is_real               ? *(const double *)field
                                           : (double)*(const int64_t *)field;
    if (key->flags & SCHEMA_AUTO && value == auto_value(key))
        return json_string("auto");
    if (key->type == SCHEMA_LIMIT && *(const double *)field2 > 0)
        return json_sprintf("%.15g%%", 100 * *(const double *)field2);
    if (key->type == SCHEMA_DURATION)
        return json_sprintf("%.15gs", value);
    if (key->type == SCHEMA_REAL ||
        (key->type == SCHEMA_STEPS &&
         (value != floor(value) || fabs(value) > 9e15)))
        return json_real(value);
    return json_integer((json_int_t)value);
}

READ(read_bool)
{
    if (node->kind != TOML_BOOL)
        return VALUE_TYPE;
    *(bool *)field = node->boolean;
    return VALUE_FINE;
}

WRITE(write_bool)
{
    return json_boolean(*(const bool *)field);
}

static bool is_name(const char *text)
{
    size_t length = strlen(text);
    return length <= 48 && strspn(text, ".") != length &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == length;
}

READ(read_string)
{
    if (node->kind != TOML_STRING)
        return VALUE_TYPE;
    size_t length = strlen(node->string);
    if (key->type == SCHEMA_NAME && !is_name(node->string))
        return VALUE_RANGE;
    if (length > STRING_MAX) {
        job_tell(
                job, "E0206", node->place, NULL,
                "`%s` in [%s] is %zu bytes long; %d are allowed", key->name,
                key->section, length, STRING_MAX);
        return VALUE_TOLD;
    }
    bool is_null = length == 0 && (key->flags & SCHEMA_NULLABLE);
    *(const char **)field =
            is_null ? NULL : job_string(job, "%s", node->string);
    return VALUE_FINE;
}

WRITE(write_string)
{
    const char *string = *(const char *const *)field;
    return json_string_or_null(string ? string : "");
}

READ(read_version)
{
    double version;
    if (get_value(key, node, &version) != VALUE_FINE)
        return VALUE_TYPE;
    if (version == 1)
        return VALUE_FINE;
    job_tell(
            job, "E0218", node->place, "this zerod reads schema = 1",
            "schema %.0f is not supported", version);
    return VALUE_TOLD;
}

WRITE(write_version)
{
    return json_integer(1);
}

/* --- words: one of a list, or one of a list or something else --- */

/* true and false may be words among others, as in `auto | true | false`. */
static enum value_fault find_choice(
        const struct schema_key *key, const struct toml_node *node,
        const struct schema_choice **out)
{
    const char *word = node->kind == TOML_STRING ? node->string
                       : node->kind != TOML_BOOL ? NULL
                       : node->boolean           ? "true"
                                                 : "false";
    const struct schema_choice *c = key->choices;
    while (word && c->name && strcasecmp(c->name, word) != 0)
        c++;
    if (!word || !c->name || schema_is_elsewhere(c))
        return node->kind == TOML_STRING ? VALUE_WORD : VALUE_TYPE;
    *out = c;
    return VALUE_FINE;
}

static json_t *choice_json(const struct schema_key *key, int value)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (c->value == value && !c->note)
            return strcmp(c->name, "true") == 0    ? json_true()
                   : strcmp(c->name, "false") == 0 ? json_false()
                                                   : json_string(c->name);
    return json_string("?");
}

READ(read_enum)
{
    const struct schema_choice *choice;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault == VALUE_FINE)
        *(int *)field = choice->value;
    return fault;
}

WRITE(write_enum)
{
    return choice_json(key, *(const int *)field);
}

/* Name, type of states and paging together; other names say what they became.
 */
READ(read_optimizer)
{
    const struct schema_choice *choice;
    struct optim_options *optim = field;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault != VALUE_FINE)
        return fault;
    optim->name = (enum optim_name)(choice->value & 0xff);
    optim->state_type = choice->value & SCHEMA_STATES_8BIT ? OPTIM_STATE_8BIT
                                                           : OPTIM_STATE_FP32;
    optim->paged = choice->value & SCHEMA_STATES_PAGED;
    if (choice->note)
        for (const struct schema_choice *c = key->choices; c->name; c++)
            if (c->value == choice->value && !c->note)
                job_note(
                        job, "note: `%s = \"%s\"` in [%s] is read as \"%s\"",
                        key->name, choice->name, key->section, c->name);
    return VALUE_FINE;
}

WRITE(write_optimizer)
{
    const struct optim_options *optim = field;
    int value = (int)optim->name;
    if (optim->state_type == OPTIM_STATE_8BIT)
        value |= SCHEMA_STATES_8BIT;
    if (optim->paged)
        value |= SCHEMA_STATES_PAGED;
    return choice_json(key, value);
}

/* The value of the last choice, which has no name: a path. With SCHEMA_SLASH a
 * word without a slash is taken for an unknown word. */
static int path_value(const struct schema_key *key)
{
    const struct schema_choice *c = key->choices;
    while (c->name)
        c++;
    return c->value;
}

READ(read_word_or_path)
{
    const struct schema_choice *choice = NULL;
    enum value_fault fault = find_choice(key, node, &choice);
    bool is_path = fault == VALUE_WORD && node->string[0] &&
                   (!(key->flags & SCHEMA_SLASH) || strchr(node->string, '/'));
    if (fault != VALUE_FINE && !is_path)
        return fault;
    *(int *)field = choice ? choice->value : path_value(key);
    *(const char **)field2 =
            choice ? NULL : job_string(job, "%s", node->string);
    return VALUE_FINE;
}

WRITE(write_word_or_path)
{
    int value = *(const int *)field;
    if (value != path_value(key))
        return choice_json(key, value);
    return json_string_or_null(*(const char *const *)field2);
}

READ(read_checkpointing)
{
    struct checkpointing *out = field;
    const struct schema_choice *choice;
    enum value_fault fault = find_choice(key, node, &choice);
    if (fault == VALUE_FINE)
        *out = (struct checkpointing){
                (enum checkpointing_mode)choice->value, 0};
    if (fault != VALUE_WORD || strncasecmp(node->string, "every:", 6) != 0 ||
        !isdigit((unsigned char)node->string[6]))
        return fault;
    char *end;
    long every = strtol(node->string + 6, &end, 10);
    if (*end || every < 1 || every > 100000)
        return VALUE_RANGE;
    *out = (struct checkpointing){CHECKPOINTING_EVERY, (int)every};
    return VALUE_FINE;
}

WRITE(write_checkpointing)
{
    const struct checkpointing *is = field;
    if (is->mode != CHECKPOINTING_EVERY)
        return choice_json(key, (int)is->mode);
    return json_sprintf("every:%d", is->every);
}

/* --- arrays and tables --- */

READ(read_strings)
{
    if (node->kind != TOML_ARRAY)
        return VALUE_TYPE;
    const char **strings =
            job_alloc(job, (size_t)(node->count + 1) * sizeof *strings);
    for (int i = 0; i < node->count; i++) {
        if (node->items[i]->kind != TOML_STRING)
            return VALUE_TYPE;
        strings[i] = job_string(job, "%s", node->items[i]->string);
    }
    *(const char *const **)field = strings;
    *(int *)field2 = node->count;
    return VALUE_FINE;
}

WRITE(write_strings)
{
    const char *const *strings = *(const char *const *const *)field;
    json_t *array = json_array();
    for (int i = 0; i < *(const int *)field2; i++)
        json_array_append_new(array, json_string_or_null(strings[i]));
    return array;
}

/* A string or an integer, or an array of such, or a table: kept as it is. */
READ(read_json)
{
    enum toml_kind kind = key->type == SCHEMA_MODULES  ? TOML_STRING
                          : key->type == SCHEMA_LAYERS ? TOML_INTEGER
                                                       : TOML_TABLE;
    bool is_array = node->kind == TOML_ARRAY && kind != TOML_TABLE;
    if (node->kind != kind && !is_array)
        return VALUE_TYPE;
    for (int i = 0; is_array && i < node->count; i++)
        if (node->items[i]->kind != kind)
            return VALUE_TYPE;
    bool is_none = is_array ? node->count == 0
                            : kind == TOML_STRING && !node->string[0];
    if (is_none && !(key->flags & SCHEMA_NULLABLE))
        return VALUE_RANGE;
    *(json_t **)field = is_none ? NULL : toml_json(node, &job->problems);
    return is_none || *(json_t **)field ? VALUE_FINE : VALUE_TOLD;
}

WRITE(write_json)
{
    json_t *json = *(json_t *const *)field;
    if (json)
        return json_incref(json);
    return key->type == SCHEMA_TABLE      ? json_null()
           : key->flags & SCHEMA_NULLABLE ? json_array()
                                          : json_string("all-linear");
}

WRITE(write_entries)
{
    const struct data_entry *entries = *(const struct data_entry *const *)field;
    char section[2 * SCHEMA_NAME_MAX];
    json_t *array = json_array();
    ZD_PRINT(section, "%s.%s", key->section, key->name);
    for (int e = 0; e < *(const int *)field2; e++) {
        json_t *object = json_object();
        for (int i = 0; i < schema_count; i++)
            if (strcmp(schema_table[i].section, section) == 0)
                json_object_set_new(
                        object, schema_table[i].name,
                        value_json(&schema_table[i], &entries[e]));
        json_array_append_new(array, object);
    }
    return array;
}

/* --- the types --- */

/* clang-format off */
static const struct {
    const char *accepts; /* for people; of a number what it is; NULL: choices */
    bool has_range;
    enum value_fault (*read)(struct job *, const struct schema_key *, const struct toml_node *, void *field, void *field2);
    json_t *(*write)(const struct schema_key *, const void *field, const void *field2); /* NULL: it has no value */
} types[] = {
[SCHEMA_STRING] = {"a string", false, read_string, write_string},
[SCHEMA_NAME] = {"1 to 48 letters, digits, '.', '_' or '-'", false, read_string, write_string},
[SCHEMA_ENUM] = {NULL, false, read_enum, write_enum},
[SCHEMA_BOOL] = {"true | false", false, read_bool, write_bool},
[SCHEMA_INT] = {"an integer", true, read_number, write_number},
[SCHEMA_INT64] = {"an integer", true, read_number, write_number},
[SCHEMA_UINT64] = {"an integer", true, read_number, write_number},
[SCHEMA_REAL] = {"a number", true, read_number, write_number},
[SCHEMA_STEPS] = {"whole steps, or a fraction below 1", true, read_number, write_number},
[SCHEMA_SIZE] = {"bytes, or a size like \"64MiB\" or \"5GB\"", false, read_number, write_number},
[SCHEMA_LIMIT] = {"bytes, a size like \"12GiB\", or a share like \"90%\"", false, read_number, write_number},
[SCHEMA_DURATION] = {"a time like \"90s\", \"5m\" or \"1h30m\"", false, read_number, write_number},
[SCHEMA_STRINGS] = {"an array of strings", false, read_strings, write_strings},
[SCHEMA_MODULES] = {"a pattern, or an array of names", false, read_json, write_json},
[SCHEMA_LAYERS] = {"an integer, or an array of integers", false, read_json, write_json},
[SCHEMA_WORD_OR_PATH] = {NULL, false, read_word_or_path, write_word_or_path},
[SCHEMA_CHECKPOINTING] = {"none | selective | full | every:N | sqrt | auto", false, read_checkpointing, write_checkpointing},
[SCHEMA_OPTIMIZER] = {NULL, false, read_optimizer, write_optimizer},
[SCHEMA_ENTRIES] = {"an array of tables", false, NULL, write_entries}, /* keys.c walks them */
[SCHEMA_TABLE] = {"a table", false, read_json, write_json},
[SCHEMA_VERSION] = {"1", false, read_version, write_version},
[SCHEMA_EXTENDS] = {"the path of a job file", false, NULL, NULL}, /* tree.c followed it */
};
/* clang-format on */
#undef READ
#undef WRITE

bool schema_is_number(const struct schema_key *key)
{
    return types[key->type].has_range;
}

json_t *value_json(const struct schema_key *key, const void *base)
{
    const char *fields = base;
    return types[key->type].write
                   ? types[key->type].write(
                             key, fields + key->offset, fields + key->offset2)
                   : NULL;
}

json_t *value_default(const struct schema_key *key)
{
    struct train_job job = train_job_default();
    struct data_entry entry = data_entry_default();
    bool is_entry = strncmp(key->section, "data.", 5) == 0;
    return value_json(key, is_entry ? (void *)&entry : (void *)&job);
}

enum value_fault value_read(
        struct job *job, const struct schema_key *key,
        const struct toml_node *node, void *base)
{
    char *fields = base;
    enum value_fault fault =
            types[key->type].read
                    ? types[key->type].read(
                              job, key, node, fields + key->offset,
                              fields + key->offset2)
                    : VALUE_FINE;
    if (fault == VALUE_TYPE && node->kind == TOML_STRING &&
        key->flags & SCHEMA_AUTO)
        return VALUE_WORD; /* "auto" is a string too */
    return fault;
}

/* --- for people --- */

static void accepts_choices(
        const struct schema_key *key, struct text_buffer *text)
{
    for (const struct schema_choice *c = key->choices; c->name; c++)
        if (!c->note)
            text_buffer_add(text, "%s%s", text->used ? " | " : "", c->name);
    if (key->type == SCHEMA_WORD_OR_PATH)
        text_buffer_add(
                text, " | a path%s",
                key->flags & SCHEMA_SLASH ? " with a /" : "");
}

static void accepts_range(
        const struct schema_key *key, const char *what,
        struct text_buffer *text)
{
    bool is_open = key->max > 1e6; /* no bound a person would meet */
    const char *from = key->flags & SCHEMA_ABOVE_MIN ? "above"
                       : is_open                     ? "of at least"
                                                     : "from";
    text_buffer_add(text, "%s %s %.15g", what, from, key->min);
    if (!is_open)
        text_buffer_add(
                text, " %s %.15g",
                key->flags & SCHEMA_BELOW_MAX ? "to below" : "to", key->max);
    else if (key->flags & SCHEMA_NOT_ZERO)
        text_buffer_add(text, ", not 0");
}

void schema_accepts(const struct schema_key *key, char *out, size_t out_bytes)
{
    const char *accepts = types[key->type].accepts;
    struct text_buffer text = {.out = out, .bytes = out_bytes};
    bool is_table = key->type == SCHEMA_ENTRIES || key->type == SCHEMA_TABLE;
    out[0] = '\0';
    if (!accepts)
        accepts_choices(key, &text);
    else if (schema_is_number(key) && key->type != SCHEMA_STEPS)
        accepts_range(key, accepts, &text);
    else
        text_buffer_add(&text, "%s", accepts);
    if (is_table)
        text_buffer_add(
                &text,
                key->type == SCHEMA_ENTRIES ? ", [[%s.%s]]" : ", [%s.%s]",
                key->section, key->name);
    if (key->flags & SCHEMA_AUTO)
        text_buffer_add(&text, ", or \"auto\"");
}
