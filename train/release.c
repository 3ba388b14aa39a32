#include "train/release.h"

#include "base/fs.h"
#include "base/log.h"
#include "kernels/scratch.h"
#include "train/trainer.h"

#include <dirent.h>
#include <errno.h>
#include <linux/magic.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define RELEASED_PREFIX ".released-rank-"

static void path_of(const struct trainer *trainer, char path[PATH_MAX])
{
    char name[64];
    snprintf(
            name, sizeof name, RELEASED_PREFIX "%05d",
            comm_rank(trainer->comm));
    fs_join(path, PATH_MAX, trainer->job->job.output_dir, name);
}

bool trainer_is_released(const struct trainer *trainer)
{
    return trainer->released != NULL;
}

/* Nothing copies or updates any more. */
static enum zd_status come_to_rest(struct trainer *trainer)
{
    enum zd_status status = zero_settle(trainer->zero);
    if (status == ZD_OK && trainer->streams_down)
        status = stream_finish(trainer->streams_down);
    if (status == ZD_OK && trainer->streams_up)
        status = stream_finish(trainer->streams_up);
    return comm_agree(trainer->comm, status);
}

static enum zd_status sum_over_ranks(
        const struct trainer *trainer, uint64_t mine, uint64_t *sum_out)
{
    int size = comm_size(trainer->comm);
    uint64_t *all = malloc((size_t)size * sizeof *all);
    if (!all)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status =
            comm_gather_all(trainer->comm, &mine, sizeof mine, all);
    *sum_out = 0;
    for (int r = 0; status == ZD_OK && r < size; r++)
        *sum_out += all[r];
    free(all);
    return status;
}

/* All ranks write to one folder. */
static enum zd_status check_room(const struct trainer *trainer, uint64_t need)
{
    uint64_t free_bytes;
    const char *dir = trainer->job->job.output_dir;
    ZD_TRY(fs_free_bytes(dir, &free_bytes));
    if (free_bytes >= need + need / 50)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_IO, "E1020",
            "no room in %s for the memory of a released run: it takes %llu "
            "bytes, %llu are free",
            dir, (unsigned long long)need, (unsigned long long)free_bytes);
    zd_fail_help("free some space, or pause without release");
    return ZD_ERR_IO;
}

static void warn_if_in_memory(const struct trainer *trainer)
{
    struct statfs info;
    const char *dir = trainer->job->job.output_dir;
    if (trainer_is_first(trainer) && statfs(dir, &info) == 0 &&
        info.f_type == TMPFS_MAGIC)
        zd_log_warning(
                "%s is in memory itself (tmpfs): what the ranks release goes "
                "there",
                dir);
}

/* On all ranks together, so that either all have a file or none. */
static enum zd_status write_files(
        struct trainer *trainer, struct arena_image *image)
{
    char path[PATH_MAX];
    uint64_t need;
    enum zd_status status =
            arena_image_scan(&trainer->arena, ARENA_DEVICE, image);
    ZD_TRY(comm_agree(trainer->comm, status));
    ZD_TRY(sum_over_ranks(trainer, image->bytes, &need));
    if (trainer_is_first(trainer))
        status = check_room(trainer, need);
    ZD_TRY(comm_agree(trainer->comm, status));
    path_of(trainer, path);
    status = arena_image_write(&trainer->arena, image, path);
    enum zd_status agreed = comm_agree(trainer->comm, status);
    if (agreed != ZD_OK && status == ZD_OK)
        unlink(path);
    return agreed;
}

/* The device's memory, and what the heap and the kernels keep for later. A
 * library of collectives forgets the addresses first. */
static enum zd_status give_back(struct trainer *trainer)
{
    comm_set_memory(trainer->comm, NULL);
    enum zd_status status = arena_give_back(&trainer->arena, ARENA_DEVICE);
    scratch_trim();
    malloc_trim(0);
    return comm_agree(trainer->comm, status);
}

enum zd_status trainer_release(struct trainer *trainer, uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    struct arena_image image = {0};
    if (trainer->released)
        goto done;
    ZD_TRY(come_to_rest(trainer));
    struct arena_image *kept = malloc(sizeof *kept);
    enum zd_status status =
            kept ? ZD_OK : ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    status = comm_agree(trainer->comm, status);
    if (status == ZD_OK)
        status = write_files(trainer, &image);
    if (status != ZD_OK) {
        arena_image_fini(&image);
        free(kept);
        return status;
    }
    *kept = image;
    trainer->released = kept;
    warn_if_in_memory(trainer);
    status = give_back(trainer);
    if (status != ZD_OK) { /* on some ranks it is still there: on all */
        struct zd_error cause = *zd_error_get();
        trainer_retake(trainer);
        zd_error_set(&cause);
        return status;
    }
    ZD_TRY(sum_over_ranks(
            trainer, trainer->arena.taken_bytes[ARENA_DEVICE], &bytes));
done:
    if (bytes_out)
        *bytes_out = bytes;
    return ZD_OK;
}

/* A machine that gave the memory to somebody else would end the process while
 * it reads. The ranks of a host hold much the same. */
static enum zd_status check_memory(const struct trainer *trainer)
{
    uint64_t need = (uint64_t)comm_local_size(trainer->comm) *
                    trainer->arena.taken_bytes[ARENA_DEVICE];
    uint64_t have = device_available_memory();
    if (device_backend() == DEVICE_CUDA) /* its driver says so itself */
        return ZD_OK;
    if (have == 0 || have >= need)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_MEMORY, "E1022",
            "the memory of the run is not there any more on %s: its ranks take "
            "%llu bytes, %llu are available",
            comm_host(trainer->comm), (unsigned long long)need,
            (unsigned long long)have);
    zd_fail_help("end what has taken it, and resume again");
    return ZD_ERR_MEMORY;
}

static void forget(struct trainer *trainer)
{
    char path[PATH_MAX];
    path_of(trainer, path);
    unlink(path);
    arena_image_fini(trainer->released);
    free(trainer->released);
    trainer->released = NULL;
}

enum zd_status trainer_retake(struct trainer *trainer)
{
    char path[PATH_MAX];
    if (!trainer->released)
        return ZD_OK;
    path_of(trainer, path);
    ZD_TRY(comm_agree(trainer->comm, check_memory(trainer)));
    enum zd_status status =
            arena_image_read(&trainer->arena, trainer->released, path);
    status = comm_agree(trainer->comm, status);
    if (status == ZD_OK) {
        comm_set_memory(trainer->comm, &trainer->arena);
        forget(trainer);
        return ZD_OK;
    }
    struct zd_error cause = *zd_error_get();
    arena_give_back(&trainer->arena, ARENA_DEVICE);
    zd_error_set(&cause);
    return status;
}

enum zd_status release_again(struct trainer *trainer)
{
    enum zd_status status = trainer_release(trainer, NULL);
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    if (zd_error_get()->status != ZD_OK)
        zd_log_warning(
                "the run stays paused and keeps its memory: %s",
                zd_error_get()->what);
    zd_error_clear();
    return ZD_OK;
}

void trainer_release_fini(struct trainer *trainer)
{
    if (trainer->released)
        forget(trainer);
}

enum zd_status release_sweep(const char *output_dir)
{
    char path[PATH_MAX];
    struct dirent *entry;
    enum zd_status status = ZD_OK;
    DIR *dir = opendir(output_dir);
    if (!dir)
        return ZD_FAIL(
                ZD_ERR_IO, "E0706", "cannot read %s: %s", output_dir,
                strerror(errno));
    while (status == ZD_OK && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, RELEASED_PREFIX,
                    sizeof RELEASED_PREFIX - 1) != 0)
            continue;
        fs_join(path, sizeof path, output_dir, entry->d_name);
        if (unlink(path) != 0)
            status =
                    ZD_FAIL(ZD_ERR_IO, "E0709", "cannot remove %s: %s", path,
                            strerror(errno));
    }
    closedir(dir);
    return status;
}
