/* guard.c - see guard.h. */
#include "daemon/page/guard.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static enum zd_status random_hex(char *out, size_t bytes)
{
    unsigned char raw[64];
    ssize_t got;
    do
        got = getrandom(raw, bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)bytes)
        return ZD_FAIL(
                ZD_ERR_DEVICE, "E1101", "the system has no random numbers: %s",
                strerror(errno));
    for (size_t i = 0; i < bytes; i++)
        sprintf(out + 2 * i, "%02x", raw[i]);
    return ZD_OK;
}

enum zd_status guard_init(struct guard *guard, int port)
{
    *guard = (struct guard){.port = port};
    ZD_TRY(random_hex(guard->token, GUARD_TOKEN_BYTES));
    return random_hex(guard->secret, GUARD_SECRET_BYTES);
}

/* In a time that tells nothing of where they differ. */
static bool is_secret(const char *secret, const char *text, size_t bytes)
{
    unsigned char differs = 0;
    if (bytes != strlen(secret))
        return false;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(secret[i] ^ text[i]);
    return differs == 0;
}

static bool is_host(const struct guard *guard, const char *text)
{
    char name[32], address[32];
    snprintf(name, sizeof name, "localhost:%d", guard->port);
    snprintf(address, sizeof address, "127.0.0.1:%d", guard->port);
    return strcasecmp(text, name) == 0 || strcmp(text, address) == 0;
}

static bool is_origin(const struct guard *guard, const char *text)
{
    static const char scheme[] = "http://";
    return strncmp(text, scheme, strlen(scheme)) == 0 &&
           is_host(guard, text + strlen(scheme));
}

const char *guard_inside(const struct guard *guard, const char *target)
{
    size_t bytes = strcspn(target + (*target == '/'), "/?");
    return *target == '/' && target[1 + bytes] == '/' &&
                           is_secret(guard->secret, target + 1, bytes)
                   ? target + 1 + bytes
                   : NULL;
}

/* The token of "/?token=T" is right and was not used before. */
static bool takes_token(struct guard *guard, const char *target)
{
    static const char prefix[] = "/?token=";
    if (strncmp(target, prefix, strlen(prefix)) != 0)
        return false;
    const char *token = target + strlen(prefix);
    if (guard->token_used || !is_secret(guard->token, token, strlen(token)))
        return false;
    return guard->token_used = true;
}

enum guard_verdict guard_judge(
        struct guard *guard, const struct http_request *request)
{
    const char *inside = guard_inside(guard, request->target);
    if (!request->host || !is_host(guard, request->host))
        return GUARD_HOST;
    if (request->origin && !is_origin(guard, request->origin))
        return GUARD_ORIGIN;
    if (inside)
        return GUARD_PASS;
    return strcmp(request->method, "GET") == 0 &&
                           takes_token(guard, request->target)
                   ? GUARD_ENTER
                   : GUARD_UNKNOWN;
}
