#include "saved_state.h"

#include "base/file/safetensors.h"
#include "base/must.h"
#include "optim/optim.h"
#include "tests/support/job_threads.h"

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

/* Columns of a tensor: "[C0:C1,..]"; all of them: none. */
struct columns {
    size_t begin[3], count[3], width, row; /* row: elements of the tensor's */
    int ranges;
};

static struct columns columns_of(const char *text, size_t row)
{
    struct columns columns = {.row = row};
    while (*text == '[' || *text == ',') {
        char *at;
        int i = columns.ranges++;
        columns.begin[i] = strtoull(text + 1, &at, 10);
        columns.count[i] = strtoull(at + 1, &at, 10) - columns.begin[i];
        columns.width += columns.count[i];
        text = at;
    }
    return columns;
}

/* Which element of the tensor is element `number` of its columns? */
static size_t element_of(const struct columns *columns, size_t number)
{
    if (!columns->ranges)
        return number;
    size_t column = number % columns->width;
    int i = 0;
    while (column >= columns->count[i])
        column -= columns->count[i++];
    return number / columns->width * columns->row + columns->begin[i] + column;
}

/* Elements in a row of the tensor of an array. */
static size_t row_of(const json_t *manifest, const char *array)
{
    const json_t *tensors = json_object_get(manifest, "tensors");
    const json_t *shape = json_object_get(tensors, strchr(array, '/') + 1);
    return (size_t)json_integer_value(json_array_get(shape, 1));
}

static void add_array(
        struct saved_state *state, const struct st_file *file,
        const struct st_tensor *tensor, const json_t *manifest)
{
    size_t n = strcspn(tensor->name, "[@");
    struct saved_array *array = saved_array_of(state, tensor->name, n);
    struct columns columns =
            columns_of(tensor->name + n, row_of(manifest, array->name));
    size_t first = strtoull(strrchr(tensor->name, '@') + 1, NULL, 10);
    size_t per = strstr(array->name, "_scale/") ? OPTIM_QBLOCK : 1;
    size_t bytes = tensor->bytes / tensor->count, count = tensor->count;
    ZD_FREED char *values = malloc(tensor->bytes);
    ZD_PRINT(array->type, "%s", tensor->dtype);
    st_read_bytes(file, tensor, 0, tensor->bytes, values);
    for (size_t i = count; i-- > 0;) { /* the last first: it makes the room */
        size_t element = element_of(&columns, first + i * per);
        memcpy(bytes_at(array, element / per * bytes, bytes),
               values + i * bytes, bytes);
    }
    array->used += tensor->bytes;
}

static void add_shard(
        struct saved_state *state, const char *path, const json_t *manifest)
{
    struct st_file *file;
    if (st_open(path, &file) != ZD_OK)
        return;
    for (int t = 0; t < file->tensor_count; t++)
        add_array(state, file, &file->tensors[t], manifest);
    st_close(file);
}

struct saved_state saved_state_of(const char *dir, int world, int step)
{
    char path[PATH_MAX];
    struct saved_state state = {
            .arrays = calloc(ARRAYS_MAX, sizeof(struct saved_array))};
    json_auto_t *manifest = job_manifest(dir, step);
    for (int r = 1; r <= world; r++) {
        ZD_PRINT(
                path, "%s/out/checkpoint-%06d/shard-%05d-of-%05d.safetensors",
                dir, step, r, world);
        add_shard(&state, path, manifest);
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
