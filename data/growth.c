#include "data/growth.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/progress.h"
#include "base/threads.h"
#include "data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct growth {
    char path[PATH_MAX]; /* temporary, until it is whole */
    int fd;              /* to read */
    atomic_bool stop;    /* set by the owner, read by the thread and waits */

    /* of the rank that writes; the thread's until it is joined */
    pthread_t thread;
    bool has_thread;
    struct cache_writer *writer;
    struct cache_content content;
    void (*end)(void *ctx);
};

/* --- the writer's thread --- */

static void *grow(void *argument)
{
    struct growth *growth = argument;
    enum zd_status status =
            growth->content.write(growth->content.ctx, growth->writer);
    if (status == ZD_OK)
        status = cache_writer_finish(growth->writer, 0);
    else
        cache_writer_fail(growth->writer, zd_error_get());
    if (status != ZD_OK && status != ZD_ERR_STOPPED) {
        zd_log_warning(
                "tokenizing has failed; training ends where it needs more: %s%s"
                "%s",
                zd_error_get()->where, zd_error_get()->where[0] ? ": " : "",
                zd_error_get()->what);
        if (growth->fd >= 0 && status == ZD_ERR_IO)
            atomic_store(&growth->stop, true); /* no one will write a state */
    }
    growth->end(growth->content.ctx);
    zd_error_clear();
    return NULL;
}

static enum zd_status open_to_read(struct growth *growth)
{
    growth->fd = open(growth->path, O_RDONLY | O_CLOEXEC);
    return growth->fd >= 0 ? ZD_OK
                           : ZD_FAIL(ZD_ERR_IO, "E0446", "cannot read %s: %s",
                                     growth->path, strerror(errno));
}

/* The caller ends it whatever happens. */
static enum zd_status find(
        const struct data_options *options, const char *key, const char *name,
        char folder[PATH_MAX], struct growth *growth)
{
    char path[PATH_MAX];
    growth->fd = -1;
    ZD_TRY(token_cache_folder(options->cache_dir, folder));
    cache_path(path, folder, key);
    return cache_temporary_path(growth->path, path, name);
}

static enum zd_status begin(
        struct growth *growth, const char *folder, const char *name)
{
    ZD_TRY(cache_writer_create(
            folder, growth->content.key, name, &growth->stop, &growth->writer));
    enum zd_status status = open_to_read(growth);
    if (status == ZD_OK &&
        thread_start(&growth->thread, "zerod-grow", grow, growth) != 0)
        status = ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "cannot start a thread to tokenize");
    growth->has_thread = status == ZD_OK;
    if (!growth->has_thread)
        cache_writer_abandon(growth->writer);
    return status;
}

enum zd_status growth_begin(
        const struct data_options *options, const struct cache_content *content,
        const char *name, void (*end)(void *ctx), struct growth **out)
{
    enum { LARGE = 2 << 20 };
    char folder[PATH_MAX];
    struct growth *growth = zd_array(1, sizeof *growth);
    growth->content = *content;
    growth->end = end;
    /* What a thread frees of a long record goes back at once: glibc would keep
     * it for that thread, while the plan counts one such record of all. */
    mallopt(M_MMAP_THRESHOLD, LARGE);
    enum zd_status status = find(options, content->key, name, folder, growth);
    if (status == ZD_OK)
        status = begin(growth, folder, name);
    *out = growth;
    if (status == ZD_OK)
        return ZD_OK;
    end(content->ctx);
    growth_end(growth);
    *out = NULL;
    return status;
}

enum zd_status growth_attach(
        const struct data_options *options, const char *key, const char *name,
        struct growth **out)
{
    char folder[PATH_MAX];
    struct growth *growth = zd_array(1, sizeof *growth);
    enum zd_status status = find(options, key, name, folder, growth);
    if (status == ZD_OK && fs_exists(growth->path))
        status = open_to_read(growth);
    *out = growth->fd >= 0 ? growth : NULL;
    if (growth->fd < 0)
        growth_end(growth);
    return status;
}

/* --- readers --- */

static enum zd_status read_error(
        const struct growth *growth, uint64_t word_count)
{
    struct zd_error error;
    ZD_TRY(fs_pread(
            growth->fd, growth->path, &error, sizeof error,
            sizeof(struct cache_header) + word_count * sizeof(uint32_t)));
    zd_error_set(&error);
    return error.status;
}

static enum zd_status look(
        const struct growth *growth, uint64_t *count_out,
        struct cache_header *header)
{
    struct stat info;
    /* the size first: what follows the words comes after the state */
    if (fstat(growth->fd, &info) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0707", "cannot read %s: %s", growth->path,
                strerror(errno));
    *count_out = 0;
    memset(header, 0, sizeof *header);
    if ((size_t)info.st_size < sizeof *header)
        return ZD_OK;
    ZD_TRY(fs_pread(growth->fd, growth->path, header, sizeof *header, 0));
    *count_out = header->magic[0] || header->reserved
                         ? header->word_count
                         : ((uint64_t)info.st_size - sizeof *header) /
                                   sizeof(uint32_t);
    return ZD_OK;
}

enum zd_status growth_wait(
        struct growth *growth, uint64_t words, const atomic_bool *stop,
        struct progress *progress, uint64_t *count_out, bool *is_whole_out)
{
    enum { TELL_MS = 10000, NAP_MS = 5 };
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    struct cache_header header;
    uint64_t before = 0;
    for (int waited = 0;; waited += NAP_MS) {
        ZD_TRY(look(growth, count_out, &header));
        if (*count_out > before)
            atomic_fetch_add(&progress->completed, 1);
        before = *count_out;
        bool is_stopped =
                header.unit_count > 0 || header.reserved == CACHE_STOPPED;
        *is_whole_out = !is_stopped &&
                        (header.magic[0] || header.reserved == CACHE_WHOLE);
        if (*is_whole_out || *count_out >= words)
            return ZD_OK;
        if (header.reserved == CACHE_FAILED)
            return read_error(growth, header.word_count);
        if (atomic_load(stop) || atomic_load(&growth->stop) || is_stopped)
            return ZD_FAIL(ZD_ERR_STOPPED, "E0446", "tokenizing was stopped");
        if (waited > 0 && waited % TELL_MS == 0)
            zd_log_info(
                    "waiting for data: %.1f of %.1f million tokens",
                    (double)*count_out / 1e6, (double)words / 1e6);
        nanosleep(&nap, NULL);
    }
}

enum zd_status growth_read(
        struct growth *growth, uint64_t at, size_t count, uint32_t *words)
{
    return fs_pread(
            growth->fd, growth->path, words, count * sizeof *words,
            sizeof(struct cache_header) + at * sizeof *words);
}

void growth_end(struct growth *growth)
{
    if (!growth)
        return;
    atomic_store(&growth->stop, true);
    if (growth->has_thread)
        pthread_join(growth->thread, NULL);
    if (growth->fd >= 0)
        close(growth->fd);
    free(growth);
}
