#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/file/write_direct.h"
#include "base/must.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The largest header that huggingface_hub inspects. */
static const size_t HEADER_MAX = 25000000;

struct slot {                     /* a tensor */
    const struct st_entry *entry; /* borrowed while the header is made */
    int rank;                     /* of its dtype */
    uint64_t begin, bytes;        /* in the file */
    uint64_t done;                /* of them */
    struct hasher *hasher;        /* while it is neither empty nor full */
    char digest[HASH_HEX];        /* when it is full */
};

struct st_writer {
    char *path;
    int fd;
    char header_digest[HASH_HEX];
    struct slot *slots;  /* by entry, .. */
    struct slot **order; /* .. and in file order */
    int slot_count;
    uint64_t bytes;
    size_t behind;               /* fs_write_behind */
    struct write_direct *direct; /* NULL: all goes through the page cache */
    void *direct_room;           /* returned by st_writer_room */
    void *room; /* the writer's own buffer for it; NULL: none yet */
};

static int by_file_order(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a;
    const struct slot *y = *(struct slot *const *)b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return strcmp(x->entry->name, y->entry->name);
}

static enum zd_status order_entries(
        struct st_writer *writer, const struct st_entry *entries,
        int entry_count)
{
    size_t count = (size_t)entry_count;
    writer->slots = zd_array(count, sizeof *writer->slots);
    writer->order = zd_array(count, sizeof *writer->order);
    writer->slot_count = entry_count;
    for (int i = 0; i < entry_count; i++) {
        const struct st_entry *entry = &entries[i];
        uint64_t elements;
        struct slot *slot = &writer->slots[i];
        writer->order[i] = slot;
        slot->entry = entry;
        slot->rank = st_dtype_rank(entry->dtype);
        assert(slot->rank >= 0 && entry->dims <= ST_DIMS_MAX);
        ZD_TRY(st_dtype_extent(
                writer->path, entry->name, entry->dtype, entry->dims,
                entry->shape, &elements, &slot->bytes));
        if (slot->bytes == 0)
            hash_bytes("", 0, slot->digest);
    }
    qsort(writer->order, count, sizeof *writer->order, by_file_order);
    return ZD_OK;
}

static json_t *entry_json(
        const struct st_entry *entry, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < entry->dims; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    return json_pack(
            "{s:s, s:o, s:[I, I]}", "dtype", entry->dtype, "shape", shape,
            "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* The header as text: metadata first, no spaces, as the reference writes it. */
static char *header_text(const struct st_writer *writer, const json_t *metadata)
{
    uint64_t at = 0;
    json_auto_t *root = json_object();
    json_t *strings = json_pack("{s:s}", "format", "pt");
    JSON_MEMBERS(key, value, metadata)
        json_object_set(strings, key, value);
    json_object_set_new(root, "__metadata__", strings);
    for (int i = 0; i < writer->slot_count; i++) {
        const struct slot *slot = writer->order[i];
        const struct st_entry *entry = slot->entry;
        assert(!json_object_get(root, entry->name) && "a name is given twice");
        json_object_set_new(
                root, entry->name, entry_json(entry, at, at + slot->bytes));
        at += slot->bytes;
    }
    assert(json_object_size(root) == (size_t)writer->slot_count + 1);
    return zd_must(json_dumps(root, JSON_COMPACT));
}

/* Pads the header so that the data is aligned, and reserves the file's space
 * where the file system can. */
static enum zd_status write_header(
        struct st_writer *writer, const json_t *metadata)
{
    ZD_FREED char *text = header_text(writer, metadata);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    if (padded > HEADER_MAX)
        return ZD_BAD(
                "E0728",
                "%s would need a header of %zu bytes; %zu is the limit",
                writer->path, length, HEADER_MAX);
    ZD_FREED char *header = zd_must(malloc(sizeof(uint64_t) + padded));
    uint64_t written = padded;
    memcpy(header, &written, sizeof written);
    memset(header + sizeof written, ' ', padded);
    memcpy(header + sizeof written, text, length);
    writer->bytes = sizeof written + padded;
    hash_bytes(header, (size_t)writer->bytes, writer->header_digest);
    for (int i = 0; i < writer->slot_count; i++) {
        writer->order[i]->begin = writer->bytes;
        writer->bytes += writer->order[i]->bytes;
    }
    ZD_TRY(fs_reserve(writer->fd, writer->path, writer->bytes));
    writer->direct =
            write_direct_begin(writer->fd, writer->path, writer->bytes);
    return fs_pwrite(
            writer->fd, writer->path, header, sizeof written + padded, 0);
}

static enum zd_status put_cached(
        struct st_writer *writer, uint64_t at, const void *data, size_t bytes)
{
    ZD_TRY(fs_pwrite(writer->fd, writer->path, data, bytes, at));
    fs_write_behind(writer->fd, &writer->behind, bytes);
    return ZD_OK;
}

static enum zd_status put_direct(
        struct st_writer *writer, uint64_t at, const void *data, size_t bytes)
{
    for (size_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < WRITE_DIRECT_BYTES ? bytes - done
                                                 : WRITE_DIRECT_BYTES;
        memcpy(write_direct_room(writer->direct, at + done, part),
               (const char *)data + done, part);
        ZD_TRY(write_direct_put(writer->direct));
    }
    return ZD_OK;
}

/* Write at the tensor's offset in the file. */
static enum zd_status put(
        struct st_writer *writer, uint64_t at, const void *data, size_t bytes)
{
    bool is_there = data == writer->direct_room;
    writer->direct_room = NULL;
    if (is_there)
        return write_direct_put(writer->direct);
    if (!writer->direct)
        return put_cached(writer, at, data, bytes);
    return bytes > WRITE_DIRECT_SMALL
                   ? put_direct(writer, at, data, bytes)
                   : write_direct_small(writer->direct, at, data, bytes);
}

enum zd_status st_writer_add(
        struct st_writer *writer, int entry, const void *data, size_t bytes)
{
    struct slot *slot = &writer->slots[entry];
    if (!bytes)
        return ZD_OK;
    uint64_t at = slot->begin + slot->done;
    assert(bytes <= slot->bytes - slot->done && "more data than planned");
    if (!slot->hasher)
        slot->hasher = hasher_create();
    hasher_update(slot->hasher, data, bytes);
    ZD_TRY(put(writer, at, data, bytes));
    slot->done += bytes;
    if (slot->done < slot->bytes)
        return ZD_OK;
    hasher_finish(slot->hasher, slot->digest);
    slot->hasher = NULL;
    return ZD_OK;
}

static void writer_free(struct st_writer *writer)
{
    struct zd_error cause = *zd_error_get();
    if (write_direct_end(writer->direct) != ZD_OK)
        zd_error_set(&cause); /* reported already, or irrelevant */
    if (writer->fd >= 0)
        close(writer->fd);
    for (int i = 0; writer->slots && i < writer->slot_count; i++)
        hasher_destroy(writer->slots[i].hasher);
    free(writer->order);
    free(writer->slots);
    free(writer->room);
    free(writer->path);
    free(writer);
}

enum zd_status st_writer_create(
        const char *path, const struct st_entry *entries, int entry_count,
        const json_t *metadata, struct st_writer **writer_out)
{
    struct st_writer *writer = zd_array(1, sizeof *writer);
    writer->path = zd_must(strdup(path));
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (writer->fd < 0) {
        writer_free(writer);
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0708", "cannot create %s: %s", path,
                strerror(errno));
    }
    enum zd_status status = order_entries(writer, entries, entry_count);
    ZD_THEN(status, write_header(writer, metadata));
    if (status == ZD_OK)
        *writer_out = writer;
    else
        st_writer_abandon(writer);
    return status;
}

void *st_writer_room(struct st_writer *writer, int entry, size_t bytes)
{
    const struct slot *slot = &writer->slots[entry];
    assert(bytes <= ST_ROOM_MAX && !writer->direct_room);
    if (writer->direct && bytes > WRITE_DIRECT_SMALL)
        return writer->direct_room = write_direct_room(
                       writer->direct, slot->begin + slot->done, bytes);
    if (!writer->room)
        writer->room = zd_must(malloc(ST_ROOM_MAX));
    return writer->room;
}

const char *st_writer_digest(const struct st_writer *writer, int entry)
{
    assert(entry >= 0 && entry < writer->slot_count &&
           writer->slots[entry].digest[0] && "its bytes are not all there");
    return writer->slots[entry].digest;
}

/* As st_digest. */
static void digest_all(
        const struct st_writer *writer, char digest_hex[HASH_HEX])
{
    struct hasher *hasher = hasher_create();
    hasher_update(hasher, writer->header_digest, HASH_HEX - 1);
    for (int i = 0; i < writer->slot_count; i++)
        hasher_update(hasher, writer->order[i]->digest, HASH_HEX - 1);
    hasher_finish(hasher, digest_hex);
}

enum zd_status st_writer_finish(
        struct st_writer *writer, char *digest_hex, uint64_t *bytes_out)
{
    enum zd_status status = ZD_OK;
    for (int i = 0; i < writer->slot_count && status == ZD_OK; i++)
        if (writer->order[i]->done < writer->order[i]->bytes)
            status = ZD_FAIL(
                    ZD_ERR_BUG, "E0902",
                    "%s was finished %llu bytes into its tensor %d of %d",
                    writer->path, (unsigned long long)writer->order[i]->done,
                    i + 1, writer->slot_count);
    if (status == ZD_OK && digest_hex)
        digest_all(writer, digest_hex);
    enum zd_status written = write_direct_end(writer->direct);
    writer->direct = NULL;
    ZD_THEN(status, written);
    if (status != ZD_OK) {
        st_writer_abandon(writer);
        return status;
    }
    if (bytes_out)
        *bytes_out = writer->bytes;
    return st_writer_leave(writer);
}

enum zd_status st_writer_leave(struct st_writer *writer)
{
    enum zd_status status = fs_sync_close(writer->fd, writer->path);
    writer->fd = -1;
    if (status != ZD_OK)
        unlink(writer->path);
    writer_free(writer);
    return status;
}

void st_writer_abandon(struct st_writer *writer)
{
    if (!writer)
        return;
    unlink(writer->path);
    writer_free(writer);
}
