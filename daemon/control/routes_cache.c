/* routes_cache.c - long answers that many ask for are made once. */
#include "daemon/control/routes_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static void forget(struct cached_reply *cached)
{
    free(cached->text);
    *cached = (struct cached_reply){0};
}

bool cache_reply(
        struct routes *routes, enum cached_path path, const char *key,
        struct http_reply *reply)
{
    struct cached_reply *cached = &routes->cached[path];
    double age = clock_seconds() - cached->made_at;
    bool is_fresh = path == CACHED_SCHEMA || age < CACHE_SECONDS;
    if (!cached->text || !is_fresh || strcmp(cached->key, key) != 0)
        return false;
    reply->body = malloc(cached->bytes);
    if (!reply->body)
        return false;
    memcpy(reply->body, cached->text, cached->bytes);
    reply->body_bytes = cached->bytes;
    reply->status = 200;
    reply->content_type = HTTP_JSON;
    return true;
}

void cache_keep(
        struct routes *routes, enum cached_path path, const char *key,
        const struct http_reply *reply)
{
    struct cached_reply *cached = &routes->cached[path];
    size_t key_bytes = strlen(key) + 1;
    if (reply->status != 200 || !reply->body || key_bytes > sizeof cached->key)
        return;
    forget(cached);
    cached->text = malloc(reply->body_bytes);
    if (!cached->text)
        return;
    memcpy(cached->text, reply->body, reply->body_bytes);
    memcpy(cached->key, key, key_bytes);
    cached->bytes = reply->body_bytes;
    cached->made_at = clock_seconds();
}

void cache_clear(struct routes *routes)
{
    for (int path = 0; path < CACHED_PATHS; path++)
        forget(&routes->cached[path]);
}
