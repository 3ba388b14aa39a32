#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static enum zd_status reserve(struct token_vector *vector, size_t more)
{
    size_t capacity = vector->capacity ? vector->capacity : 256;
    int32_t *ids = NULL;
    if (more <= vector->capacity - vector->count)
        return ZD_OK;
    while (capacity - vector->count < more && capacity <= SIZE_MAX / 8)
        capacity *= 2;
    if (capacity - vector->count >= more)
        ids = realloc(vector->ids, capacity * sizeof *ids);
    if (!ids)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0410", "no memory for %zu token ids",
                capacity);
    vector->ids = ids;
    vector->capacity = capacity;
    return ZD_OK;
}

enum zd_status token_vector_push(struct token_vector *vector, int32_t id)
{
    if (vector->count == vector->capacity)
        ZD_TRY(reserve(vector, 1));
    vector->ids[vector->count++] = id;
    return ZD_OK;
}

enum zd_status token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count)
{
    ZD_TRY(reserve(vector, count));
    if (count > 0)
        memcpy(vector->ids + vector->count, ids, count * sizeof *ids);
    vector->count += count;
    return ZD_OK;
}

void token_vector_fini(struct token_vector *vector)
{
    if (!vector)
        return;
    free(vector->ids);
    memset(vector, 0, sizeof *vector);
}
