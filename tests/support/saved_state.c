#include "saved_state.h"

#include "base/file/safetensors.h"
#include "optim/optim.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS_MAX = 512 };

struct saved_array *saved_array_of(
        struct saved_state *state, const char *name, size_t n)
{
    for (int i = 0; i < state->count; i++)
        if (strncmp(state->arrays[i].name, name, n) == 0 &&
            !state->arrays[i].name[n])
            return &state->arrays[i];
    struct saved_array *array = &state->arrays[state->count++];
    array->name = strndup(name, n);
    return array;
}

static char *bytes_at(struct saved_array *array, size_t begin, size_t bytes)
{
    if (begin + bytes > array->room) {
        array->bytes = realloc(array->bytes, begin + bytes);
        memset(array->bytes + array->room, 0, begin + bytes - array->room);
        array->room = begin + bytes;
    }
    return array->bytes + begin;
}

static void add_shard(struct saved_state *state, const char *path)
{
    struct st_file *file;
    if (st_open(path, &file) != ZD_OK)
        return;
    for (int t = 0; t < file->tensor_count; t++) {
        const struct st_tensor *tensor = &file->tensors[t];
        const char *at = strrchr(tensor->name, '@');
        struct saved_array *array = saved_array_of(
                state, tensor->name, (size_t)(at - tensor->name));
        size_t begin = strtoull(at + 1, NULL, 10);
        if (strstr(array->name, "_scale/"))
            begin /= OPTIM_QBLOCK;
        snprintf(array->type, sizeof array->type, "%s", tensor->dtype);
        st_read_bytes(
                file, tensor, 0, tensor->bytes,
                bytes_at(
                        array, begin * (tensor->bytes / tensor->count),
                        tensor->bytes));
        array->used += tensor->bytes;
    }
    st_close(file);
}

struct saved_state saved_state_of(const char *dir, int world, int step)
{
    char path[PATH_MAX];
    struct saved_state state = {
            .arrays = calloc(ARRAYS_MAX, sizeof(struct saved_array))};
    for (int r = 1; r <= world; r++) {
        snprintf(
                path, sizeof path,
                "%s/out/checkpoint-%06d/shard-%05d-of-%05d.safetensors", dir,
                step, r, world);
        add_shard(&state, path);
    }
    return state;
}

void saved_state_free(struct saved_state *state)
{
    for (int i = 0; i < state->count; i++) {
        free(state->arrays[i].name);
        free(state->arrays[i].bytes);
    }
    free(state->arrays);
}

bool same_saved_state(
        const char *a, int a_world, const char *b, int b_world, int step)
{
    struct saved_state x = saved_state_of(a, a_world, step);
    struct saved_state y = saved_state_of(b, b_world, step);
    bool same = x.count == y.count && x.count > 0;
    for (int i = 0; i < x.count && same; i++) {
        const struct saved_array *p = &x.arrays[i];
        const struct saved_array *q =
                saved_array_of(&y, p->name, strlen(p->name));
        same = p->used == q->used && strcmp(p->type, q->type) == 0 &&
               !memcmp(p->bytes, q->bytes, p->used);
    }
    saved_state_free(&x);
    saved_state_free(&y);
    return same;
}
