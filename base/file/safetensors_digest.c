#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

static enum zd_status digest_part(
        const struct st_file *file, uint64_t begin, uint64_t bytes,
        char hex[HASH_HEX])
{
    enum zd_status status = ZD_OK;
    struct hasher *hasher = hasher_create();
    char *chunk = zd_must(malloc(CHUNK));
    for (uint64_t done = 0; done < bytes && status == ZD_OK; done += CHUNK) {
        uint64_t left = bytes - done;
        size_t count = left < CHUNK ? (size_t)left : CHUNK;
        status = fs_pread(file->fd, file->path, chunk, count, begin + done);
        if (status == ZD_OK)
            hasher_update(hasher, chunk, count);
    }
    hasher_finish(hasher, hex);
    free(chunk);
    hasher_destroy(hasher);
    return status;
}

enum zd_status st_tensor_digest(
        const struct st_file *file, const struct st_tensor *tensor,
        char hex[HASH_HEX])
{
    return digest_part(file, tensor->begin, tensor->bytes, hex);
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;
    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

static enum zd_status digest_parts(
        const struct st_file *file, const struct st_tensor **order,
        struct hasher *all)
{
    char hex[HASH_HEX];
    uint64_t data = file->file_bytes;
    for (int i = 0; i < file->tensor_count; i++) {
        order[i] = &file->tensors[i];
        data -= order[i]->bytes;
    }
    qsort(order, (size_t)file->tensor_count, sizeof(struct st_tensor *),
          by_place);
    ZD_TRY(digest_part(file, 0, data, hex));
    hasher_update(all, hex, HASH_HEX - 1);
    for (int i = 0; i < file->tensor_count; i++) {
        ZD_TRY(st_tensor_digest(file, order[i], hex));
        hasher_update(all, hex, HASH_HEX - 1);
    }
    return ZD_OK;
}

enum zd_status st_digest(const char *path, char hex[HASH_HEX])
{
    struct st_file *file;
    ZD_TRY(st_open(path, &file));
    struct hasher *all = hasher_create();
    const struct st_tensor **order =
            zd_array((size_t)file->tensor_count, sizeof(struct st_tensor *));
    enum zd_status status = digest_parts(file, order, all);
    if (status == ZD_OK)
        hasher_finish(all, hex);
    free(order);
    hasher_destroy(all);
    st_close(file);
    return status;
}
