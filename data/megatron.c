/* The index of a Megatron file:
 *
 *   9 bytes "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 S | u64 D
 *   int32 lengths[S]    tokens of each sequence
 *   int64 pointers[S]   bytes from the start of the .bin
 *   int64 documents[D]  sequence index at document ends; the first is 0
 *   int8  modes[S]      of multimodal files only; not used
 *
 * Nothing in it is aligned, and it can be large: the three columns are read
 * side by side in pieces. */
#include "data/format.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/token_cache.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HEADER_BYTES = 34, COLUMN_BYTES = 32 << 10 };

struct column {
    int fd;
    const char *path;
    uint64_t offset;          /* of the next piece */
    uint64_t left;            /* values not yet read */
    size_t width, used, held; /* bytes of a value; in buffer */
    unsigned char buffer[COLUMN_BYTES];
};

static enum zd_status column_next(struct column *column, int64_t *value_out)
{
    if (column->used == column->held) {
        size_t values = sizeof column->buffer / column->width;
        if (values > column->left)
            values = (size_t)column->left;
        column->used = 0;
        column->held = values * column->width;
        ZD_TRY(fs_pread(
                column->fd, column->path, column->buffer, column->held,
                column->offset));
        column->offset += column->held;
        column->left -= values;
    }
    int32_t narrow;
    memcpy(&narrow, column->buffer + column->used, sizeof narrow);
    *value_out = narrow;
    if (column->width == sizeof *value_out)
        memcpy(value_out, column->buffer + column->used, sizeof *value_out);
    column->used += column->width;
    return ZD_OK;
}

struct megatron {
    char path[PATH_MAX]; /* of the index */
    uint64_t sequences, documents;
    struct column lengths, pointers, ends;
    int64_t border;        /* the sequence at which the next document begins */
    uint64_t borders_left; /* in `ends` */
};

static enum zd_status fail_index(const struct megatron *index, const char *why)
{
    return ZD_FAIL(
            ZD_ERR_DATA, "E0443", "%s is not a valid Megatron index: %s",
            index->path, why);
}

static enum zd_status set_type(
        const struct megatron *index, int code, struct raw_file *file)
{
    static const int widths[] = {0,  1, -1, -2, -4,
                                 -8, 0, 0,  2}; /* < 0: signed */
    if (code < 1 || code >= (int)(sizeof widths / sizeof *widths))
        return fail_index(index, "an unknown type of tokens");
    if (widths[code] == 0)
        return fail_index(index, "its tokens are floating-point numbers");
    file->width = abs(widths[code]);
    file->is_signed = widths[code] < 0;
    return ZD_OK;
}

static enum zd_status read_header(
        struct megatron *index, int fd, uint64_t bytes, struct raw_file *file)
{
    unsigned char header[HEADER_BYTES];
    uint64_t version;
    if (bytes < sizeof header)
        return fail_index(index, "it is too short");
    ZD_TRY(fs_pread(fd, index->path, header, sizeof header, 0));
    if (memcmp(header, "MMIDIDX\0\0", 9) != 0)
        return fail_index(index, "it does not begin with MMIDIDX");
    memcpy(&version, header + 9, 8);
    memcpy(&index->sequences, header + 18, 8);
    memcpy(&index->documents, header + 26, 8);
    if (version != 1)
        return fail_index(index, "its version is not 1");
    ZD_TRY(set_type(index, header[17], file));
    if (index->sequences == 0 || index->documents < 2)
        return fail_index(index, "it holds no document");
    /* bounded first, so that the sum cannot overflow */
    if (index->sequences > bytes / 12 || index->documents > bytes / 8)
        return fail_index(index, "it is shorter than its counts promise");
    uint64_t expected =
            HEADER_BYTES + index->sequences * 12 + index->documents * 8;
    if (bytes != expected && bytes != expected + index->sequences)
        return fail_index(index, "its size does not fit its counts");
    return ZD_OK;
}

/* Returns where the next one begins. */
static uint64_t column_init(
        struct column *column, const struct megatron *index, int fd,
        uint64_t offset, uint64_t count, size_t width)
{
    column->fd = fd;
    column->path = index->path;
    column->offset = offset;
    column->left = count;
    column->width = width;
    column->used = column->held = 0;
    return offset + count * width;
}

static void set_columns(struct megatron *index, int fd)
{
    uint64_t at = HEADER_BYTES, sequences = index->sequences;
    at = column_init(&index->lengths, index, fd, at, sequences, 4);
    at = column_init(&index->pointers, index, fd, at, sequences, 8);
    column_init(&index->ends, index, fd, at, index->documents, 8);
}

/* Does a document begin at sequence `at`? Of several at one place all but the
 * last are empty, and are none. */
static enum zd_status pass_borders(
        struct megatron *index, uint64_t at, bool *begins)
{
    while (index->border == (int64_t)at && index->borders_left > 0) {
        int64_t next;
        ZD_TRY(column_next(&index->ends, &next));
        if (next < index->border)
            return fail_index(index, "its documents are not in order");
        index->border = next;
        index->borders_left--;
        *begins = true;
    }
    return ZD_OK;
}

static enum zd_status next_sequence(
        struct megatron *index, const struct raw_file *file,
        uint64_t *end_of_last, uint64_t *offset_out, uint64_t *count_out)
{
    int64_t length, pointer;
    ZD_TRY(column_next(&index->lengths, &length));
    ZD_TRY(column_next(&index->pointers, &pointer));
    if (length < 0)
        return fail_index(index, "a sequence has a negative length");
    if (pointer < 0 || (uint64_t)pointer < *end_of_last)
        return fail_index(index, "its sequences overlap or are not in order");
    uint64_t bytes = (uint64_t)length * (uint64_t)file->width;
    if ((uint64_t)pointer > file->bytes ||
        bytes > file->bytes - (uint64_t)pointer)
        return fail_index(index, "a sequence lies beyond the end of the .bin");
    *end_of_last = (uint64_t)pointer + bytes;
    *offset_out = (uint64_t)pointer;
    *count_out = (uint64_t)length;
    return ZD_OK;
}

static enum zd_status read_columns(
        struct megatron *index, struct raw *raw, int file_index,
        struct cache_writer *documents)
{
    uint64_t end_of_last = 0;
    bool begins = false; /* a document begins with the next token */
    index->borders_left = index->documents - 1;
    ZD_TRY(column_next(&index->ends, &index->border));
    if (index->border != 0)
        return fail_index(index, "its first document does not begin at 0");
    for (uint64_t s = 0; s < index->sequences; s++) {
        uint64_t offset = 0, count = 0;
        ZD_TRY(pass_borders(index, s, &begins));
        ZD_TRY(next_sequence(
                index, &raw->files[file_index], &end_of_last, &offset, &count));
        if (begins && count > 0) {
            if (documents)
                ZD_TRY(cache_writer_document(documents, raw->count));
            begins = false;
        }
        raw_add_run(raw, file_index, offset, count);
    }
    ZD_TRY(pass_borders(index, index->sequences, &begins));
    if (index->border != (int64_t)index->sequences || index->borders_left > 0)
        return fail_index(
                index, "its documents do not end with its last sequence");
    return ZD_OK;
}

void megatron_index_path(const char *bin, char path[PATH_MAX])
{
    size_t stem = strlen(bin);
    if (stem >= 4 && strcasecmp(bin + stem - 4, ".bin") == 0)
        stem -= 4;
    snprintf(path, PATH_MAX, "%.*s.idx", (int)stem, bin);
}

bool megatron_is_file(const char *path, int32_t magic)
{
    char index[PATH_MAX];
    (void)magic;
    megatron_index_path(path, index);
    return fs_exists(index);
}

enum zd_status megatron_open(
        struct raw *raw, int file, struct cache_writer *documents)
{
    const char *bin = raw->files[file].path;
    struct megatron *index = zd_must(malloc(sizeof *index));
    uint64_t bytes;
    int fd;
    megatron_index_path(bin, index->path);
    enum zd_status status = fs_open_read(index->path, &fd, &bytes);
    if (status == ZD_OK) {
        status = read_header(index, fd, bytes, &raw->files[file]);
        if (status == ZD_OK) {
            set_columns(index, fd);
            status = read_columns(index, raw, file, documents);
        }
        close(fd);
    }
    free(index);
    return status;
}
