#include "base/file/fs.h"
#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/file/safetensors_dtype.h"
#include "base/progress.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What huggingface_hub still inspects. */
static const size_t HEADER_MAX = 25000000;

struct slot { /* a tensor in file order */
    int entry;
    int rank; /* of its dtype */
    uint64_t bytes;
    const char *name; /* borrowed while the header is made */
};

struct st_writer {
    char *path;
    int fd;
    struct hasher *hasher;        /* of all that was written */
    struct hasher *tensor_hasher; /* of the slot being written */
    char (*digests)[HASH_HEX];    /* of full tensors, by entry */
    struct slot *slots;
    int slot_count;
    int current;           /* the slot being written */
    uint64_t current_left; /* bytes it still needs */
    uint64_t total_bytes;  /* written so far, header included */
    uint64_t flushed;      /* of them, on their way to the disk */
};

static int by_file_order(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank > y->rank ? -1 : 1;
    return strcmp(x->name, y->name);
}

static enum zd_status fail_memory(const char *path)
{
    return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory writing %s", path);
}

static enum zd_status order_entries(
        struct st_writer *writer, const struct st_entry *entries,
        int entry_count)
{
    writer->slots = calloc((size_t)entry_count + 1, sizeof *writer->slots);
    writer->digests = calloc((size_t)entry_count + 1, sizeof *writer->digests);
    if (!writer->slots || !writer->digests)
        return fail_memory(writer->path);
    writer->slot_count = entry_count;
    for (int i = 0; i < entry_count; i++) {
        const struct st_entry *entry = &entries[i];
        uint64_t count;
        struct slot *slot = &writer->slots[i];
        slot->entry = i;
        slot->name = entry->name;
        slot->rank = st_dtype_rank(entry->dtype);
        assert(slot->rank >= 0 && entry->dims <= ST_DIMS_MAX);
        ZD_TRY(st_dtype_extent(
                writer->path, entry->name, entry->dtype, entry->dims,
                entry->shape, &count, &slot->bytes));
    }
    qsort(writer->slots, (size_t)entry_count, sizeof *writer->slots,
          by_file_order);
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
static char *header_text(
        const struct st_writer *writer, const struct st_entry *entries,
        const json_t *metadata)
{
    uint64_t at = 0;
    const char *key;
    json_t *value;
    json_t *root = json_object();
    json_t *strings = json_pack("{s:s}", "format", "pt");
    json_object_foreach((json_t *)metadata, key, value)
            json_object_set(strings, key, value);
    json_object_set_new(root, "__metadata__", strings);
    for (int i = 0; i < writer->slot_count; i++) {
        const struct slot *slot = &writer->slots[i];
        const struct st_entry *entry = &entries[slot->entry];
        assert(!json_object_get(root, entry->name) && "a name is given twice");
        json_object_set_new(
                root, entry->name, entry_json(entry, at, at + slot->bytes));
        at += slot->bytes;
    }
    char *text = NULL;
    /* an allocation that failed on the way left a tensor out */
    if (json_object_size(root) == (size_t)writer->slot_count + 1)
        text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

enum { FLUSH_BYTES = 32 << 20 };

/* So that the fsync at the end is a short one (base/progress.h): what was
 * written goes to the disk piece by piece, and at most two pieces and what one
 * call brings are not there yet. Where the file system cannot, it comes later.
 */
static void flush_behind(struct st_writer *writer)
{
    while (writer->total_bytes - writer->flushed >= FLUSH_BYTES) {
        off64_t at = (off64_t)writer->flushed;
        sync_file_range(writer->fd, at, FLUSH_BYTES, SYNC_FILE_RANGE_WRITE);
        if (at > 0)
            sync_file_range(
                    writer->fd, at - FLUSH_BYTES, FLUSH_BYTES,
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        progress_completed();
        writer->flushed += FLUSH_BYTES;
    }
}

static enum zd_status append(
        struct st_writer *writer, const void *data, size_t bytes)
{
    ZD_TRY(fs_write(writer->fd, writer->path, data, bytes));
    hasher_update(writer->hasher, data, bytes);
    writer->total_bytes += bytes;
    flush_behind(writer);
    return ZD_OK;
}

static enum zd_status write_header(struct st_writer *writer, const char *text)
{
    static const char spaces[8] = "        ";
    size_t length = strlen(text);
    uint64_t padded = (length + 7) / 8 * 8; /* the data begins aligned */
    if (padded > HEADER_MAX)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0728",
                "%s would need a header of %zu bytes; %zu is the limit",
                writer->path, length, HEADER_MAX);
    ZD_TRY(append(writer, &padded, sizeof padded));
    ZD_TRY(append(writer, text, length));
    return append(writer, spaces, (size_t)padded - length);
}

/* Go on to the next tensor that has bytes. */
static void skip_full(struct st_writer *writer)
{
    while (writer->current_left == 0 && writer->current < writer->slot_count) {
        if (writer->current >= 0) {
            int entry = writer->slots[writer->current].entry;
            hasher_finish(writer->tensor_hasher, writer->digests[entry]);
            hasher_reset(writer->tensor_hasher);
        }
        writer->current++;
        if (writer->current < writer->slot_count)
            writer->current_left = writer->slots[writer->current].bytes;
    }
}

static void writer_free(struct st_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    hasher_destroy(writer->hasher);
    hasher_destroy(writer->tensor_hasher);
    free(writer->digests);
    free(writer->slots);
    free(writer->path);
    free(writer);
}

enum zd_status st_writer_create(
        const char *path, const struct st_entry *entries, int entry_count,
        const json_t *metadata, struct st_writer **writer_out)
{
    char *text = NULL;
    struct st_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return fail_memory(path);
    writer->fd = -1;
    writer->current = -1;
    writer->path = strdup(path);
    writer->hasher = hasher_create();
    writer->tensor_hasher = hasher_create();
    enum zd_status status = ZD_OK;
    if (!writer->path || !writer->hasher || !writer->tensor_hasher)
        status = fail_memory(path);
    if (status == ZD_OK)
        status = order_entries(writer, entries, entry_count);
    if (status == ZD_OK && !(text = header_text(writer, entries, metadata)))
        status = fail_memory(path);
    if (status != ZD_OK)
        goto err_free;
    writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (writer->fd < 0) {
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0708", "cannot create %s: %s", path,
                        strerror(errno));
        goto err_free;
    }
    status = write_header(writer, text);
    if (status != ZD_OK)
        goto err_unlink;
    free(text);
    skip_full(writer);
    *writer_out = writer;
    return ZD_OK;

err_unlink:
    unlink(path);
err_free:
    free(text);
    writer_free(writer);
    return status;
}

int st_writer_order(const struct st_writer *writer, int i)
{
    assert(i >= 0 && i < writer->slot_count);
    return writer->slots[i].entry;
}

enum zd_status st_writer_write(
        struct st_writer *writer, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes) {
        assert(writer->current < writer->slot_count &&
               "more data than planned");
        size_t part = bytes < writer->current_left
                              ? bytes
                              : (size_t)writer->current_left;
        ZD_TRY(append(writer, from, part));
        hasher_update(writer->tensor_hasher, from, part);
        from += part;
        bytes -= part;
        writer->current_left -= part;
        skip_full(writer);
    }
    return ZD_OK;
}

const char *st_writer_digest(const struct st_writer *writer, int entry)
{
    assert(entry >= 0 && entry < writer->slot_count &&
           writer->digests[entry][0] && "its bytes are not all there");
    return writer->digests[entry];
}

enum zd_status st_writer_finish(
        struct st_writer *writer, char *digest_hex, uint64_t *bytes_out)
{
    enum zd_status status = ZD_OK;
    if (writer->current < writer->slot_count)
        status = ZD_FAIL(
                ZD_ERR_BUG, "E0902",
                "%s was finished %llu bytes into its tensor %d of %d",
                writer->path,
                (unsigned long long)(writer->slots[writer->current].bytes - writer->current_left),
                writer->current + 1, writer->slot_count);
    if (status == ZD_OK && fsync(writer->fd) != 0)
        status =
                ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write %s: %s", writer->path,
                        strerror(errno));
    progress_completed();
    if (close(writer->fd) != 0 && status == ZD_OK)
        status =
                ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write %s: %s", writer->path,
                        strerror(errno));
    writer->fd = -1;
    if (status != ZD_OK)
        unlink(writer->path);
    if (status == ZD_OK && digest_hex)
        hasher_finish(writer->hasher, digest_hex);
    if (status == ZD_OK && bytes_out)
        *bytes_out = writer->total_bytes;
    writer_free(writer);
    return status;
}

/* Where the file system can, what they will write has room from now on. */
static enum zd_status reserve(struct st_writer *writer)
{
    uint64_t bytes = writer->total_bytes;
    for (int i = 0; i < writer->slot_count; i++)
        bytes += writer->slots[i].bytes;
    if (fallocate(writer->fd, 0, 0, (off_t)bytes) == 0)
        return ZD_OK;
    if ((errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) &&
        ftruncate(writer->fd, (off_t)bytes) == 0)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", writer->path,
            strerror(errno));
}

enum zd_status st_writer_leave(struct st_writer *writer)
{
    enum zd_status status = reserve(writer);
    enum zd_status synced = fs_sync_close(writer->fd, writer->path);
    writer->fd = -1;
    if (status == ZD_OK)
        status = synced;
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
