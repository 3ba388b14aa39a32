#include "data/tokenizer/tokenizer.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

void token_vector_push(struct token_vector *vector, int32_t id)
{
    if (vector->count == vector->capacity)
        vector->ids =
                zd_grow(vector->ids, &vector->capacity, vector->count + 1,
                        sizeof *vector->ids);
    vector->ids[vector->count++] = id;
}

void token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count)
{
    vector->ids =
            zd_grow(vector->ids, &vector->capacity, vector->count + count,
                    sizeof *vector->ids);
    if (count > 0)
        memcpy(vector->ids + vector->count, ids, count * sizeof *ids);
    vector->count += count;
}

void token_vector_fini(struct token_vector *vector)
{
    free(vector->ids);
    *vector = (struct token_vector){0};
}
