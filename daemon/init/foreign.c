/* foreign.c - each key of a file finds its row. */
#include "daemon/init/foreign.h"

#include "daemon/job/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16 };

/* --- values --------------------------------------------------------------- */

/* As tables have it: true, null, 0.9, a string as it is. The rest as JSON. */
static void as_word(const json_t *value, char *out, size_t bytes)
{
    char *dumped = NULL;
    const char *text = json_string_value(value);
    if (!text)
        text = dumped = json_dumps(
                value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    snprintf(out, bytes, "%s", text ? text : "?");
    free(dumped);
}

/* The word of `words` for a value: what stands behind its '='. */
static bool find_word(
        const char *words, const json_t *value, char *ours, size_t bytes)
{
    char word[200];
    as_word(value, word, sizeof word);
    const char *at = words;
    do {
        size_t all = strcspn(at, "|");
        const char *equals = memchr(at, '=', all);
        size_t theirs = equals ? (size_t)(equals - at) : all;
        if (theirs == strlen(word) && strncasecmp(at, word, theirs) == 0) {
            snprintf(
                    ours, bytes, "%.*s",
                    equals ? (int)(all - theirs - 1) : (int)all,
                    equals ? equals + 1 : at);
            return true;
        }
        at += all + (at[all] == '|');
    } while (*at);
    return false;
}

/* A word of a table as a value: a number, true, false, or a string. */
static json_t *word_value(const char *word)
{
    char *end;
    if (!strcmp(word, "true") || !strcmp(word, "false"))
        return json_boolean(word[0] == 't');
    long long integer = strtoll(word, &end, 10);
    if (*word && !*end)
        return json_integer(integer);
    double real = strtod(word, &end);
    if (*word && !*end)
        return json_real(real);
    return json_string(word);
}

/* What a key of ours accepts: DeepSpeed writes 5e8 and 1e9 for integers, YAML
 * has numbers in quotes. */
static json_t *as_key_wants(const char *key, const json_t *value)
{
    char section[SCHEMA_NAME_MAX], *end;
    const char *dot = strrchr(key, '.'), *text = json_string_value(value);
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    const struct schema_key *schema = schema_find(section, dot + 1);
    bool is_number =
            schema &&
            (schema->type == SCHEMA_INT || schema->type == SCHEMA_INT64 ||
             schema->type == SCHEMA_UINT64 || schema->type == SCHEMA_REAL ||
             schema->type == SCHEMA_STEPS);
    if (is_number && text && *text) {
        double number = strtod(text, &end);
        if (!*end && isfinite(number))
            return json_real(number);
    }
    return json_deep_copy(value);
}

bool foreign_is_open(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && !strcmp(json_string_value(value), "auto"));
}

const json_t *foreign_get(const struct foreign *foreign, const char *name)
{
    const json_t *at = foreign->root;
    char part[100];
    while (at && *name) {
        size_t bytes = strcspn(name, ".");
        snprintf(part, sizeof part, "%.*s", (int)bytes, name);
        at = json_object_get(at, part);
        name += bytes + (name[bytes] == '.');
    }
    return at;
}

bool foreign_is(const struct foreign *foreign, const char *name, bool value)
{
    const json_t *found = foreign_get(foreign, name);
    return value ? json_is_true(found) : json_is_false(found);
}

/* --- rows ----------------------------------------------------------------- */

void foreign_refuse(
        struct foreign *foreign, const char *name, const json_t *value,
        const char *why)
{
    char word[200];
    as_word(value, word, sizeof word);
    draft_refuse(
            foreign->draft, name, "%s: %s = %.100s%s: %s", foreign->path, name,
            word, foreign->is_default ? ", their default" : "", why);
}

void foreign_set(
        struct foreign *foreign, const char *name, const char *key,
        json_t *value)
{
    static const char source[] = "data.train.";
    struct draft *draft = foreign->draft;
    char why[160];
    if (strncmp(key, source, strlen(source)) == 0) {
        draft_set_entry(draft_source(draft), key + strlen(source), value, name);
        return;
    }
    if (foreign->is_default) {
        draft_set(draft, key, value, "their default");
        return;
    }
    snprintf(why, sizeof why, "%s", name);
    if (foreign->is_part && draft_has(draft, key)) {
        if (strncmp(key, "optim.", 6) == 0)
            draft_replace(draft, key, value, why);
        else
            json_decref(value);
        draft_note(
                draft, name,
                strncmp(key, "optim.", 6) == 0
                        ? "the DeepSpeed configuration's optimizer and "
                          "schedule are those of the run"
                        : "overridden beside the DeepSpeed configuration");
        return;
    }
    json_incref(value);
    if (!draft_set(draft, key, value, why)) {
        const json_t *other = json_object_get(draft->values, key);
        draft_refuse(
                draft, name, "%s: %s and %s set %s to different values",
                foreign->path, name,
                json_string_value(json_object_get(other, "why")), key);
    } else if (!draft_tells(draft, name)) {
        draft_note(draft, name, "said by another key too");
    }
    json_decref(value);
}

void foreign_take_betas(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (foreign_is_open(value))
        return;
    if (json_array_size(value) != 2) {
        foreign_refuse(foreign, name, value, "it is two numbers");
        return;
    }
    foreign_set(
            foreign, name, "optim.adam_beta1",
            json_deep_copy(json_array_get(value, 0)));
    foreign_set(
            foreign, name, "optim.adam_beta2",
            json_deep_copy(json_array_get(value, 1)));
}

static void take_key(
        struct foreign *foreign, const struct foreign_row *row,
        const char *name, const json_t *value)
{
    char ours[200];
    if (row->words && find_word(row->words, value, ours, sizeof ours)) {
        if (ours[0])
            foreign_set(foreign, name, row->key, word_value(ours));
        else
            draft_note(foreign->draft, name, row->why ? row->why : "as it is");
        return;
    }
    if (row->rule == FOREIGN_WORD) {
        foreign_refuse(
                foreign, name, value,
                row->why ? row->why : "this zerod has none such");
        return;
    }
    if (json_is_string(value) && strstr(json_string_value(value), "${"))
        foreign_refuse(
                foreign, name, value, "write it out: ${..} is not resolved");
    else
        foreign_set(foreign, name, row->key, as_key_wants(row->key, value));
}

/* null says nothing, "auto" asks for our default, or for what the file around
 * it says. */
static void leave_open(
        struct foreign *foreign, const struct foreign_row *row,
        const char *name, const json_t *value)
{
    json_array_append_new(foreign->draft->defaults, json_string(name));
    if (row->key && !json_is_null(value) && !foreign->is_part)
        json_object_set_new(foreign->draft->automatic, row->key, json_true());
}

static bool is_off(const json_t *value)
{
    return json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && !json_array_size(value)) ||
           (json_is_string(value) && !json_string_length(value));
}

static void take_row(
        struct foreign *foreign, const struct foreign_row *row,
        const char *name, const json_t *value)
{
    char ours[200];
    bool says_nothing = foreign_is_open(value) && row->rule != FOREIGN_CALL;
    switch (row->rule) {
    case FOREIGN_NOTE:
        if (says_nothing)
            break;
        draft_note(foreign->draft, name, row->why);
        return;
    case FOREIGN_OFF:
        if (says_nothing)
            break;
        if (find_word(row->words, value, ours, sizeof ours))
            draft_note(
                    foreign->draft, name,
                    is_off(value) ? "off, as here" : "as it is here");
        else
            foreign_refuse(foreign, name, value, row->why);
        return;
    case FOREIGN_CALL:
        row->take(foreign, name, value);
        json_object_set(foreign->called, name, (json_t *)value);
        return;
    default:
        if (says_nothing &&
            !(row->words && find_word(row->words, value, ours, sizeof ours)))
            break;
        take_key(foreign, row, name, value);
        return;
    }
    leave_open(foreign, row, name, value);
}

enum match { MATCH_NONE, MATCH_INSIDE, MATCH_BEGINNING, MATCH_NAME };

/* How one of a row's names fits: there are keys inside it, it is the beginning,
 * it is the name. */
static enum match match_names(const char *names, const char *name)
{
    enum match best = MATCH_NONE, match;
    size_t bytes = strlen(name), length;
    for (const char *at = names; *at; at += length + strspn(at + length, " ")) {
        length = strcspn(at, " ");
        if (length == bytes && strncmp(at, name, bytes) == 0)
            match = MATCH_NAME;
        else if (at[length - 1] == '*' && strncmp(at, name, length - 1) == 0)
            match = MATCH_BEGINNING;
        else if (
                length > bytes && strncmp(at, name, bytes) == 0 &&
                at[bytes] == '.')
            match = MATCH_INSIDE;
        else
            continue;
        best = match > best ? match : best;
    }
    return best;
}

/* *inside_out: there are rows of keys in it. */
static const struct foreign_row *find_row(
        const struct foreign_format *format, const char *name, bool *inside_out)
{
    const struct foreign_row *found = NULL;
    *inside_out = false;
    for (; format; format = format->base)
        for (int i = 0; i < format->row_count; i++) {
            const struct foreign_row *row = &format->rows[i];
            enum match match = match_names(row->names, name);
            if (match == MATCH_NAME)
                return row;
            if (match == MATCH_BEGINNING && !found)
                found = row;
            *inside_out |= match == MATCH_INSIDE;
        }
    return found;
}

static void take_object(
        struct foreign *foreign, const char *prefix, const json_t *object,
        int depth)
{
    const char *key;
    json_t *value;
    char name[300];
    json_object_foreach((json_t *)object, key, value)
    {
        bool inside;
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        const struct foreign_row *row =
                find_row(foreign->format, name, &inside);
        if (row)
            take_row(foreign, row, name, value);
        else if (inside && json_object_size(value) && depth < DEPTH_MAX)
            take_object(foreign, name, value, depth + 1);
        else if (
                json_is_null(value) || (inside && (foreign_is_open(value) ||
                                                   (json_is_object(value) &&
                                                    !json_object_size(value)))))
            json_array_append_new(foreign->draft->defaults, json_string(name));
        else
            foreign_refuse(
                    foreign, name, value,
                    "unsupported key; ignoring it could change training");
    }
}

/* Keys that functions looked at and that made nothing. */
static void tell_rest(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    const char *name;
    json_t *value;
    json_object_foreach(foreign->called, name, value)
    {
        if (draft_tells(draft, name) || json_array_size(value))
            continue; /* what is in a list tells of itself */
        if (foreign_is_open(value))
            json_array_append_new(draft->defaults, json_string(name));
        else
            draft_note(
                    draft, name,
                    is_off(value) ? "off" : "nothing to set beside other keys");
    }
}

/* The condition of a default. */
static bool holds(const struct foreign *foreign, const char *when)
{
    char name[100], word[100];
    size_t bytes = strcspn(when ? when : "", "=");
    if (!when)
        return true;
    if (!strcmp(when, "@"))
        return foreign->format->is_variant &&
               foreign->format->is_variant(foreign);
    snprintf(name, sizeof name, "%.*s", (int)bytes, when);
    const json_t *value = foreign_get(foreign, name);
    if (!value || json_is_null(value))
        return false;
    as_word(value, word, sizeof word);
    return when[bytes] ? !strcasecmp(word, when + bytes + 1)
                       : !is_off(value) && strcmp(word, "no") != 0;
}

/* What a row says of a file that has none of its keys. */
static void take_absent(struct foreign *foreign, const struct foreign_row *row)
{
    size_t bytes;
    for (const char *at = row->names; *at; at += bytes + (at[bytes] == ' ')) {
        char name[100];
        bytes = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        if (foreign_get(foreign, name) &&
            !json_is_null(foreign_get(foreign, name)))
            return;
    }
    json_t *value = json_loads(row->absent, JSON_DECODE_ANY, NULL);
    value = value ? value : json_string(row->absent);
    if (row->rule == FOREIGN_CALL)
        row->take(foreign, row->names, value);
    else
        take_key(foreign, row, row->names, value);
    json_decref(value);
}

static void take_defaults(struct foreign *foreign)
{
    const struct foreign_format *format = foreign->format;
    foreign->is_default = true;
    for (; format; format = format->base)
        for (int i = 0; i < format->row_count; i++) {
            const struct foreign_row *row = &format->rows[i];
            if (row->absent && holds(foreign, row->when) &&
                !(row->key &&
                  json_object_get(foreign->draft->automatic, row->key)))
                take_absent(foreign, row);
        }
    foreign->is_default = false;
    for (format = foreign->format; format; format = format->base)
        for (int i = 0; i < format->default_count; i++)
            if (!json_object_get(
                        foreign->draft->automatic, format->defaults[i].key))
                draft_set(
                        foreign->draft, format->defaults[i].key,
                        word_value(format->defaults[i].value), "their default");
}

/* What a whole dump of arguments has for other optimizers too. */
static void drop_idle(struct draft *draft)
{
    static const struct {
        const char *optimizer, *key;
    } idle[] = {
            {"lion", "optim.adam_epsilon"},
            {"sgd", "optim.adam_epsilon"},
            {"sgd", "optim.adam_beta1"},
            {"sgd", "optim.adam_beta2"}};
    const char *name = draft_text(draft, "optim.name");
    for (size_t i = 0; name && i < sizeof idle / sizeof idle[0]; i++)
        if (strstr(name, idle[i].optimizer) && draft_has(draft, idle[i].key)) {
            draft_note(draft, idle[i].key, "of no effect with this optimizer");
            draft_remove(draft, idle[i].key);
        }
}

/* Inside another's file that file says the rest. */
static void take(
        const struct foreign_format *format, const char *path,
        const json_t *root, struct draft *draft, bool is_part)
{
    struct foreign foreign = {
            .format = format,
            .path = path,
            .root = root,
            .draft = draft,
            .called = json_object(),
            .is_part = is_part};
    take_object(&foreign, "", root, 0);
    if (!is_part && format->finish)
        format->finish(&foreign);
    if (!is_part) {
        take_defaults(&foreign);
        drop_idle(draft);
    }
    tell_rest(&foreign);
    json_decref(foreign.called);
}

void foreign_take(
        const struct foreign_format *format, const char *path,
        const json_t *root, struct draft *draft)
{
    take(format, path, root, draft, false);
}

void foreign_take_part(
        const struct foreign_format *format, const char *path,
        const json_t *root, struct draft *draft)
{
    take(format, path, root, draft, true);
}
