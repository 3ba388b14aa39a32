#include "offload/aio.h"

#include "base/must.h"
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct aio {
    size_t block_bytes;
    pthread_mutex_t lock;        /* of all below, and of ops until done */
    pthread_cond_t changed;      /* an op was queued, or stop */
    struct aio_op *first, *last; /* ops with bytes not yet in a transfer */
    bool stop;
    int thread_count;
    pthread_t threads[];
};

/* A part of an op, of at most block_bytes. */
struct transfer {
    struct aio_op *op;
    size_t at, bytes; /* within the op: what remains to be moved */
};

static struct transfer take(struct aio *aio)
{
    struct aio_op *op = aio->first;
    size_t left = op->bytes - op->cut;
    size_t bytes = left < aio->block_bytes ? left : aio->block_bytes;
    struct transfer transfer = {.op = op, .at = op->cut, .bytes = bytes};
    op->under_way++;
    op->cut += bytes;
    if (op->cut == op->bytes)
        aio->first = op->next;
    return transfer;
}

/* Returns an errno; transfer->at says where. */
static int move(struct transfer *transfer)
{
    const struct aio_op *op = transfer->op;
    int fd = op->file->fd;
    while (transfer->bytes > 0) {
        char *data = op->data + transfer->at;
        off_t offset = (off_t)(op->offset + transfer->at);
        ssize_t moved = op->is_write ? pwrite(fd, data, transfer->bytes, offset)
                                     : pread(fd, data, transfer->bytes, offset);
        if (moved < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        /* reading past the end, or no space to write */
        if (moved == 0)
            return op->is_write ? ENOSPC : ENODATA;
        if (moved > 0) {
            transfer->at += (size_t)moved;
            transfer->bytes -= (size_t)moved;
        }
    }
    return 0;
}

/* Under the lock. True: its op is complete. */
static bool end(struct aio *aio, const struct transfer *transfer, int error)
{
    struct aio_op *op = transfer->op;
    uint64_t offset = op->offset + transfer->at;
    if (error && (!op->error || offset < op->error_offset)) {
        op->error = error;
        op->error_offset = offset;
    }
    if (error && op->cut < op->bytes) { /* start no further transfers */
        assert(aio->first == op);
        aio->first = op->next;
        op->cut = op->bytes;
    }
    return --op->under_way == 0 && op->cut == op->bytes;
}

static void *run(void *ctx)
{
    struct aio *aio = ctx;
    ZD_LOCKED(&aio->lock);
    for (;;) {
        while (!aio->stop && !aio->first)
            pthread_cond_wait(&aio->changed, &aio->lock);
        if (!aio->first)
            return NULL;
        struct transfer transfer = take(aio);
        pthread_mutex_unlock(&aio->lock);
        int error = move(&transfer);
        pthread_mutex_lock(&aio->lock);
        if (!end(aio, &transfer, error))
            continue;
        pthread_mutex_unlock(&aio->lock);
        if (transfer.op->done)
            transfer.op->done(transfer.op); /* it is the caller's again */
        pthread_mutex_lock(&aio->lock);
    }
}

void aio_submit(struct aio *aio, struct aio_op *op)
{
    assert(op->bytes > 0);
    assert(!op->file->is_direct ||
           ((op->bytes | op->offset | (uintptr_t)op->data) % AIO_ALIGN == 0));
    op->error = 0;
    op->cut = 0;
    op->under_way = 0;
    op->next = NULL;
    ZD_LOCKED(&aio->lock);
    if (aio->first)
        aio->last->next = op;
    else
        aio->first = op;
    aio->last = op;
    pthread_cond_broadcast(&aio->changed);
}

enum zd_status aio_op_status(const struct aio_op *op)
{
    if (!op->error)
        return ZD_OK;
    const char *reason = op->error == ENODATA ? "the file ends before it"
                                              : strerror(op->error);
    zd_fail(ZD_ERR_IO, "E0851", "%s failed at byte %llu: %s",
            op->is_write ? "write" : "read",
            (unsigned long long)op->error_offset, reason);
    return zd_fail_where("%s", op->file->path);
}

enum zd_status aio_create(
        const struct aio_options *options, struct aio **aio_out)
{
    size_t depth = (size_t)options->queue_depth;
    assert(depth > 0 && options->block_bytes > 0);
    struct aio *aio = zd_array(1, sizeof *aio + depth * sizeof *aio->threads);
    aio->block_bytes = options->block_bytes;
    /* transfers of direct files begin and end at aligned bytes */
    if (aio->block_bytes >= AIO_ALIGN)
        aio->block_bytes &= ~(size_t)(AIO_ALIGN - 1);
    pthread_mutex_init(&aio->lock, NULL);
    pthread_cond_init(&aio->changed, NULL);
    int error = 0;
    while (!error && aio->thread_count < options->queue_depth) {
        error = thread_start(
                &aio->threads[aio->thread_count], "zerod-aio", run, aio);
        aio->thread_count += !error;
    }
    if (error) {
        aio_destroy(aio);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0854",
                "the system refused a thread for the NVMe tier: %s",
                strerror(error));
    }
    *aio_out = aio;
    return ZD_OK;
}

void aio_destroy(struct aio *aio)
{
    if (!aio)
        return;
    pthread_mutex_lock(&aio->lock);
    aio->stop = true;
    pthread_cond_broadcast(&aio->changed);
    pthread_mutex_unlock(&aio->lock);
    for (int i = 0; i < aio->thread_count; i++)
        pthread_join(aio->threads[i], NULL);
    pthread_cond_destroy(&aio->changed);
    pthread_mutex_destroy(&aio->lock);
    free(aio);
}
