#include "offload/aio_private.h"

#include "base/must.h"
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the queue ------------------------------------------------------------ */

bool aio_can_take(const struct aio *aio)
{
    if (!aio->first || aio->under_way >= aio->options.queue_depth)
        return false;
    return aio->options.overlap_events || aio->under_way == 0 ||
           aio->batch_left > 0;
}

struct aio_transfer aio_take(struct aio *aio)
{
    struct aio_op *op = aio->first;
    size_t left = op->bytes - op->cut;
    size_t bytes =
            left < aio->options.block_bytes ? left : aio->options.block_bytes;
    struct aio_transfer transfer = {.op = op, .at = op->cut, .bytes = bytes};
    if (aio->under_way == 0)
        aio->batch_left = aio->options.queue_depth;
    aio->batch_left--;
    aio->under_way++;
    op->under_way++;
    op->cut += bytes;
    if (op->cut == op->bytes)
        aio->first = op->next;
    return transfer;
}

/* An op that failed is cut no further. */
static void drop_rest(struct aio *aio, struct aio_op *op)
{
    if (op->cut < op->bytes) {
        assert(aio->first == op);
        aio->first = op->next;
        op->cut = op->bytes;
    }
}

static void end_transfer(
        struct aio *aio, const struct aio_transfer *transfer, int error)
{
    struct aio_op *op = transfer->op;
    pthread_mutex_lock(&aio->lock);
    uint64_t offset = op->offset + transfer->at;
    if (error && (!op->error || offset < op->error_offset)) {
        op->error = error;
        op->error_offset = offset;
    }
    if (error)
        drop_rest(aio, op);
    op->under_way--;
    aio->under_way--;
    bool is_done = op->under_way == 0 && op->cut == op->bytes;
    if (aio->first && !aio->uring)
        pthread_cond_broadcast(&aio->changed);
    pthread_mutex_unlock(&aio->lock);
    if (is_done)
        op->done(op); /* op is the caller's again */
}

bool aio_goes_on(struct aio *aio, struct aio_transfer *transfer, long result)
{
    if (result == -EINTR || result == -EAGAIN)
        return true;
    if (result > 0 && (size_t)result < transfer->bytes) {
        transfer->at += (size_t)result;
        transfer->bytes -= (size_t)result;
        return true;
    }
    /* 0: a read past the end; a write that moves nothing has no space */
    int error = result > 0               ? 0
                : result < 0             ? (int)-result
                : transfer->op->is_write ? ENOSPC
                                         : ENODATA;
    end_transfer(aio, transfer, error);
    return false;
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
    pthread_mutex_lock(&aio->lock);
    if (aio->first)
        aio->last->next = op;
    else
        aio->first = op;
    aio->last = op;
    bool wake = aio->ring_waits && aio_can_take(aio);
    if (wake)
        aio->ring_waits = false;
    pthread_cond_broadcast(&aio->changed);
    pthread_mutex_unlock(&aio->lock);
    if (wake)
        aio_uring_wake(aio->uring);
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
    zd_fail_where("%s", op->file->path);
    return ZD_ERR_IO;
}

/* --- threads -------------------------------------------------------------- */

static void move(struct aio *aio, struct aio_transfer transfer)
{
    const struct aio_op *op = transfer.op;
    int fd = op->file->fd;
    long result;
    do {
        char *data = op->data + transfer.at;
        off_t offset = (off_t)(op->offset + transfer.at);
        result = op->is_write ? pwrite(fd, data, transfer.bytes, offset)
                              : pread(fd, data, transfer.bytes, offset);
        if (result < 0)
            result = -errno;
    } while (aio_goes_on(aio, &transfer, result));
}

static void *run_thread(void *arg)
{
    struct aio *aio = arg;
    pthread_mutex_lock(&aio->lock);
    for (;;) {
        while (!aio->stop && !aio_can_take(aio))
            pthread_cond_wait(&aio->changed, &aio->lock);
        if (aio->stop)
            break;
        struct aio_transfer transfer = aio_take(aio);
        pthread_mutex_unlock(&aio->lock);
        move(aio, transfer);
        pthread_mutex_lock(&aio->lock);
    }
    pthread_mutex_unlock(&aio->lock);
    return NULL;
}

/* --- creation ------------------------------------------------------------- */

static void stop_threads(struct aio *aio)
{
    pthread_mutex_lock(&aio->lock);
    aio->stop = true;
    bool wake = aio->ring_waits;
    pthread_cond_broadcast(&aio->changed);
    pthread_mutex_unlock(&aio->lock);
    if (wake)
        aio_uring_wake(aio->uring);
    for (int i = 0; i < aio->thread_count; i++)
        pthread_join(aio->threads[i], NULL);
}

static enum zd_status start_threads(struct aio *aio, int count)
{
    int error = 0;
    for (int i = 0; i < count && !error; i++) {
        error = thread_start(
                &aio->threads[i], "zerod-aio",
                aio->uring ? aio_uring_run : run_thread, aio);
        if (!error)
            aio->thread_count++;
    }
    if (!error)
        return ZD_OK;
    stop_threads(aio);
    return ZD_FAIL(
            ZD_ERR_MEMORY, "E0854",
            "the system refused a thread for the NVMe tier: %s",
            strerror(error));
}

static enum zd_status fail_refused(int error)
{
    zd_fail(ZD_ERR_UNFIT, "E0659",
            "[aio] backend = \"io_uring\", but this %s: %s",
            error == ENOTSUP ? "zerod was built without it"
                             : "kernel refuses it",
            strerror(error));
    zd_fail_help(
            "aio.backend = \"threads\"%s",
            error == EPERM
                    ? "\nor allow it: sysctl kernel.io_uring_disabled=0; in a "
                      "container its seccomp profile must let it pass"
                    : "");
    return ZD_ERR_UNFIT;
}

enum zd_status aio_check(const struct aio_options *options)
{
    if (options->backend != AIO_IO_URING)
        return ZD_OK;
    int error = aio_uring_try();
    return error ? fail_refused(error) : ZD_OK;
}

static enum zd_status settle_backend(struct aio *aio)
{
    if (aio->options.backend == AIO_THREADS)
        return ZD_OK;
    int error = aio_uring_create(aio->options.queue_depth, &aio->uring);
    if (error && aio->options.backend == AIO_IO_URING)
        return fail_refused(error);
    aio->refused = error;
    aio->options.backend = error ? AIO_THREADS : AIO_IO_URING;
    return ZD_OK;
}

enum zd_status aio_create(
        const struct aio_options *options, struct aio **aio_out)
{
    int threads = options->intra_op_parallelism;
    enum zd_status status;
    assert(threads > 0 && options->queue_depth > 0 && options->block_bytes > 0);
    struct aio *aio =
            zd_array(1, sizeof *aio + (size_t)threads * sizeof *aio->threads);
    aio->options = *options;
    /* transfers of direct files begin and end at aligned bytes */
    if (aio->options.block_bytes >= AIO_ALIGN)
        aio->options.block_bytes &= ~(uint64_t)(AIO_ALIGN - 1);
    pthread_mutex_init(&aio->lock, NULL);
    pthread_cond_init(&aio->changed, NULL);
    status = settle_backend(aio);
    if (status != ZD_OK)
        goto err_free;
    status = start_threads(aio, aio->uring ? 1 : threads);
    if (status != ZD_OK)
        goto err_uring;
    *aio_out = aio;
    return ZD_OK;

err_uring:
    aio_uring_destroy(aio->uring);
err_free:
    pthread_cond_destroy(&aio->changed);
    pthread_mutex_destroy(&aio->lock);
    free(aio);
    return status;
}

void aio_destroy(struct aio *aio)
{
    if (!aio)
        return;
    assert(!aio->first && aio->under_way == 0);
    stop_threads(aio);
    aio_uring_destroy(aio->uring);
    pthread_cond_destroy(&aio->changed);
    pthread_mutex_destroy(&aio->lock);
    free(aio);
}

enum aio_backend aio_backend_of(const struct aio *aio)
{
    return aio->options.backend;
}

int aio_refused(const struct aio *aio)
{
    return aio->refused;
}

bool aio_register(struct aio *aio, const struct iovec *buffers, int count)
{
    return aio->uring && aio_uring_register(aio->uring, buffers, count) == 0;
}
