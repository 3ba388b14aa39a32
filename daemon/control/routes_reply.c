/* routes_reply.c - replies and parameters, as all paths have them. */
#include "daemon/control/routes_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- replies --- */

char *routes_dump(json_t *json, size_t *bytes_out)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17))
                      : NULL;
    size_t bytes = text ? strlen(text) : 0;
    json_decref(json);
    if (text)
        text[bytes++] = '\n'; /* where the NUL was */
    *bytes_out = bytes;
    return text;
}

void reply_json(struct http_reply *reply, int status, json_t *json)
{
    reply->body = routes_dump(json, &reply->body_bytes);
    reply->status = reply->body ? status : 500;
    reply->content_type = HTTP_JSON;
    if (!reply->body) {
        reply->static_body = "{\"error\": {\"code\": \"E_FAILED\", "
                             "\"message\": \"out of memory\", "
                             "\"hint\": null}}\n";
        reply->body_bytes = strlen(reply->static_body);
    }
}

json_t *error_json(const char *code, const char *message, const char *hint)
{
    bool has_hint = hint && hint[0];
    json_t *what = json_string(message);
    return json_pack(
            "{s:{s:s, s:o, s:o}}", "error", "code", code, "message",
            what ? what : json_string("(not UTF-8)"), "hint",
            has_hint ? json_string(hint) : json_null());
}

void reply_error(
        struct http_reply *reply, int status, const char *code,
        const char *hint, const char *format, ...)
{
    char message[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    reply_json(reply, status, error_json(code, message, hint));
}

/* --- parameters --- */

const char *param_text(const struct http_request *request, const char *name)
{
    for (int i = 0; i < request->param_count; i++)
        if (strcmp(request->param_names[i], name) == 0)
            return request->param_values[i];
    return NULL;
}

bool param_integer(
        const struct http_request *request, struct http_reply *reply,
        const char *name, int64_t min, int64_t max, int64_t *value)
{
    const char *text = param_text(request, name);
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
    snprintf(hint, sizeof hint, "%s=%lld", name, (long long)example);
    reply_error(
            reply, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: an integer from %lld to %lld is expected",
            name, text, (long long)min, (long long)max);
    return false;
}

bool param_flag(
        const struct http_request *request, struct http_reply *reply,
        const char *name, bool *value)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    const char *text = param_text(request, name);
    if (!text)
        return true;
    for (int i = 0; i < 4; i++)
        if (strcmp(text, words[i]) == 0) {
            *value = i % 2;
            return true;
        }
    char hint[100];
    snprintf(hint, sizeof hint, "%s=1", name);
    reply_error(
            reply, 400, "E_BAD_REQUEST", hint,
            "parameter %s=%.40s: 0 or 1 is expected", name, text);
    return false;
}
