/* routes_body.c - a JSON body into what a command takes. */
#include "base/suggest.h"
#include "daemon/control/routes_internal.h"

#include <math.h>
#include <string.h>

enum { TIMEOUT_MAX = 7 * 86400, STOP_SECONDS = 300, PROFILE_STEPS = 3 };

#define AT(member)   offsetof(struct wish, member)
#define BODY_HINT    "one JSON object, each key once: {\"wait\": true}"
#define TEXT_EXAMPLE "\"In the beginning\""

static const struct field wait_field = {"wait", FIELD_BOOL, AT(wait)};

const struct command_form command_forms[COMMAND_KINDS] = {
        [COMMAND_CHECKPOINT] = {COMMAND_CHECKPOINT},
        [COMMAND_EVAL] = {COMMAND_EVAL},
        [COMMAND_PAUSE] = {COMMAND_PAUSE},
        [COMMAND_RESUME] = {COMMAND_RESUME},
        [COMMAND_SET] = {COMMAND_SET},
        [COMMAND_SAMPLE] =
                {COMMAND_SAMPLE,
                 {{"prompt", FIELD_TEXT, AT(command.prompt), 1,
                   TRAIN_PROMPT_MAX - 1},
                  {"max_new_tokens", FIELD_INTEGER, AT(command.max_new_tokens),
                   1, 1 << 24}}},
        [COMMAND_STOP] =
                {COMMAND_STOP,
                 {{"checkpoint", FIELD_BOOL, AT(command.save)},
                  {"timeout", FIELD_REAL, AT(timeout), 0.001, TIMEOUT_MAX}}},
        [COMMAND_PROFILE] = {
                COMMAND_PROFILE,
                {{"steps", FIELD_INTEGER, AT(command.steps), 1,
                  TRAIN_PROFILE_MAX}}}};

/* --- values --- */

/* Say what is expected of `name`, and false. `example` is a value that would
 * do, as JSON. */
static bool wrong(
        struct http_reply *reply, const char *name, const char *expected,
        const char *example)
{
    char hint[100];
    snprintf(hint, sizeof hint, "{\"%.60s\": %s}", name, example);
    http_error(
            reply, 400, "E_BAD_REQUEST", hint, "`%.60s`: %s is expected", name,
            expected);
    return false;
}

static bool take_text(
        const struct field *field, const json_t *value, char *out,
        struct http_reply *reply)
{
    char expected[80];
    size_t length = json_string_length(value);
    if (json_is_string(value) && (double)length >= field->min &&
        (double)length <= field->max &&
        strlen(json_string_value(value)) == length) {
        memcpy(out, json_string_value(value), length + 1);
        return true;
    }
    snprintf(
            expected, sizeof expected, "a string of %.0f to %.0f bytes",
            field->min, field->max);
    return wrong(reply, field->name, expected, TEXT_EXAMPLE);
}

/* The same range as a setting's: its lower end may be left out. */
static bool take_number(
        const struct train_setting *range, const json_t *value, double *out,
        struct http_reply *reply)
{
    char expected[120], example[32];
    double number = json_number_value(value), low = range->min;
    bool is_above = range->is_above_min ? number > low : number >= low;
    if (json_is_number(value) &&
        (!range->is_integer || json_is_integer(value)) && is_above &&
        number <= range->max) {
        *out = number;
        return true;
    }
    snprintf(
            example, sizeof example, "%.15g",
            fmin(fmax(range->is_integer ? 10 : 1e-4, low), range->max));
    snprintf(
            expected, sizeof expected, "%s %s %.15g, at most %.15g",
            range->is_integer ? "an integer" : "a number",
            range->is_above_min ? "above" : "of at least", low, range->max);
    return wrong(reply, range->name, expected, example);
}

static bool take(
        const struct field *field, const json_t *value, struct wish *wish,
        struct http_reply *reply)
{
    char *out = (char *)wish + field->offset;
    double number;
    struct train_setting range = {
            .name = field->name,
            .min = field->min,
            .max = field->max,
            .is_integer = field->type == FIELD_INTEGER};
    switch (field->type) {
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return wrong(reply, field->name, "true or false", "true");
        *(bool *)out = json_is_true(value);
        return true;
    case FIELD_TEXT:
        return take_text(field, value, out, reply);
    case FIELD_INTEGER:
    case FIELD_REAL:
        if (!take_number(&range, value, &number, reply))
            return false;
        if (range.is_integer)
            *(int *)out = (int)number;
        else
            *(double *)out = number;
        return true;
    }
    return false;
}

/* --- keys --- */

/* The i-th key of a form: its fields, settings, "wait"; NULL: no more.
 * *field_out NULL: a setting, *setting_out. */
static const char *key_of(
        const struct command_form *form, int i, const struct field **field_out,
        int *setting_out)
{
    int count = 0;
    while (count < FIELDS_MAX && form->fields[count].name)
        count++;
    int settings = form->kind == COMMAND_SET ? SETTINGS : 0;
    *setting_out = i - count;
    *field_out = i < count               ? &form->fields[i]
                 : i - count < settings  ? NULL
                 : i - count == settings ? &wait_field
                                         : NULL;
    if (*field_out)
        return (*field_out)->name;
    return i - count < settings ? train_settings[i - count].name : NULL;
}

static bool unknown_key(
        const struct command_form *form, const char *key,
        struct http_reply *reply)
{
    char hint[400] = "";
    struct suggestion nearest = {0};
    const struct field *field;
    const char *name;
    int setting;
    for (int i = 0; (name = key_of(form, i, &field, &setting)); i++) {
        suggest_offer(&nearest, key, edit_distance(key, name), name);
        snprintf(
                hint + strlen(hint), sizeof hint - strlen(hint), "%s%s",
                i ? ", " : "it takes ", name);
    }
    if (nearest.word)
        snprintf(hint, sizeof hint, "did you mean `%s`?", nearest.word);
    http_error(reply, 400, "E_BAD_REQUEST", hint, "unknown key `%.60s`", key);
    return false;
}

static bool take_key(
        const struct command_form *form, const char *key, const json_t *value,
        struct wish *wish, struct http_reply *reply)
{
    const struct field *field;
    const char *name;
    int setting, i = 0;
    while ((name = key_of(form, i, &field, &setting)) && strcmp(name, key))
        i++;
    if (!name)
        return unknown_key(form, key, reply);
    if (field)
        return take(field, value, wish, reply);
    wish->command.given[setting] = true;
    return take_number(
            &train_settings[setting], value, &wish->command.value[setting],
            reply);
}

static bool take_keys(
        const struct command_form *form, json_t *body, struct wish *wish,
        struct http_reply *reply)
{
    const char *key;
    json_t *value;
    bool has_setting = false;
    json_object_foreach(body, key, value)
    {
        if (!take_key(form, key, value, wish, reply))
            return false;
    }
    for (int i = 0; i < SETTINGS; i++)
        has_setting = has_setting || wish->command.given[i];
    if (form->kind == COMMAND_SET && !has_setting)
        http_error(
                reply, 400, "E_BAD_REQUEST", "{\"learning_rate\": 1e-4}",
                "there is no setting in the body");
    return form->kind != COMMAND_SET || has_setting;
}

/* --- the body --- */

bool body_read(
        const struct http_request *request, const struct command_form *form,
        struct wish *wish_out, struct http_reply *reply)
{
    json_error_t error;
    bool is_blank = strspn(request->body, " \t\r\n") == request->body_bytes;
    json_t *body = is_blank ? json_object()
                            : json_loadb(
                                      request->body, request->body_bytes,
                                      JSON_REJECT_DUPLICATES, &error);
    bool is_object = json_is_object(body);
    *wish_out = (struct wish){
            .command =
                    {.kind = form->kind, .save = true, .steps = PROFILE_STEPS},
            .timeout = form->kind == COMMAND_STOP ? STOP_SECONDS : 0};
    if (body && !is_object)
        http_error(
                reply, 400, "E_BAD_REQUEST", BODY_HINT,
                "the body is not a JSON object");
    else if (!body)
        http_error(
                reply, 400, "E_BAD_REQUEST", BODY_HINT,
                "the body cannot be read: %.200s (line %d, column %d)",
                error.text, error.line, error.column);
    bool is_good = is_object && take_keys(form, body, wish_out, reply);
    json_decref(body);
    return is_good;
}
