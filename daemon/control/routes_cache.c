/* routes_cache.c - long answers that many ask for are made once. */
#include "daemon/control/routes_internal.h"

#include "base/clock.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

static void forget(struct cached_reply *cached)
{
    free(cached->target);
    free(cached->text);
    *cached = (struct cached_reply){0};
}

bool cache_reply(
        const struct cached_reply *cached, const char *target,
        struct http_reply *reply)
{
    if (!cached->text || clock_seconds() - cached->made_at >= CACHE_SECONDS ||
        strcmp(cached->target, target) != 0)
        return false;
    *reply = (struct http_reply){
            .status = 200,
            .content_type = HTTP_JSON,
            .body = zd_must(malloc(cached->bytes)),
            .body_bytes = cached->bytes};
    memcpy(reply->body, cached->text, cached->bytes);
    return true;
}

void cache_keep(
        struct cached_reply *cached, const char *target,
        const struct http_reply *reply)
{
    if (reply->status != 200 || !reply->body)
        return;
    forget(cached);
    *cached = (struct cached_reply){
            .target = zd_must(strdup(target)),
            .text = zd_must(malloc(reply->body_bytes)),
            .bytes = reply->body_bytes,
            .made_at = clock_seconds()};
    memcpy(cached->text, reply->body, reply->body_bytes);
}

void cache_clear(struct routes *routes)
{
    for (int i = 0; i < routes->count; i++)
        forget(&routes->cached[i]);
}
