#include "train/checkpoint/holds.h"

#include "base/text_buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void held_add(
        struct held *held, enum array_kind kind, const char *type,
        const char *digest)
{
    assert(held->array_count < ARRAY_KINDS);
    struct held_array *array = &held->arrays[held->array_count++];
    array->kind = kind;
    snprintf(array->type, sizeof array->type, "%s", type);
    snprintf(array->digest, sizeof array->digest, "%.*s", HELD_DIGEST, digest);
}

void held_text(const struct held *held, char out[HELD_TEXT])
{
    struct text_buffer text = {.out = out, .bytes = HELD_TEXT};
    text_buffer_add(&text, "%s@%zu+%zu", held->name, held->begin, held->count);
    for (int i = 0; i < held->array_count; i++)
        text_buffer_add(
                &text, " %s %s %s", array_kind_name(held->arrays[i].kind),
                held->arrays[i].type, held->arrays[i].digest);
}

/* A number of digits alone, which ends at `stop`; returns what follows it. */
static const char *parse_count(const char *text, char stop, size_t *out)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return NULL;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno || *end != stop ? NULL : end + (stop != '\0');
}

static bool parse_array(const char *text, struct held *held)
{
    char kind[16], type[12], digest[HELD_DIGEST + 1];
    if (sscanf(text, " %15s %11s %16s", kind, type, digest) != 3 ||
        strlen(digest) != HELD_DIGEST || held->array_count == ARRAY_KINDS)
        return false;
    enum array_kind of = array_kind_of(kind);
    if (of == ARRAY_KINDS)
        return false;
    held_add(held, of, type, digest);
    return true;
}

/* The place after three words and the spaces in front of them. */
static const char *behind_array(const char *text)
{
    for (int i = 0; i < 3; i++) {
        text += strspn(text, " ");
        text += strcspn(text, " ");
    }
    return text;
}

bool held_parse(const char *text, struct held *out)
{
    char range[64];
    *out = (struct held){.array_count = 0};
    const char *space = text ? strchr(text, ' ') : NULL;
    const char *at = space;
    while (at && at > text && *at != '@')
        at--;
    if (!at || at == text || (size_t)(at - text) >= sizeof out->name ||
        (size_t)(space - at) >= sizeof range)
        return false;
    memcpy(out->name, text, (size_t)(at - text));
    snprintf(range, sizeof range, "%.*s", (int)(space - at - 1), at + 1);
    const char *count = parse_count(range, '+', &out->begin);
    if (!parse_count(count, '\0', &out->count) || out->count == 0)
        return false;
    for (; *space; space = behind_array(space))
        if (!parse_array(space, out))
            return false;
    bool ends = out->begin <= INT64_MAX && out->count <= INT64_MAX - out->begin;
    return ends && out->array_count > 0;
}
