#include "base/memory/arena_image.h"

#include "base/device/device_memory.h"
#include "base/file/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RUN_MAX = 64 }; /* blocks of one read or write: 4 MiB */

static bool is_kept(const struct arena_image *image, size_t block)
{
    return image->kept[block / 64] >> (block % 64) & 1;
}

/* The last block may be short. */
static size_t block_bytes(const struct arena *arena, int memory, size_t block)
{
    size_t rest = arena->taken_bytes[memory] - block * ARENA_IMAGE_BLOCK;
    return rest < ARENA_IMAGE_BLOCK ? rest : ARENA_IMAGE_BLOCK;
}

static char *block_at(const struct arena *arena, int memory, size_t block)
{
    return (char *)arena->base[memory] + block * ARENA_IMAGE_BLOCK;
}

/* What memory the host cannot touch passes through; NULL: it can. */
struct window {
    char *pinned;
};

enum { WINDOW_BYTES = RUN_MAX * ARENA_IMAGE_BLOCK };

static enum zd_status window_open(
        struct window *window, enum arena_memory memory)
{
    void *pinned = NULL;
    if (memory == ARENA_DEVICE && device_backend() == DEVICE_CUDA)
        ZD_TRY(device_take_pinned(WINDOW_BYTES, &pinned));
    window->pinned = pinned;
    return ZD_OK;
}

static void window_close(struct window *window)
{
    device_give_pinned(window->pinned, WINDOW_BYTES);
}

/* `bytes` of the memory, WINDOW_BYTES at most, where the host can read them.
 */
static enum zd_status window_view(
        const struct window *window, const char *data, size_t bytes,
        const char **view_out)
{
    *view_out = window->pinned ? window->pinned : data;
    if (!window->pinned)
        return ZD_OK;
    return device_read(window->pinned, data, bytes);
}

static bool is_clear(const char *data, size_t bytes)
{
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

/* Does all of the block lie in one span whose contents are of no use? */
static bool is_scratch(
        const struct arena *arena, enum arena_memory memory, size_t block)
{
    size_t begin = block * ARENA_IMAGE_BLOCK;
    size_t end = begin + block_bytes(arena, memory, block);
    for (int i = 0; i < arena->plan->span_count; i++) {
        const struct arena_span *span = &arena->plan->spans[i];
        if (span->memory == memory && span->kind == SPAN_ACTIVATIONS &&
            span->offset <= begin && end <= span->offset + span->bytes)
            return true;
    }
    return false;
}

static enum zd_status scan_run(
        const struct arena *arena, struct arena_image *image, size_t first,
        const struct window *window)
{
    enum arena_memory memory = image->memory;
    size_t end = first + RUN_MAX, bytes = 0;
    const char *data;
    if (end > image->block_count)
        end = image->block_count;
    for (size_t b = first; b < end; b++)
        bytes += block_bytes(arena, memory, b);
    ZD_TRY(window_view(window, block_at(arena, memory, first), bytes, &data));
    for (size_t b = first; b < end; b++, data += ARENA_IMAGE_BLOCK) {
        size_t length = block_bytes(arena, memory, b);
        if (is_scratch(arena, memory, b) || is_clear(data, length))
            continue;
        image->kept[b / 64] |= (uint64_t)1 << (b % 64);
        image->bytes += length;
    }
    return ZD_OK;
}

enum zd_status arena_image_scan(
        const struct arena *arena, enum arena_memory memory,
        struct arena_image *image)
{
    size_t blocks = (arena->taken_bytes[memory] + ARENA_IMAGE_BLOCK - 1) /
                    ARENA_IMAGE_BLOCK;
    *image = (struct arena_image){
            .memory = memory,
            .block_count = blocks,
            .kept = calloc(blocks / 64 + 1, sizeof *image->kept)};
    if (!image->kept)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory for an arena's image");
    struct window window;
    enum zd_status status = window_open(&window, memory);
    if (status != ZD_OK) {
        arena_image_fini(image);
        return status;
    }
    for (size_t b = 0; status == ZD_OK && b < blocks; b += RUN_MAX)
        status = scan_run(arena, image, b, &window);
    window_close(&window);
    if (status != ZD_OK)
        arena_image_fini(image);
    return status;
}

void arena_image_fini(struct arena_image *image)
{
    if (image->held)
        munmap(image->held, image->bytes);
    free(image->kept);
    memset(image, 0, sizeof *image);
}

/* The next kept blocks from *block on that lie side by side; 0: no more. */
static size_t next_run(
        const struct arena *arena, const struct arena_image *image,
        size_t *block, char **data_out)
{
    size_t at = *block, bytes = 0;
    while (at < image->block_count && !is_kept(image, at))
        at++;
    if (at == image->block_count)
        return 0;
    *data_out = block_at(arena, image->memory, at);
    for (int n = 0; n < RUN_MAX && at < image->block_count; n++, at++) {
        if (!is_kept(image, at))
            break;
        bytes += block_bytes(arena, image->memory, at);
    }
    *block = at;
    return bytes;
}

/* On the disk, so that an error of it is known while the memory still is; and
 * then of no use in the page cache, which is the memory to be given back. */
static enum zd_status put_away(int fd, const char *path)
{
    if (fdatasync(fd) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0707", "cannot write %s: %s", path,
                strerror(errno));
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return ZD_OK;
}

static enum zd_status write_blocks(
        const struct arena *arena, const struct arena_image *image, int fd,
        const char *path, const struct window *window, struct hasher *hasher)
{
    char *data;
    const char *view;
    size_t block = 0, bytes;
    while ((bytes = next_run(arena, image, &block, &data)) > 0) {
        ZD_TRY(window_view(window, data, bytes, &view));
        hasher_update(hasher, view, bytes);
        ZD_TRY(fs_write(fd, path, view, bytes));
    }
    return put_away(fd, path);
}

enum zd_status arena_image_write(
        const struct arena *arena, struct arena_image *image, const char *path)
{
    struct hasher *hasher = hasher_create();
    if (!hasher)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory for an arena's image");
    int fd = open(
            path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    enum zd_status status = ZD_OK;
    if (fd < 0) {
        status =
                ZD_FAIL(ZD_ERR_CREATE, "E0708", "cannot create %s: %s", path,
                        strerror(errno));
        goto err_hasher;
    }
    struct window window;
    status = window_open(&window, image->memory);
    if (status == ZD_OK) {
        status = write_blocks(arena, image, fd, path, &window, hasher);
        window_close(&window);
    }
    close(fd);
    if (status != ZD_OK)
        unlink(path);
err_hasher:
    hasher_finish(hasher, image->digest);
    hasher_destroy(hasher);
    return status;
}

static enum zd_status read_blocks(
        const struct arena *arena, const struct arena_image *image, int fd,
        const char *path, const struct window *window, struct hasher *hasher)
{
    char *data;
    size_t block = 0, bytes;
    uint64_t offset = 0;
    while ((bytes = next_run(arena, image, &block, &data)) > 0) {
        char *here = window->pinned ? window->pinned : data;
        ZD_TRY(fs_pread(fd, path, here, bytes, offset));
        hasher_update(hasher, here, bytes);
        if (window->pinned)
            ZD_TRY(device_write(data, here, bytes));
        offset += bytes;
    }
    return device_finish();
}

enum zd_status arena_image_read(
        const struct arena *arena, const struct arena_image *image,
        const char *path)
{
    int fd;
    char digest[HASH_HEX];
    struct hasher *hasher = hasher_create();
    if (!hasher)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "out of memory for an arena's image");
    struct window window;
    enum zd_status status = fs_open_read(path, &fd, NULL);
    if (status != ZD_OK)
        goto err_hasher;
    status = arena_take_again(arena, image->memory);
    if (status == ZD_OK)
        status = window_open(&window, image->memory);
    if (status == ZD_OK) {
        status = read_blocks(arena, image, fd, path, &window, hasher);
        window_close(&window);
    }
    close(fd);
err_hasher:
    hasher_finish(hasher, digest);
    hasher_destroy(hasher);
    if (status == ZD_OK && strcmp(digest, image->digest) != 0)
        status =
                ZD_FAIL(ZD_ERR_DATA, "E1021",
                        "%s is not what was written there: it holds the "
                        "memory of a paused rank",
                        path);
    return status;
}

/* --- in the host's memory -------------------------------------------------
 */

static enum zd_status hold_blocks(
        const struct arena *arena, const struct arena_image *image,
        const struct window *window)
{
    char *data, *to = image->held;
    const char *view;
    size_t block = 0, bytes;
    while ((bytes = next_run(arena, image, &block, &data)) > 0) {
        ZD_TRY(window_view(window, data, bytes, &view));
        memcpy(to, view, bytes);
        to += bytes;
    }
    return ZD_OK;
}

enum zd_status arena_image_hold(
        const struct arena *arena, struct arena_image *image)
{
    struct window window;
    if (!image->bytes)
        return ZD_OK;
    void *held =
            mmap(NULL, image->bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (held == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused %llu bytes of host memory: %s",
                (unsigned long long)image->bytes, strerror(errno));
    image->held = held;
    enum zd_status status = window_open(&window, image->memory);
    if (status == ZD_OK) {
        status = hold_blocks(arena, image, &window);
        window_close(&window);
    }
    return status;
}

enum zd_status arena_image_put_back(
        const struct arena *arena, const struct arena_image *image)
{
    char *data;
    const char *from = image->held;
    size_t block = 0, bytes;
    ZD_TRY(arena_take_again(arena, image->memory));
    while ((bytes = next_run(arena, image, &block, &data)) > 0) {
        ZD_TRY(device_write(data, from, bytes));
        from += bytes;
    }
    return device_finish();
}
