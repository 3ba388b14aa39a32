/* request.c - the target of a request, by our own rules: libmicrohttpd is
 * lenient with zero bytes, spaces and broken escapes, and these names end up in
 * messages. Errors that the server itself answers. */
#include "daemon/http/server.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_utf8(const char *text)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t used = 0;
    for (; *text && used >= 0; text += used > 0 ? used : 0)
        used = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &code);
    return used >= 0;
}

/* In place. False: a broken escape, a zero byte, no UTF-8. */
static bool unescape(char *text, bool is_query)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        char c = *in;
        if (c == '%') {
            int high = hex_digit(in[1]);
            int low = high < 0 ? -1 : hex_digit(in[2]);
            if (low < 0 || high + low == 0)
                return false;
            c = (char)(high * 16 + low);
            in += 2;
        } else if (c == '+' && is_query)
            c = ' ';
        *out++ = c;
    }
    *out = '\0';
    return is_utf8(text);
}

static const char *parse_query(char *query, struct http_request *request)
{
    while (query) {
        char *name = strsep(&query, "&");
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        else
            value = name + strlen(name);
        if (!*name)
            return "a parameter of the query has no name";
        if (request->param_count == HTTP_PARAMS_MAX)
            return "the query has more than 16 parameters";
        if (!unescape(name, true) || !unescape(value, true))
            return "the query contains an invalid escape, or is not UTF-8";
        request->param_names[request->param_count] = name;
        request->param_values[request->param_count++] = value;
    }
    return NULL;
}

const char *http_target_parse(char *target, struct http_request *request)
{
    static const char scheme[] = "http://";
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '#')
            return "the path contains a control character, a space or #";
    if (!strncmp(target, scheme, sizeof scheme - 1)) { /* as to a proxy */
        target = strchr(target + sizeof scheme - 1, '/');
        if (!target)
            return "the address has no path";
    }
    if (*target != '/')
        return "the path does not begin with /";
    char *query = target;
    strsep(&query, "?");
    if (!unescape(target, false))
        return "the path contains an invalid escape, or is not UTF-8";
    request->path = target;
    return query && *query ? parse_query(query, request) : NULL;
}

void http_reply_error(
        struct http_reply *reply, int status, const char *code,
        const char *message, const char *hint)
{
    const char *quote = hint ? "\"" : "";
    char *text = NULL;
    int bytes = asprintf(
            &text,
            "{\"error\": {\"code\": \"%s\", \"message\": \"%s\", "
            "\"hint\": %s%s%s}}\n",
            code, message, quote, hint ? hint : "null", quote);
    *reply = (struct http_reply){
            .status = status, .content_type = "application/json"};
    if (bytes < 0) {
        reply->static_body = "";
        return;
    }
    reply->body = text;
    reply->body_bytes = (size_t)bytes;
}

bool http_host_is_ours(const struct http_server *server, const char *header)
{
    char name[256];
    unsigned char address[sizeof(struct in6_addr)];
    size_t bytes = strcspn(header, ":");
    if (header[0] == '[' || !bytes || bytes >= sizeof name)
        return header[0] == '['; /* an address of IPv6 */
    snprintf(name, sizeof name, "%.*s", (int)bytes, header);
    return !strchr(name, '.') || inet_pton(AF_INET, name, address) == 1 ||
           !strcasecmp(name, server->names[0]) ||
           !strcasecmp(name, server->names[1]);
}
