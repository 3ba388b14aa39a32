/* store_file_create.c - what a store in a file begins with: its records laid
 * out in the file, its buffers in the arena's ring, its queue of reads and
 * writes.
 */
#include "offload/store_file.h"

#include "base/log.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* Returns the bytes of the whole file. */
static uint64_t place_records(struct store_file *file)
{
    const struct store_request *request = &file->request;
    uint64_t at = 0;
    for (int i = 0; i < request->chunk_count; i++) {
        file->offsets[i] = at;
        file->buffer_of[i] = NO_BUFFER;
        at += record_bytes(request->request, &request->chunks[i]);
    }
    return at;
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
                    .file = &file->file,
                    .done = store_file_end_read,
                    .ctx = buffer};
            *write = *read;
            write->is_write = true;
            write->done = store_file_end_write;
        }
    }
}

/* Registered buffers spare the kernel a look-up for each transfer. */
static bool register_ring(struct store_file *file, size_t record_bytes)
{
    size_t count = (size_t)file->buffer_count;
    struct iovec *buffers = malloc(count * sizeof *buffers);
    if (!buffers)
        return false;
    for (size_t i = 0; i < count; i++)
        buffers[i] = (struct iovec){
                .iov_base = file->buffers[i].data, .iov_len = record_bytes};
    bool holds = aio_register(file->aio, buffers, (int)count);
    for (size_t i = 0; i < count && holds; i++)
        for (int move = 0; move < MOVES; move++)
            file->buffers[i].read[move].buffer =
                    file->buffers[i].write[move].buffer = (int)i + 1;
    free(buffers);
    return holds;
}

static void tell(const struct store_file *file, bool is_registered)
{
    bool has_ring = aio_backend_of(file->aio) == AIO_IO_URING;
    int refused = aio_refused(file->aio);
    if (refused)
        zd_log_info(
                "offload file: threads, since io_uring is not to be had "
                "here (%s)",
                strerror(refused));
    if (!file->file.is_direct)
        zd_log_info(
                "offload file: through the page cache, since the file "
                "system of %s has no O_DIRECT",
                file->file.path);
    if (has_ring && !is_registered)
        zd_log_debug("offload file: the limit of locked memory (ulimit -l) "
                     "is too low to register its buffers");
}

static struct store_file *file_alloc(const struct store_request *request)
{
    int buffers = record_ring_count(request->request, request->chunk_count);
    size_t chunks = (size_t)request->chunk_count;
    struct store_file *file =
            zd_array(1, sizeof *file + (size_t)buffers * sizeof *file->buffers);
    file->offsets = zd_array(chunks, sizeof *file->offsets);
    file->reserved_in = zd_array(chunks, sizeof *file->reserved_in);
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
            request->request, request->chunks, request->chunk_count);
    struct store_file *file = file_alloc(request);
    file->in_file = CHUNK_STATES;
    if (offload_params_in_file(request->request))
        file->in_file |= CHUNK_SLOT;
    uint64_t file_bytes = place_records(file);
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
    if (file_bytes)
        tell(file, register_ring(file, record_bytes));
    *file_out = file;
    return ZD_OK;
}
