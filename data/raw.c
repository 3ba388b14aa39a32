#include "data/raw.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/format.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum zd_status open_file(
        struct raw *raw, int index, const struct data_file *file,
        struct cache_writer *documents)
{
    struct raw_file *opened = &raw->files[index];
    *opened = (struct raw_file){
            .path = file->path, .fd = -1, .begin = raw->count};
    ZD_TRY(fs_open_read(file->path, &opened->fd, &opened->bytes));
    ZD_TRY(format_of(file->format)->open(opened, documents));
    raw->count += opened->count;
    return ZD_OK;
}

enum zd_status raw_open(
        struct raw *raw, const struct file_list *list,
        struct cache_writer *documents)
{
    enum zd_status status = ZD_OK;
    memset(raw, 0, sizeof *raw);
    raw->files = zd_array((size_t)list->count, sizeof *raw->files);
    while (raw->file_count < list->count && status == ZD_OK) {
        int index = raw->file_count++;
        status = open_file(raw, index, &list->files[index], documents);
    }
    if (status != ZD_OK)
        raw_close(raw);
    return status;
}

void raw_close(struct raw *raw)
{
    for (int i = 0; i < raw->file_count; i++)
        if (raw->files[i].fd >= 0)
            close(raw->files[i].fd);
    free(raw->files);
    free(raw->scratch);
    memset(raw, 0, sizeof *raw);
}

/* The file that holds `position`. */
static int find_file(const struct raw *raw, uint64_t position)
{
    int low = 0, high = raw->file_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (raw->files[middle].begin <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool raw_begins_file(const struct raw *raw, uint64_t position)
{
    return raw->files[find_file(raw, position)].begin == position;
}

/* Tokens lie at any byte, so they are copied out; numbers are little-endian. */
static int64_t load(const unsigned char *at, const struct raw_file *file)
{
    uint64_t value = 0;
    int unused = 64 - 8 * file->width;
    memcpy(&value, at, (size_t)file->width);
    return file->is_signed ? (int64_t)(value << unused) >> unused
                           : (int64_t)value;
}

static enum zd_status read_part(
        struct raw *raw, const struct raw_file *file, uint64_t offset,
        size_t count, int vocab_size, uint32_t *ids)
{
    size_t width = (size_t)file->width;
    ZD_GROW(raw->scratch, raw->scratch_bytes, count * width);
    ZD_TRY(fs_pread(file->fd, file->path, raw->scratch, count * width, offset));
    for (size_t i = 0; i < count; i++) {
        int64_t id = load(raw->scratch + i * width, file);
        if (id < 0 || id >= vocab_size) {
            uint64_t byte = offset + i * width;
            enum zd_status status = ZD_FAIL(
                    ZD_ERR_DATA, "E0442",
                    "token %llu of %s is %lld, but the model's "
                    "vocabulary has %d ids",
                    (unsigned long long)((byte - file->data_offset) / width),
                    file->path, (long long)id, vocab_size);
            zd_fail_where(
                    "%s: byte %llu", file->path, (unsigned long long)byte);
            return status;
        }
        ids[i] = (uint32_t)id;
    }
    return ZD_OK;
}

enum zd_status raw_read(
        struct raw *raw, uint64_t at, size_t count, int vocab_size,
        uint32_t *ids)
{
    for (int f = find_file(raw, at); count > 0; f++) {
        const struct raw_file *file = &raw->files[f];
        uint64_t skipped = at - file->begin, left = file->count - skipped;
        size_t part = left < count ? (size_t)left : count;
        ZD_TRY(read_part(
                raw, file, file->data_offset + skipped * (uint64_t)file->width,
                part, vocab_size, ids));
        ids += part;
        at += part;
        count -= part;
    }
    return ZD_OK;
}
