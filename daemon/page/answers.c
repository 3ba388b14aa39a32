#include "daemon/page/answers.h"

#include <stdio.h>
#include <string.h>

static const char *const own_headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src "
         "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
         "form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
};

enum MHD_Result answer(
        struct MHD_Connection *connection, int status, const char *type,
        struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    for (size_t i = 0; i < sizeof own_headers / sizeof *own_headers; i++)
        MHD_add_response_header(response, own_headers[i][0], own_headers[i][1]);
    if (type[0])
        MHD_add_response_header(response, "Content-Type", type);
    enum MHD_Result result =
            MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result answer_error(
        struct MHD_Connection *connection, int status, const char *code,
        const char *message, const char *hint)
{
    char *body;
    int bytes = asprintf(
            &body,
            "{\"error\": {\"code\": \"%s\", \"message\": \"%s\", \"hint\": "
            "\"%s\"}}\n",
            code, message, hint);
    if (bytes < 0)
        return MHD_NO;
    return answer(
            connection, status, "application/json",
            MHD_create_response_from_buffer(
                    (size_t)bytes, body, MHD_RESPMEM_MUST_FREE));
}

enum MHD_Result answer_enter(
        struct MHD_Connection *connection, const struct guard *guard)
{
    char folder[2 * GUARD_SECRET_BYTES + 3];
    struct MHD_Response *response =
            MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    snprintf(folder, sizeof folder, "/%s/", guard->secret);
    if (response)
        MHD_add_response_header(response, "Location", folder);
    return answer(connection, 303, "", response);
}

static enum MHD_Result answer_unknown(
        struct MHD_Connection *connection, const char *target)
{
    static const char page[] =
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\""
            " content=\"light dark\"><title>zerod</title><p "
            "style=\"font:16px system-ui;margin:3em\">This address has been "
            "used, or is not complete. Run <b>zerodctl web</b> again and open "
            "the address that it prints: each works once.\n";
    if (strncmp(target, "/v1", 3) == 0)
        return answer_error(
                connection, 401, "E_UNKNOWN", "no path of this relay",
                "open the address that zerodctl web printed; it works once");
    return answer(
            connection, 401, "text/html; charset=utf-8",
            MHD_create_response_from_buffer(
                    strlen(page), (void *)page, MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result answer_refused(
        struct MHD_Connection *connection, enum guard_verdict verdict,
        const char *target)
{
    switch (verdict) {
    case GUARD_HOST:
        return answer_error(
                connection, 403, "E_FORBIDDEN",
                "the Host header names another host or port",
                "open the page as 127.0.0.1 or localhost, with its own port");
    case GUARD_ORIGIN:
        return answer_error(
                connection, 403, "E_FORBIDDEN",
                "the request comes from another site's page",
                "only the page itself may ask");
    case GUARD_PATH:
        return answer_error(
                connection, 404, "E_NOT_FOUND", "no such path",
                "docs/control.md has them all");
    case GUARD_METHOD:
        return answer_error(
                connection, 405, "E_METHOD", "the path has another method",
                "GET to read, POST to act");
    default:
        return answer_unknown(connection, target);
    }
}
