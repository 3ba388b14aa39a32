/* routes_request.c - what a request says: parameters of its query, and a JSON
 * body into what a command takes. */
#include "base/suggest.h"
#include "daemon/control/routes_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MAX = 7 * 86400, STOP_SECONDS = 300, PROFILE_STEPS = 3 };

#define AT(member) offsetof(struct wish, member)
#define BODY_HINT  "one JSON object, each key once: {\"wait\": true}"

/* --- parameters --- */

const char *param_text(const struct ask *ask, const char *name)
{
    for (int i = 0; i < ask->request->param_count; i++)
        if (strcmp(ask->request->param_names[i], name) == 0)
            return ask->request->param_values[i];
    return NULL;
}

bool param_integer(
        const struct ask *ask, const char *name, int64_t min, int64_t max,
        int64_t *value)
{
    const char *text = param_text(ask, name);
    char *end;
    if (!text)
        return true;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool is_number = text[0] && !*end && strspn(text, "-0123456789") > 0 &&
                     text[0] != ' ' && errno == 0;
    if (is_number && number >= min && number <= max) {
        *value = number;
        return true;
    }
    char hint[100];
    int64_t example = min > 100 ? min : max < 100 ? max : 100;
    ZD_PRINT(hint, "%s=%lld", name, (long long)example);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: an integer from %lld to %lld is expected",
            name, text, (long long)min, (long long)max);
}

bool param_flag(const struct ask *ask, const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    const char *text = param_text(ask, name);
    if (!text)
        return true;
    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    char hint[100];
    ZD_PRINT(hint, "%s=1", name);
    return refuse(
            ask, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: 0 or 1 is expected", name, text);
}

/* --- what commands take --- */

enum field_type { FIELD_BOOL, FIELD_INTEGER, FIELD_REAL, FIELD_TEXT };

struct field {
    enum train_command_kind of;
    const char *name;
    enum field_type type;
    size_t offset;   /* in struct wish: bool, int, double, char[max + 1] */
    double min, max; /* of a text: its bytes */
    bool is_above_min;
    size_t given; /* of a setting, which is a double: the bool that says so */
};

/* `set` takes the trainer's settings, and every command "wait". */
static const struct field fields[] = {
        {COMMAND_SAMPLE, "prompt", FIELD_TEXT, AT(command.prompt), 1,
         TRAIN_PROMPT_MAX - 1},
        {COMMAND_SAMPLE, "max_new_tokens", FIELD_INTEGER,
         AT(command.max_new_tokens), 1, 1 << 24},
        {COMMAND_SAMPLE, "chat", FIELD_BOOL, AT(command.chat)},
        {COMMAND_STOP, "checkpoint", FIELD_BOOL, AT(command.save)},
        {COMMAND_STOP, "timeout", FIELD_REAL, AT(timeout), 0.001, TIMEOUT_MAX},
        {COMMAND_PROFILE, "steps", FIELD_INTEGER, AT(command.steps), 1,
         TRAIN_PROFILE_MAX}};

enum { FIELDS = sizeof fields / sizeof fields[0], KEYS_MAX = SETTINGS + 3 };

/* --- values --- */

enum { EXPECTED_MAX = 120, EXAMPLE_MAX = 40 };

/* Is the value what the field takes? `expected` says what that is, and
 * `example` is one that would do, as JSON. */
static bool is_fit(
        const struct field *field, const json_t *value,
        char expected[EXPECTED_MAX], char example[EXAMPLE_MAX])
{
    bool is_text = field->type == FIELD_TEXT, is_above = field->is_above_min;
    bool is_integer = field->type == FIELD_INTEGER;
    double low = field->min, high = field->max,
           size = is_text ? (double)json_string_length(value)
                          : json_number_value(value);
    bool is_within = (is_above ? size > low : size >= low) && size <= high;
    if (field->type == FIELD_BOOL) {
        strcpy(expected, "true or false");
        strcpy(example, "true");
        return json_is_boolean(value);
    }
    if (is_text) {
        snprintf(
                expected, EXPECTED_MAX, "a string of %.0f to %.0f bytes", low,
                high);
        strcpy(example, "\"In the beginning\"");
        return json_is_string(value) && is_within;
    }
    snprintf(
            expected, EXPECTED_MAX, "%s %s %.15g %s %.15g",
            is_integer ? "an integer" : "a number", is_above ? "above" : "from",
            low, is_above ? "and at most" : "to", high);
    snprintf(
            example, EXAMPLE_MAX, "%.15g",
            fmin(fmax(is_integer ? 10 : 1e-4, low), high));
    return is_within &&
           (is_integer ? json_is_integer(value) : json_is_number(value));
}

static bool take(
        const struct field *field, const json_t *value, struct wish *wish,
        const struct ask *ask)
{
    char *out = (char *)wish + field->offset;
    char expected[EXPECTED_MAX], example[EXAMPLE_MAX], hint[200];
    const char *name = field->name;
    if (!is_fit(field, value, expected, example)) {
        ZD_PRINT(
                hint, field->given ? "like zerodctl set %s=%s" : "{\"%s\": %s}",
                name, example);
        return refuse(
                ask, 400, "E_BAD_REQUEST", hint, "`%s` must be %s", name,
                expected);
    }
    if (field->given)
        *((char *)wish + field->given) = true;
    if (field->type == FIELD_BOOL)
        *(bool *)out = json_is_true(value);
    else if (field->type == FIELD_TEXT)
        strcpy(out, json_string_value(value));
    else if (field->type == FIELD_INTEGER && !field->given)
        *(int *)out = (int)json_integer_value(value);
    else
        *(double *)out = json_number_value(value);
    return true;
}

/* --- keys --- */

static int list_keys(enum train_command_kind kind, struct field out[KEYS_MAX])
{
    int count = 0;
    for (int i = 0; i < FIELDS; i++)
        if (fields[i].of == kind)
            out[count++] = fields[i];
    for (int i = 0; kind == COMMAND_SET && i < SETTINGS; i++) {
        const struct train_setting *setting = &train_settings[i];
        out[count++] = (struct field){
                .name = setting->name,
                .type = setting->is_integer ? FIELD_INTEGER : FIELD_REAL,
                .offset = AT(command.value[i]),
                .given = AT(command.given[i]),
                .min = setting->min,
                .max = setting->max,
                .is_above_min = setting->is_above_min};
    }
    out[count++] = (struct field){kind, "wait", FIELD_BOOL, AT(wait)};
    return count;
}

static bool unknown_key(
        const struct field *keys, int count, const char *key,
        const struct ask *ask)
{
    char hint[400] = "";
    struct suggestion nearest = {0};
    for (int i = 0; i < count; i++) {
        const char *name = keys[i].name;
        suggest_offer(&nearest, key, edit_distance(key, name), name);
        if (keys[0].given && !keys[i].given)
            continue; /* beside settings, "wait" is none */
        snprintf(
                hint + strlen(hint), sizeof hint - strlen(hint), "%s%s",
                i ? ", " : "it takes ", name);
    }
    if (nearest.word)
        ZD_PRINT(hint, "did you mean `%s`?", nearest.word);
    return refuse(ask, 400, "E_BAD_REQUEST", hint, "unknown key `%.60s`", key);
}

static bool take_keys(
        enum train_command_kind kind, json_t *body, struct wish *wish,
        const struct ask *ask)
{
    struct field keys[KEYS_MAX];
    int count = list_keys(kind, keys);
    bool has_setting = kind != COMMAND_SET;
    JSON_MEMBERS(name, value, body) {
        int i = 0;
        while (i < count && strcmp(keys[i].name, name) != 0)
            i++;
        if (i == count)
            return unknown_key(keys, count, name, ask);
        if (!take(&keys[i], value, wish, ask))
            return false;
        has_setting |= keys[i].given > 0;
    }
    return has_setting ||
           refuse(ask, 400, "E_BAD_REQUEST", "{\"learning_rate\": 1e-4}",
                  "there is no setting in the body");
}

/* --- the body --- */

bool body_read(
        const struct ask *ask, enum train_command_kind kind,
        struct wish *wish_out)
{
    json_error_t error;
    char why[300] = "is not a JSON object";
    const char *text = ask->request->body;
    size_t bytes = ask->request->body_bytes;
    json_auto_t *body =
            strspn(text, " \t\r\n") == bytes
                    ? json_object()
                    : json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    bool is_object = json_is_object(body);
    *wish_out = (struct wish){
            .command = {.kind = kind, .save = true, .steps = PROFILE_STEPS},
            .timeout = kind == COMMAND_STOP ? STOP_SECONDS : 0};
    if (!body)
        ZD_PRINT(
                why, "cannot be read: %.200s (line %d, column %d)", error.text,
                error.line, error.column);
    return is_object ? take_keys(kind, body, wish_out, ask)
                     : refuse(ask, 400, "E_BAD_REQUEST", BODY_HINT,
                              "the body %s", why);
}
