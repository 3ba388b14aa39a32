/* budget.c - the budget of internal.h, and its memory. */
#include "data/jinja/internal.h"

#include "base/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 32 << 10, ALIGNMENT = 16 };

struct chunk {
    struct chunk *before;
    size_t used, capacity;
    _Alignas(ALIGNMENT) char bytes[];
};

struct jinja_budget jinja_budget_whole(int depth)
{
    return (struct jinja_budget){depth,           depth,
                                 JINJA_STEPS_MAX, JINJA_BYTES_MAX,
                                 JINJA_STEPS_MAX, JINJA_BYTES_MAX};
}

void jinja_stop(
        struct jinja *j, enum jinja_result result, int line, const char *format,
        ...)
{
    int used = 0;
    va_list args;
    if (!is_ok(j))
        return;
    j->result = result;
    if (line)
        used = snprintf(j->why, j->why_bytes, "line %d: ", line);
    va_start(args, format);
    if ((size_t)used < j->why_bytes)
        vsnprintf(j->why + used, j->why_bytes - (size_t)used, format, args);
    va_end(args);
}

bool jinja_refuse(struct jinja *j, size_t steps)
{
    if (steps > j->left.steps)
        jinja_stop(
                j, JINJA_OVER, 0, "takes more than %zu steps",
                j->left.most_steps);
    else
        jinja_stop(
                j, JINJA_OVER, 0, "makes more than %zu MiB of values and text",
                j->left.most_bytes >> 20);
    return false;
}

bool jinja_too_deep(struct jinja *j)
{
    jinja_stop(
            j, JINJA_OVER, 0, "nests more than %d levels deep",
            j->left.most_depth);
    return false;
}

bool jinja_read(struct jinja *j, size_t bytes)
{
    return jinja_charge(j, 1 + bytes / 64, 0);
}

bool jinja_affords(struct jinja *j, uint64_t count, size_t bytes)
{
    struct jinja_budget before = j->left;
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all))
        all = SIZE_MAX;
    bool affords = jinja_charge(j, all / 64, all);
    if (affords)
        j->left = before;
    return affords;
}

void *jinja_alloc(struct jinja *j, size_t bytes)
{
    struct chunk *chunk = j->chunks;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    jinja_charge(j, 0, bytes);
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = zd_must(malloc(sizeof *chunk + capacity));
        *chunk = (struct chunk){j->chunks, 0, capacity};
        j->chunks = chunk;
    }
    chunk->used += bytes;
    return chunk->bytes + chunk->used - bytes;
}

void jinja_release(struct jinja *j)
{
    while (j->chunks) {
        struct chunk *chunk = j->chunks;
        j->chunks = chunk->before;
        free(chunk);
    }
}

void *jinja_extend(struct jinja *j, const void *base, size_t used, size_t more)
{
    size_t needed = used + more;
    for (int i = 0; i < 4; i++)
        if (j->grown[i].base == base && j->grown[i].used == used &&
            needed <= j->grown[i].capacity && used > 0) {
            j->grown[i].used = needed;
            return jinja_read(j, more) ? (void *)base : NULL;
        }
    size_t capacity = needed < 256 ? needed : needed + needed / 2;
    if (!jinja_charge(j, 1 + needed / 64, 0) || !jinja_affords(j, 1, capacity))
        return NULL;
    char *made = jinja_alloc(j, capacity);
    if (used)
        memcpy(made, base, used);
    j->grown[j->next_grown].base = made;
    j->grown[j->next_grown].used = needed;
    j->grown[j->next_grown].capacity = capacity;
    j->next_grown = (j->next_grown + 1) % 4;
    return made;
}
