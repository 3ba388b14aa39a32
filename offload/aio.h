/* aio.h - asynchronous reads and writes of files, by threads.
 *
 *     op = {.file = .., .is_write = .., .data = .., .bytes = .., .offset = ..,
 *           .done = ..};
 *     aio_submit(aio, &op);      queued, returns at once
 *     done(&op)                  in a thread of aio, once all bytes are moved;
 *                                aio_op_status(&op) says how it went
 *
 * An op is cut into transfers of at most block_bytes, in its order; queue_depth
 * threads have one under way each, of all ops together. Ops overtake each
 * other: the caller must not overlap two that touch the same bytes. Short
 * transfers are continued; those that a signal interrupted are repeated. (With
 * transfers of 1 MiB io_uring was no faster: docs/measured.)
 *
 * Memory: ops belong to the caller until done. After creation nothing is
 * allocated. Threads: aio_submit may be called from any, from done() too. */
#pragma once

#include "base/status.h"
#include "offload/options.h"

#include <limits.h>
#include <stddef.h>

enum { AIO_ALIGN = 4096 }; /* of memory, offset and bytes for direct files */

/* An unnamed file of this process: it is unlinked as soon as it is open, so
 * that it disappears with the process, however that ends. */
struct aio_file {
    int fd;
    bool is_direct;      /* O_DIRECT: bypasses the page cache */
    char path[PATH_MAX]; /* its folder and name, for errors */
};

/* Creates dir/name.XXXXXX, a unique name, with `bytes` of reserved space
 * (posix_fallocate) that read as 0. `direct`: use O_DIRECT if a test write
 * shows that the file system allows it. Errors: ZD_ERR_CREATE, ZD_ERR_DENIED,
 * ZD_ERR_IO (no space: needed and free bytes), ZD_ERR_UNFIT (RLIMIT_FSIZE). */
enum zd_status aio_file_create(
        struct aio_file *file, const char *dir, const char *name,
        uint64_t bytes, bool direct);
void aio_file_close(struct aio_file *file);
/* Checks that RLIMIT_FSIZE allows a file of so many bytes; ZD_ERR_UNFIT. */
enum zd_status aio_file_check(uint64_t bytes);

struct aio;
struct aio_op {
    const struct aio_file *file;
    bool is_write;
    char *data;
    size_t bytes; /* > 0 */
    uint64_t offset;
    void (*done)(struct aio_op *op); /* NULL: aio_destroy is waited for */
    void *ctx;                       /* for done */
    /* private */
    int error;             /* errno; ENODATA: the file ends early */
    uint64_t error_offset; /* in the file */
    size_t cut;            /* bytes that are in transfers or done */
    int under_way;         /* transfers */
    struct aio_op *next;
};

/* ZD_ERR_MEMORY: the system refuses a thread. */
enum zd_status aio_create(
        const struct aio_options *options, struct aio **aio_out);
/* Waits for what was submitted. NULL is accepted. */
void aio_destroy(struct aio *aio);
void aio_submit(struct aio *aio, struct aio_op *op);
/* The status of a finished op: ZD_OK, or ZD_ERR_IO with file, offset and
 * reason. */
enum zd_status aio_op_status(const struct aio_op *op);
