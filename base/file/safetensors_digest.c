#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

struct reading {
    const struct st_file *file;
    struct hasher *part, *all;
    char *chunk;
};

/* The digest of a part of the file is added to that of all. */
static enum zd_status add_part(
        const struct reading *reading, uint64_t begin, uint64_t bytes)
{
    char hex[HASH_HEX];
    const struct st_file *file = reading->file;
    hasher_reset(reading->part);
    for (uint64_t done = 0; done < bytes; done += CHUNK) {
        uint64_t left = bytes - done;
        size_t count = left < CHUNK ? (size_t)left : CHUNK;
        ZD_TRY(fs_pread(
                file->fd, file->path, reading->chunk, count, begin + done));
        hasher_update(reading->part, reading->chunk, count);
    }
    hasher_finish(reading->part, hex);
    hasher_update(reading->all, hex, HASH_HEX - 1);
    return ZD_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;
    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

static enum zd_status add_parts(
        const struct reading *reading, const struct st_tensor **order)
{
    const struct st_file *file = reading->file;
    uint64_t data = file->file_bytes;
    for (int i = 0; i < file->tensor_count; i++) {
        order[i] = &file->tensors[i];
        data -= order[i]->bytes;
    }
    qsort(order, (size_t)file->tensor_count, sizeof(struct st_tensor *),
          by_place);
    ZD_TRY(add_part(reading, 0, data));
    for (int i = 0; i < file->tensor_count; i++)
        ZD_TRY(add_part(reading, order[i]->begin, order[i]->bytes));
    return ZD_OK;
}

enum zd_status st_digest(const char *path, char hex[HASH_HEX])
{
    struct st_file *file;
    ZD_TRY(st_open(path, &file));
    struct reading reading = {
            .file = file,
            .part = hasher_create(),
            .all = hasher_create(),
            .chunk = zd_must(malloc(CHUNK))};
    const struct st_tensor **order =
            zd_array((size_t)file->tensor_count, sizeof(struct st_tensor *));
    enum zd_status status = add_parts(&reading, order);
    if (status == ZD_OK)
        hasher_finish(reading.all, hex);
    free(order);
    free(reading.chunk);
    hasher_destroy(reading.part);
    hasher_destroy(reading.all);
    st_close(file);
    return status;
}
