/* aio_uring.c - the ring. One thread owns it: it takes transfers from the
 * queue, submits them, and waits in the kernel for the first that ends or for
 * the eventfd by which aio_submit wakes it. */
#include "offload/aio_private.h"
#include "zd_config.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#if ZD_HAVE_LIBURING

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>

struct aio_uring {
    struct io_uring ring;
    int wake_fd;
    bool fails; /* the kernel takes no submissions any more */
    int entry_count, free_count;
    int *free_entries;
    struct aio_transfer entries[]; /* under way in the ring, or free */
};

/* --- setting up ----------------------------------------------------------- */

static int init_ring(int entries, struct io_uring *ring)
{
    int error = -io_uring_queue_init((unsigned)entries, ring, 0);
    if (error)
        return error;
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                 io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    if (reads)
        return 0;
    io_uring_queue_exit(ring);
    return ENOSYS; /* older than Linux 5.6 */
}

int aio_uring_try(void)
{
    struct io_uring ring;
    int error = init_ring(2, &ring);
    if (!error)
        io_uring_queue_exit(&ring);
    return error;
}

static void ask_for_wake(struct aio_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    io_uring_prep_poll_add(sqe, uring->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, NULL);
}

int aio_uring_create(int queue_depth, struct aio_uring **uring_out)
{
    int error;
    struct aio_uring *uring = calloc(
            1, sizeof *uring + (size_t)queue_depth * sizeof *uring->entries);
    if (!uring)
        return ENOMEM;
    uring->free_entries = malloc((size_t)queue_depth * sizeof(int));
    if (!uring->free_entries) {
        error = ENOMEM;
        goto err_free;
    }
    for (int i = 0; i < queue_depth; i++)
        uring->free_entries[i] = i;
    uring->entry_count = uring->free_count = queue_depth;
    uring->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (uring->wake_fd < 0) {
        error = errno;
        goto err_entries;
    }
    error = init_ring(queue_depth + 1, &uring->ring);
    if (error)
        goto err_wake;
    ask_for_wake(uring);
    *uring_out = uring;
    return 0;

err_wake:
    close(uring->wake_fd);
err_entries:
    free(uring->free_entries);
err_free:
    free(uring);
    return error;
}

void aio_uring_destroy(struct aio_uring *uring)
{
    if (!uring)
        return;
    io_uring_queue_exit(&uring->ring);
    close(uring->wake_fd);
    free(uring->free_entries);
    free(uring);
}

int aio_uring_register(
        struct aio_uring *uring, const struct iovec *buffers, int count)
{
    return -io_uring_register_buffers(&uring->ring, buffers, (unsigned)count);
}

void aio_uring_wake(struct aio_uring *uring)
{
    eventfd_write(uring->wake_fd, 1);
}

/* --- its thread ----------------------------------------------------------- */

static void prepare(struct aio_uring *uring, struct aio_transfer *transfer)
{
    const struct aio_op *op = transfer->op;
    int fd = op->file->fd;
    void *data = op->data + transfer->at;
    unsigned bytes = (unsigned)transfer->bytes;
    uint64_t offset = op->offset + transfer->at;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (op->buffer > 0 && op->is_write)
        io_uring_prep_write_fixed(sqe, fd, data, bytes, offset, op->buffer - 1);
    else if (op->buffer > 0)
        io_uring_prep_read_fixed(sqe, fd, data, bytes, offset, op->buffer - 1);
    else if (op->is_write)
        io_uring_prep_write(sqe, fd, data, bytes, offset);
    else
        io_uring_prep_read(sqe, fd, data, bytes, offset);
    io_uring_sqe_set_data(sqe, transfer);
}

/* Returns an errno when the ring is of no use any more. */
static int submit(struct aio_uring *uring, unsigned wait_for)
{
    for (;;) {
        int submitted = io_uring_submit_and_wait(&uring->ring, wait_for);
        if (submitted >= 0)
            return 0;
        if (submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
            return -submitted;
        /* full of what has ended: reap first */
        if (submitted == -EBUSY && io_uring_cq_ready(&uring->ring))
            return 0;
    }
}

static void free_entry(struct aio_uring *uring, struct aio_transfer *transfer)
{
    transfer->op = NULL;
    uring->free_entries[uring->free_count++] = (int)(transfer - uring->entries);
}

/* Free completed entries, or resubmit the rest of a short transfer. */
static void reap(struct aio *aio)
{
    struct aio_uring *uring = aio->uring;
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct aio_transfer *transfer = io_uring_cqe_get_data(cqe);
        long result = cqe->res;
        io_uring_cqe_seen(&uring->ring, cqe);
        if (!transfer) {
            eventfd_t count;
            eventfd_read(uring->wake_fd, &count);
            ask_for_wake(uring);
        } else if (aio_goes_on(aio, transfer, result)) {
            prepare(uring, transfer);
        } else {
            free_entry(uring, transfer);
        }
    }
}

/* Fail all transfers in flight, so that no one waits forever. */
static void fail_all(struct aio *aio, int error)
{
    struct aio_uring *uring = aio->uring;
    uring->fails = true;
    for (int i = 0; i < uring->entry_count; i++) {
        struct aio_transfer *transfer = &uring->entries[i];
        if (transfer->op) {
            aio_goes_on(aio, transfer, -error);
            free_entry(uring, transfer);
        }
    }
}

/* Entries of the transfers that may begin now. Waits while there is nothing to
 * do at all; false: stop. */
static bool take_some(struct aio *aio, int *first, int *count)
{
    struct aio_uring *uring = aio->uring;
    pthread_mutex_lock(&aio->lock);
    while (!aio->stop && !aio_can_take(aio) && aio->under_way == 0)
        pthread_cond_wait(&aio->changed, &aio->lock);
    bool goes_on = !aio->stop || aio->under_way > 0;
    *first = uring->free_count;
    while (aio_can_take(aio)) {
        int entry = uring->free_entries[--uring->free_count];
        uring->entries[entry] = aio_take(aio);
    }
    *count = *first - uring->free_count;
    *first = uring->free_count;
    aio->ring_waits = goes_on;
    pthread_mutex_unlock(&aio->lock);
    return goes_on;
}

void *aio_uring_run(void *arg)
{
    struct aio *aio = arg;
    struct aio_uring *uring = aio->uring;
    int first, count, error;
    while (take_some(aio, &first, &count)) {
        error = uring->fails ? EIO : 0;
        /* the entries taken lie after those still free, last taken first */
        for (int i = count - 1; i >= 0 && !error; i--) {
            prepare(uring, &uring->entries[uring->free_entries[first + i]]);
            if (aio->options.single_submit)
                error = submit(uring, 0);
        }
        if (!error)
            error = submit(uring, 1);
        pthread_mutex_lock(&aio->lock);
        aio->ring_waits = false;
        pthread_mutex_unlock(&aio->lock);
        if (error)
            fail_all(aio, error);
        else
            reap(aio);
    }
    return NULL;
}

#else

int aio_uring_try(void)
{
    return ENOTSUP;
}

int aio_uring_create(int queue_depth, struct aio_uring **uring_out)
{
    return ENOTSUP;
}

void aio_uring_destroy(struct aio_uring *uring)
{
}

int aio_uring_register(
        struct aio_uring *uring, const struct iovec *buffers, int count)
{
    return ENOTSUP;
}

void *aio_uring_run(void *aio)
{
    return NULL;
}

void aio_uring_wake(struct aio_uring *uring)
{
}

#endif
