/* routes_body.c - a JSON body into what a command takes. */
#include "daemon/control/routes_body.h"
#include "base/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(const struct http_request *request)
{
    return strspn(request->body, " \t\r\n") == request->body_bytes;
}

#define BODY_HINT "one JSON object, each key once: {\"wait\": true}"

json_t *body_read(const struct http_request *request, struct http_reply *reply)
{
    json_error_t error;
    json_t *body;
    if (is_blank(request))
        return json_object();
    body = json_loadb(
            request->body, request->body_bytes, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(body))
        return body;
    if (body)
        reply_error(
                reply, 400, "E_BAD_REQUEST", BODY_HINT,
                "the body is no JSON object");
    else
        reply_error(
                reply, 400, "E_BAD_REQUEST", BODY_HINT,
                "the body cannot be read: %.200s (line %d, column %d)",
                error.text, error.line, error.column);
    json_decref(body);
    return NULL;
}

#define EXAMPLE_NUMBER 10.0 /* in hints, where it is in range */

bool body_wrong(
        struct http_reply *reply, const char *name, const char *expected,
        const char *example)
{
    char hint[100];
    snprintf(hint, sizeof hint, "{\"%.60s\": %s}", name, example);
    reply_error(
            reply, 400, "E_BAD_REQUEST", hint, "`%.60s`: %s is expected", name,
            expected);
    return false;
}

static bool take_text(
        const struct field *field, const json_t *value,
        struct http_reply *reply)
{
    char expected[80];
    size_t length = json_string_length(value);
    snprintf(
            expected, sizeof expected, "a string of at most %.0f bytes",
            field->max);
    if (!json_is_string(value) || (double)length > field->max ||
        strlen(json_string_value(value)) != length)
        return body_wrong(reply, field->name, expected, "\"In the beginning\"");
    memcpy(field->out, json_string_value(value), length + 1);
    return true;
}

static bool take_number(
        const struct field *field, const json_t *value,
        struct http_reply *reply)
{
    char expected[80], example[32];
    bool whole = field->type == FIELD_COUNT;
    double number = json_number_value(value);
    snprintf(
            example, sizeof example, "%.15g",
            fmin(fmax(EXAMPLE_NUMBER, field->min), field->max));
    snprintf(
            expected, sizeof expected, "%s from %.15g to %.15g",
            whole ? "an integer" : "a number", field->min, field->max);
    if (!json_is_number(value) || (whole && !json_is_integer(value)) ||
        !(number >= field->min && number <= field->max))
        return body_wrong(reply, field->name, expected, example);
    if (whole)
        *(int *)field->out = (int)number;
    else
        *(double *)field->out = number;
    return true;
}

bool body_take(
        const struct field *field, const json_t *value,
        struct http_reply *reply)
{
    if (field->given)
        *field->given = true;
    switch (field->type) {
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return body_wrong(reply, field->name, "true or false", "true");
        *(bool *)field->out = json_is_true(value);
        return true;
    case FIELD_TEXT:
        return take_text(field, value, reply);
    case FIELD_COUNT:
    case FIELD_SECONDS:
        return take_number(field, value, reply);
    }
    return false;
}

bool body_unknown_key(
        struct http_reply *reply, const char *key, const char *const *names,
        int count)
{
    char hint[400] = "";
    struct suggestion nearest = {0};
    for (int i = 0; i < count; i++)
        suggest_offer(&nearest, key, edit_distance(key, names[i]), names[i]);
    if (nearest.word)
        snprintf(hint, sizeof hint, "did you mean `%s`?", nearest.word);
    for (int i = 0; !nearest.word && i < count; i++)
        snprintf(
                hint + strlen(hint), sizeof hint - strlen(hint), "%s%s",
                i ? ", " : "it takes ", names[i]);
    reply_error(reply, 400, "E_BAD_REQUEST", hint, "unknown key `%.60s`", key);
    return false;
}

static bool take_fields(
        json_t *body, const struct field *fields, int count,
        struct http_reply *reply)
{
    const char *key;
    json_t *value;
    json_object_foreach(body, key, value)
    {
        const char *names[8];
        int i = 0;
        while (i < count && strcmp(fields[i].name, key) != 0)
            i++;
        for (int n = 0; n < count; n++)
            names[n] = fields[n].name;
        if (i == count)
            return body_unknown_key(reply, key, names, count);
        if (!body_take(&fields[i], value, reply))
            return false;
    }
    return true;
}

bool body_read_fields(
        const struct http_request *request, const struct field *fields,
        int count, struct http_reply *reply)
{
    json_t *body = body_read(request, reply);
    bool is_good = body && take_fields(body, fields, count, reply);
    json_decref(body);
    return is_good;
}
