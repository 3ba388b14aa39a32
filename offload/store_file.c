/* store_file.c - chunks in a file, behind a ring of buffers that hold a record
 * each.
 *
 *            reserve              all read            acquire
 *   spare -----------> reserved -----------> ready -----------> held
 *     ^                    |    (read ahead)                      | release
 *     |                    `- has it already                      v
 *     `------------------------------------------------------ writing behind
 *
 * A spare buffer keeps its chunk's bytes until another chunk takes it, least
 * recently used first. If a list's chunk is still in a buffer, even one being
 * written, it gets that buffer, so nothing is read before it was written. A
 * buffer that the list will change is ready only when its write is over, so a
 * record in the file is never a mixture of two versions.
 *
 * Buffers are reserved in the order of the list. Workers acquire chunks in that
 * order, each one at a time; a worker that comes early waits.
 *
 * Threads: `lock` guards all that changes; a buffer's bytes belong to aio
 * during a read or write, then to the worker that acquired it. After the first
 * disk error every call returns that. */
#include "offload/store_record.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "offload/aio.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* four parts form at most two groups of neighbors */
enum { NO_CHUNK = -1, NO_BUFFER = -1, MOVES = 2 };

struct buffer {
    char *data;
    int chunk;        /* chunk whose bytes it has, or NO_CHUNK */
    unsigned valid;   /* parts that are up to date */
    bool is_reserved; /* for a chunk of the list; else spare */
    bool is_held;
    int reading, writing; /* ops under way */
    uint64_t used;        /* when it became spare */
    struct aio_op read[MOVES], write[MOVES];
    struct store_file *store;
};

struct store_file {
    struct store_request request;
    uint64_t *offsets; /* of records, by chunk */
    unsigned in_file;  /* chunk_parts that the file has */
    struct aio *aio;
    struct aio_file file;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct store_list list;
    unsigned reads, writes; /* of the list, limited to parts in the file */
    int ahead;              /* number of the list's chunks that were reserved */
    int *buffer_of;         /* by chunk, or NO_BUFFER */
    int writes_under_way, reads_under_way;
    uint64_t clock;       /* for buffer.used */
    struct aio_op failed; /* the first op that failed */
    bool has_failed;
    uint64_t read_bytes, written_bytes; /* since the last report */
    double wait_seconds;
    int buffer_count;
    struct buffer buffers[];
};

/* --- moving records ------------------------------------------------------- */

static void note_end(struct store_file *file, struct aio_op *op)
{
    if (op->error && !file->has_failed) {
        file->failed = *op;
        file->has_failed = true;
    }
}

static void reserve_ahead(struct store_file *file);

static void end_read(struct aio_op *op)
{
    struct buffer *buffer = op->ctx;
    struct store_file *file = buffer->store;
    ZD_LOCKED(&file->lock);
    note_end(file, op);
    buffer->reading--;
    file->reads_under_way--;
    pthread_cond_broadcast(&file->changed);
}

static void end_write(struct aio_op *op)
{
    struct buffer *buffer = op->ctx;
    struct store_file *file = buffer->store;
    ZD_LOCKED(&file->lock);
    note_end(file, op);
    buffer->writing--;
    file->writes_under_way--;
    reserve_ahead(file);
    pthread_cond_broadcast(&file->changed);
}

/* Submit ops for `parts` of the buffer's record, one for each group of
 * neighbors; returns their number. Their end waits for the lock. */
static int move(
        struct store_file *file, struct buffer *buffer, struct aio_op *ops,
        unsigned parts)
{
    const struct chunk *chunk = &file->request.chunks[buffer->chunk];
    struct record record = record_of(file->request.request, chunk, AIO_ALIGN);
    int count = 0;
    for (int first = 0, end; first < RECORD_PARTS; first = end) {
        end = first + 1;
        if (!(parts >> first & 1))
            continue;
        while (end < RECORD_PARTS && parts >> end & 1)
            end++;
        size_t begin = record.part[first];
        struct aio_op *op = &ops[count];
        op->data = buffer->data + begin;
        op->bytes = record.part[end] - begin;
        op->offset = file->offsets[buffer->chunk] + begin;
        if (!op->bytes)
            continue; /* the lane does not exist */
        *(op->is_write ? &file->written_bytes : &file->read_bytes) += op->bytes;
        aio_submit(file->aio, op);
        count++;
    }
    return count;
}

static void read_parts(
        struct store_file *file, struct buffer *buffer, unsigned parts)
{
    int count = move(file, buffer, buffer->read, parts);
    buffer->valid |= parts;
    buffer->reading += count;
    file->reads_under_way += count;
}

static void write_parts(
        struct store_file *file, struct buffer *buffer, unsigned parts)
{
    int count = move(file, buffer, buffer->write, parts);
    buffer->valid |= parts;
    buffer->writing += count;
    file->writes_under_way += count;
    if (!count)
        reserve_ahead(file); /* no later completion will do it */
}

/* --- who has which buffer ------------------------------------------------- */

/* The buffer reserved for a chunk, or NULL. */
static struct buffer *reserved_for(struct store_file *file, int chunk)
{
    int index = file->buffer_of[chunk];
    if (index == NO_BUFFER || !file->buffers[index].is_reserved)
        return NULL;
    return &file->buffers[index];
}

static bool is_spare(const struct buffer *buffer)
{
    return !buffer->is_reserved && !buffer->reading && !buffer->writing;
}

/* The least recently used spare buffer, or NULL. */
static struct buffer *oldest_spare(struct store_file *file)
{
    struct buffer *oldest = NULL;
    ZD_EACH(buffer, file->buffers, file->buffer_count)
        if (is_spare(buffer) && (!oldest || buffer->used < oldest->used))
            oldest = buffer;
    return oldest;
}

static void give_to(struct store_file *file, struct buffer *buffer, int chunk)
{
    if (buffer->chunk != NO_CHUNK)
        file->buffer_of[buffer->chunk] = NO_BUFFER;
    buffer->chunk = chunk;
    buffer->valid = 0;
    file->buffer_of[chunk] = (int)(buffer - file->buffers);
}

/* Reserve a buffer for a chunk and read its missing parts; false: none is free
 * now. */
static bool reserve(struct store_file *file, int chunk)
{
    int index = file->buffer_of[chunk];
    struct buffer *buffer =
            index == NO_BUFFER ? oldest_spare(file) : &file->buffers[index];
    if (!buffer)
        return false;
    assert(!buffer->is_reserved && "a chunk is in a list once");
    if (buffer->chunk != chunk)
        give_to(file, buffer, chunk);
    buffer->is_reserved = true;
    unsigned missing = file->reads & ~buffer->valid;
    if (missing)
        read_parts(file, buffer, missing);
    return true;
}

static void reserve_ahead(struct store_file *file)
{
    int end = file->list.first + file->list.count;
    while (file->ahead < end && !file->has_failed && reserve(file, file->ahead))
        file->ahead++;
}

static bool is_ready(const struct store_file *file, const struct buffer *buffer)
{
    return !buffer->reading && !(buffer->writing && file->writes);
}

/* --- the store ------------------------------------------------------------ */

static enum zd_status fail(const struct store_file *file)
{
    return aio_op_status(&file->failed);
}

enum zd_status store_file_begin(
        struct store_file *file, const struct store_list *list)
{
    ZD_LOCKED(&file->lock);
    while (file->reads_under_way > 0) /* of chunks that were never acquired */
        pthread_cond_wait(&file->changed, &file->lock);
    for (int i = 0; i < file->buffer_count; i++) {
        assert(!file->buffers[i].is_held || file->has_failed);
        file->buffers[i].is_reserved = false;
    }
    file->list = *list;
    file->reads = list->reads & file->in_file;
    file->writes = list->writes & file->in_file;
    file->ahead = list->first + (file->reads | file->writes ? 0 : list->count);
    if (file->has_failed)
        return fail(file);
    reserve_ahead(file);
    return ZD_OK;
}

/* Waits until a buffer is ready for the chunk; NULL: the disk failed. */
static struct buffer *wait_ready(struct store_file *file, int chunk)
{
    for (;;) {
        if (file->has_failed)
            return NULL;
        struct buffer *buffer = reserved_for(file, chunk);
        if (buffer && is_ready(file, buffer))
            return buffer;
        double start = clock_seconds();
        pthread_cond_wait(&file->changed, &file->lock);
        file->wait_seconds += clock_seconds() - start;
    }
}

enum zd_status store_file_acquire(
        struct store_file *file, int index, struct chunk_memory *memory_out)
{
    const struct chunk *chunk = &file->request.chunks[index];
    struct chunk_memory memory = {0};
    chunk_slots(&file->request, chunk, &memory);
    if (file->reads | file->writes) {
        ZD_LOCKED(&file->lock);
        struct buffer *buffer = wait_ready(file, index);
        if (!buffer)
            return fail(file);
        buffer->is_held = true;
        record_memory(
                file->request.request, chunk, AIO_ALIGN, buffer->data, &memory);
    }
    *memory_out = memory;
    return ZD_OK;
}

enum zd_status store_file_release(struct store_file *file, int chunk)
{
    if (!(file->reads | file->writes))
        return ZD_OK;
    ZD_LOCKED(&file->lock);
    struct buffer *buffer = reserved_for(file, chunk);
    assert(buffer && buffer->is_held);
    buffer->is_held = false;
    buffer->is_reserved = false;
    buffer->used = ++file->clock;
    /* woken threads wait for the lock */
    pthread_cond_broadcast(&file->changed);
    if (file->has_failed)
        return fail(file);
    if (file->writes)
        write_parts(file, buffer, file->writes);
    else
        reserve_ahead(file);
    return ZD_OK;
}

enum zd_status store_file_finish(struct store_file *file)
{
    ZD_LOCKED(&file->lock);
    while (file->writes_under_way > 0)
        pthread_cond_wait(&file->changed, &file->lock);
    return file->has_failed ? fail(file) : ZD_OK;
}

void store_file_report(struct store_file *file, struct offload_report *report)
{
    ZD_LOCKED(&file->lock);
    report->disk_read_bytes += file->read_bytes;
    report->disk_written_bytes += file->written_bytes;
    report->disk_seconds += file->wait_seconds;
    file->read_bytes = file->written_bytes = 0;
    file->wait_seconds = 0;
}

void store_file_describe(
        const struct store_file *file, struct offload_facts *facts)
{
    facts->has_file = true;
    facts->is_direct = file->file.is_direct;
}

/* --- life ----------------------------------------------------------------- */

void store_file_destroy(struct store_file *file)
{
    if (!file)
        return;
    pthread_mutex_lock(&file->lock);
    file->list.count = 0; /* nothing more is read ahead */
    while (file->writes_under_way + file->reads_under_way > 0)
        pthread_cond_wait(&file->changed, &file->lock);
    pthread_mutex_unlock(&file->lock);
    aio_destroy(file->aio);
    aio_file_close(&file->file);
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    free(file->offsets);
    free(file->buffer_of);
    free(file);
}

static void place_buffers(struct store_file *file, size_t record_bytes)
{
    char *ring = arena_span(file->request.arena, "offload.ring");
    ring += -(uintptr_t)ring % AIO_ALIGN;
    for (int i = 0; i < file->buffer_count; i++) {
        struct buffer *buffer = &file->buffers[i];
        buffer->data = ring + (size_t)i * record_bytes;
        buffer->chunk = NO_CHUNK;
        buffer->store = file;
        for (int move = 0; move < MOVES; move++) {
            struct aio_op *read = &buffer->read[move];
            struct aio_op *write = &buffer->write[move];
            *read = (struct aio_op){
                    .file = &file->file, .done = end_read, .ctx = buffer};
            *write = *read;
            write->is_write = true;
            write->done = end_write;
        }
    }
}

static struct store_file *file_alloc(const struct store_request *request)
{
    int buffers = record_ring_count(request->request, request->chunk_count);
    size_t chunks = (size_t)request->chunk_count;
    struct store_file *file =
            zd_array(1, sizeof *file + (size_t)buffers * sizeof *file->buffers);
    file->offsets = zd_array(chunks, sizeof *file->offsets);
    file->buffer_of = zd_array(chunks, sizeof *file->buffer_of);
    file->request = *request;
    file->buffer_count = buffers;
    pthread_mutex_init(&file->lock, NULL);
    pthread_cond_init(&file->changed, NULL);
    return file;
}

enum zd_status store_file_create(
        const struct store_request *request, struct store_file **file_out)
{
    const struct offload_options *options = request->request->options;
    size_t record_bytes = record_largest(
            request->request, request->chunks, request->chunk_count, AIO_ALIGN);
    struct store_file *file = file_alloc(request);
    file->in_file = CHUNK_STATES;
    if (offload_params_in_file(request->request))
        file->in_file |= CHUNK_SLOT;
    uint64_t file_bytes = records_place(
            request->request, request->chunks, request->chunk_count, AIO_ALIGN,
            file->offsets);
    for (int i = 0; i < request->chunk_count; i++)
        file->buffer_of[i] = NO_BUFFER;
    if (file->buffer_count)
        place_buffers(file, record_bytes);
    enum zd_status status = aio_create(&options->aio, &file->aio);
    if (status == ZD_OK && file_bytes)
        status = aio_file_create(
                &file->file, options->nvme_path, request->place->file_name,
                file_bytes, true);
    if (status != ZD_OK) {
        store_file_destroy(file);
        return status;
    }
    if (file_bytes && !file->file.is_direct)
        zd_log_info(
                "offload file: through the page cache, since the file "
                "system of %s has no O_DIRECT",
                file->file.path);
    *file_out = file;
    return ZD_OK;
}
