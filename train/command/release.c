#include "train/command/release.h"

#include "base/device/device_memory.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "kernels/matmul/scratch.h"
#include "train/plan/fit.h"
#include "train/trainer/trainer.h"

#include <errno.h>
#include <linux/magic.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static void path_of(const struct trainer *trainer, char path[PATH_MAX])
{
    char name[64];
    snprintf(
            name, sizeof name, RELEASED_PREFIX "%05d",
            comm_rank(trainer->comm));
    fs_join(path, PATH_MAX, trainer->job->job.output_dir, name);
}

/* Nothing copies or updates any more. */
static enum zd_status come_to_rest(struct trainer *trainer)
{
    ZD_TRY(trainer_save_settle(trainer));
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
    void *all;
    ZD_TRY(comm_gather_new(trainer->comm, &mine, sizeof mine, &all));
    const uint64_t *each = all;
    *sum_out = 0;
    for (int r = 0; r < comm_size(trainer->comm); r++)
        *sum_out += each[r];
    free(all);
    return ZD_OK;
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

/* This rank's share of what the host's memory has left. */
static uint64_t host_room(const struct trainer *trainer)
{
    return device_available_memory() / (uint64_t)comm_local_size(trainer->comm);
}

/* The CPU device lies in the host's memory itself. "auto" leaves as much of it
 * to others as it takes. */
static bool goes_to_host(
        const struct trainer *trainer, const struct arena_image *image)
{
    enum release_to to = trainer->job->control.release_to;
    if (device_backend() != DEVICE_CUDA || to == RELEASE_DISK || !image->bytes)
        return false;
    return to == RELEASE_HOST || host_room(trainer) >= 2 * image->bytes;
}

static enum zd_status check_host(
        const struct trainer *trainer, const struct arena_image *image)
{
    uint64_t room = host_room(trainer);
    if (room >= image->bytes)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_MEMORY, "E1024",
            "no room in the memory of %s for what rank %d holds on its GPU: it "
            "takes %llu bytes, %llu are there for it",
            comm_host(trainer->comm), comm_rank(trainer->comm),
            (unsigned long long)image->bytes, (unsigned long long)room);
    zd_fail_help("control.release_to = \"disk\", or pause without release");
    return ZD_ERR_MEMORY;
}

static enum zd_status write_file(
        struct trainer *trainer, struct arena_image *image)
{
    char path[PATH_MAX];
    path_of(trainer, path);
    return arena_image_write(&trainer->arena, image, path);
}

static void remove_file(const struct trainer *trainer)
{
    char path[PATH_MAX];
    path_of(trainer, path);
    unlink(path);
}

/* On all ranks together, so that either all have their image or none. */
static enum zd_status put_away(
        struct trainer *trainer, struct arena_image *image)
{
    uint64_t need;
    enum zd_status status =
            arena_image_scan(&trainer->arena, ARENA_DEVICE, image);
    ZD_TRY(comm_agree(trainer->comm, status));
    bool to_host = goes_to_host(trainer, image);
    ZD_TRY(sum_over_ranks(trainer, to_host ? 0 : image->bytes, &need));
    if (trainer_is_first(trainer) && need > 0)
        status = check_room(trainer, need);
    if (status == ZD_OK && to_host)
        status = check_host(trainer, image);
    ZD_TRY(comm_agree(trainer->comm, status));
    status = to_host ? arena_image_hold(&trainer->arena, image)
                     : write_file(trainer, image);
    enum zd_status agreed = comm_agree(trainer->comm, status);
    if (agreed != ZD_OK && status == ZD_OK && !to_host)
        remove_file(trainer);
    return agreed;
}

static void forget(struct trainer *trainer)
{
    if (!trainer->released->held)
        remove_file(trainer);
    arena_image_fini(trainer->released);
    free(trainer->released);
    trainer->released = NULL;
}

static enum zd_status bring_back(const struct trainer *trainer)
{
    char path[PATH_MAX];
    const struct arena_image *image = trainer->released;
    if (image->held)
        return arena_image_put_back(&trainer->arena, image);
    path_of(trainer, path);
    return arena_image_read(&trainer->arena, image, path);
}

/* Where the memory is still there it is only filled. */
static enum zd_status retake(struct trainer *trainer)
{
    enum zd_status status = bring_back(trainer);
    status = comm_agree(trainer->comm, status);
    if (status == ZD_OK) {
        comm_set_memory(trainer->comm, &trainer->arena);
        forget(trainer);
        trainer_warm_snapshot(trainer);
        return ZD_OK;
    }
    struct zd_error cause = *zd_error_get();
    arena_give_back(&trainer->arena, ARENA_DEVICE);
    zd_error_set(&cause);
    return status;
}

/* The device's memory, the copy for checkpoints, and what the heap and the
 * kernels keep for later. A library of collectives forgets the addresses first.
 */
static enum zd_status give_back(struct trainer *trainer)
{
    comm_set_memory(trainer->comm, NULL);
    enum zd_status status = arena_give_back(&trainer->arena, ARENA_DEVICE);
    if (trainer->snapshot)
        zero_snapshot_cool(trainer->snapshot);
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
        status = put_away(trainer, &image);
    if (status != ZD_OK) {
        arena_image_fini(&image);
        free(kept);
        return status;
    }
    *kept = image;
    trainer->released = kept;
    if (!kept->held)
        warn_if_in_memory(trainer);
    status = give_back(trainer);
    if (status != ZD_OK) { /* on some ranks it is still there: on all */
        struct zd_error cause = *zd_error_get();
        retake(trainer);
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

/* Bytes that ranks of this host take again, and those that are there. */
struct wanted {
    uint64_t need, have;
};

/* A machine that gave the memory to somebody else would end the process while
 * it reads. The ranks of a host hold much the same. */
static enum zd_status ask_machine(
        const struct trainer *trainer, struct wanted *out)
{
    out->need = (uint64_t)comm_local_size(trainer->comm) *
                trainer->arena.taken_bytes[ARENA_DEVICE];
    out->have = device_available_memory();
    if (out->have == 0) /* not known */
        out->have = UINT64_MAX;
    return ZD_OK;
}

/* The driver would refuse it too, but perhaps to one of two ranks alone. */
static enum zd_status ask_gpu(const struct trainer *trainer, struct wanted *out)
{
    uint64_t used, total = device_facts().total_bytes;
    ZD_TRY(device_used_bytes(&used));
    out->need =
            (uint64_t)trainer->device_sharers *
            (plan_device_bytes(&trainer->plan) - trainer->plan.context_bytes);
    out->have = total > used ? total - used : 0;
    return ZD_OK;
}

static enum zd_status check_memory(const struct trainer *trainer)
{
    struct wanted wanted;
    bool on_gpu = device_backend() == DEVICE_CUDA;
    ZD_TRY(on_gpu ? ask_gpu(trainer, &wanted) : ask_machine(trainer, &wanted));
    if (wanted.have >= wanted.need)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_MEMORY, "E1022",
            "the memory of the run is not there any more on %s%s%s: its ranks "
            "take %llu bytes, %llu are available",
            comm_host(trainer->comm), on_gpu ? ", " : "",
            on_gpu ? device_facts().uuid : "", (unsigned long long)wanted.need,
            (unsigned long long)wanted.have);
    zd_fail_help("end what has taken it, and resume again");
    return ZD_ERR_MEMORY;
}

enum zd_status trainer_retake(struct trainer *trainer)
{
    if (!trainer->released)
        return ZD_OK;
    ZD_TRY(comm_agree(trainer->comm, check_memory(trainer)));
    return retake(trainer);
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
