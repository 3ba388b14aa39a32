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
enum { NO_CHUNK = -1, MOVES = 2 };
/* what ops do: is_write */
enum { READ, WRITE, WAYS };

struct buffer {
    char *data;
    int chunk;        /* chunk whose bytes it has, or NO_CHUNK */
    unsigned valid;   /* parts that are up to date */
    bool is_reserved; /* for a chunk of the list; else spare */
    bool is_held;
    int under_way[WAYS]; /* ops */
    uint64_t used;       /* when it became spare */
    struct aio_op ops[WAYS][MOVES];
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
    struct buffer **buffer_of; /* by chunk, or NULL */
    int under_way[WAYS];       /* ops of all buffers */
    uint64_t clock;            /* for buffer.used */
    struct aio_op failed;      /* the first op that failed; error 0: none */
    uint64_t moved[WAYS];      /* bytes since the last report */
    double wait_seconds;
    int buffer_count;
    struct buffer buffers[];
};

/* --- moving records ------------------------------------------------------- */

static bool has_failed(const struct store_file *file)
{
    return file->failed.error != 0;
}

static void reserve_ahead(struct store_file *file);

static void end_move(struct aio_op *op)
{
    struct buffer *buffer = op->ctx;
    struct store_file *file = buffer->store;
    ZD_LOCKED(&file->lock);
    if (op->error && !has_failed(file))
        file->failed = *op;
    buffer->under_way[op->is_write]--;
    file->under_way[op->is_write]--;
    if (op->is_write)
        reserve_ahead(file);
    pthread_cond_broadcast(&file->changed);
}

/* Submits ops for `parts` of the buffer's record, one for each group of
 * neighbors. Their end waits for the lock. */
static void move(
        struct store_file *file, struct buffer *buffer, int way, unsigned parts)
{
    const struct chunk *chunk = &file->request.chunks[buffer->chunk];
    struct record record = record_of(file->request.request, chunk, AIO_ALIGN);
    struct aio_op *op = buffer->ops[way];
    buffer->valid |= parts;
    for (int first = 0, end; first < RECORD_PARTS; first = end) {
        end = first + 1;
        if (!(parts >> first & 1))
            continue;
        while (end < RECORD_PARTS && parts >> end & 1)
            end++;
        size_t begin = record.part[first];
        op->data = buffer->data + begin;
        op->bytes = record.part[end] - begin;
        op->offset = file->offsets[buffer->chunk] + begin;
        if (!op->bytes)
            continue; /* the lane does not exist */
        file->moved[way] += op->bytes;
        buffer->under_way[way]++;
        file->under_way[way]++;
        aio_submit(file->aio, op++);
    }
}

/* --- who has which buffer ------------------------------------------------- */

/* The buffer reserved for a chunk, or NULL. */
static struct buffer *reserved_for(const struct store_file *file, int chunk)
{
    struct buffer *buffer = file->buffer_of[chunk];
    return buffer && buffer->is_reserved ? buffer : NULL;
}

static bool is_spare(const struct buffer *buffer)
{
    return !buffer->is_reserved && !buffer->under_way[READ] &&
           !buffer->under_way[WRITE];
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
        file->buffer_of[buffer->chunk] = NULL;
    buffer->chunk = chunk;
    buffer->valid = 0;
    file->buffer_of[chunk] = buffer;
}

/* Reserve a buffer for a chunk and read its missing parts; false: none is free
 * now. */
static bool reserve(struct store_file *file, int chunk)
{
    struct buffer *buffer = file->buffer_of[chunk];
    if (!buffer)
        buffer = oldest_spare(file);
    if (!buffer)
        return false;
    assert(!buffer->is_reserved && "a chunk is in a list once");
    if (buffer->chunk != chunk)
        give_to(file, buffer, chunk);
    buffer->is_reserved = true;
    unsigned missing = file->reads & ~buffer->valid;
    move(file, buffer, READ, missing);
    return true;
}

static void reserve_ahead(struct store_file *file)
{
    int end = file->list.first + file->list.count;
    while (file->ahead < end && !has_failed(file) && reserve(file, file->ahead))
        file->ahead++;
}

static bool is_ready(const struct store_file *file, const struct buffer *buffer)
{
    return !buffer->under_way[READ] &&
           !(buffer->under_way[WRITE] && file->writes);
}

/* --- the store ------------------------------------------------------------ */

enum zd_status store_file_begin(
        struct store_file *file, const struct store_list *list)
{
    ZD_LOCKED(&file->lock);
    while (file->under_way[READ] > 0) /* of chunks that were never acquired */
        pthread_cond_wait(&file->changed, &file->lock);
    ZD_EACH(buffer, file->buffers, file->buffer_count) {
        assert(!buffer->is_held || has_failed(file));
        buffer->is_reserved = false;
    }
    file->list = *list;
    file->reads = list->reads & file->in_file;
    file->writes = list->writes & file->in_file;
    file->ahead = list->first + (file->reads | file->writes ? 0 : list->count);
    reserve_ahead(file);
    return aio_op_status(&file->failed);
}

/* Waits until a buffer is ready for the chunk; NULL: the disk failed. */
static struct buffer *wait_ready(struct store_file *file, int chunk)
{
    while (!has_failed(file)) {
        struct buffer *buffer = reserved_for(file, chunk);
        if (buffer && is_ready(file, buffer))
            return buffer;
        double start = clock_seconds();
        pthread_cond_wait(&file->changed, &file->lock);
        file->wait_seconds += clock_seconds() - start;
    }
    return NULL;
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
            return aio_op_status(&file->failed);
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
    ZD_TRY(aio_op_status(&file->failed));
    if (file->writes)
        move(file, buffer, WRITE, file->writes);
    reserve_ahead(file);
    return ZD_OK;
}

enum zd_status store_file_finish(struct store_file *file)
{
    ZD_LOCKED(&file->lock);
    while (file->under_way[WRITE] > 0)
        pthread_cond_wait(&file->changed, &file->lock);
    return aio_op_status(&file->failed);
}

void store_file_report(struct store_file *file, struct offload_report *report)
{
    ZD_LOCKED(&file->lock);
    report->disk_read_bytes += file->moved[READ];
    report->disk_written_bytes += file->moved[WRITE];
    report->disk_seconds += file->wait_seconds;
    file->moved[READ] = file->moved[WRITE] = 0;
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
    while (file->under_way[READ] + file->under_way[WRITE] > 0)
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
    ZD_EACH(buffer, file->buffers, file->buffer_count) {
        buffer->data = ring;
        buffer->chunk = NO_CHUNK;
        buffer->store = file;
        for (int i = 0; i < WAYS * MOVES; i++)
            buffer->ops[i / MOVES][i % MOVES] = (struct aio_op){
                    .file = &file->file,
                    .is_write = i / MOVES == WRITE,
                    .done = end_move,
                    .ctx = buffer};
        ring += record_bytes;
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
