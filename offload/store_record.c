#include "offload/store_record.h"

#include "base/file/fs.h"
#include "base/number/sizes.h"
#include "offload/aio.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* workers assumed for offload.threads = auto, so that the plan is the same on
 * every machine */
enum { WORKERS_PLANNED = 4 };

struct record record_of(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align)
{
    size_t count = optim_whole_qblocks(chunk->count);
    struct record record = {
            .lanes = optim_record_of(
                    &request->extents[chunk->extent].layout, count, align)};
    size_t *part = record.part;
    part[1] = size_round_up(
            count * dtype_bytes(offload_master_type(request->optim)), align);
    part[2] = part[1] + record.lanes.lane[OPTIM_V];
    part[3] = part[1] + record.lanes.lane[OPTIM_LANES];
    part[4] = part[3];
    if (offload_params_in_file(request))
        part[4] += size_round_up(count * dtype_bytes(request->dtype), align);
    return record;
}

size_t record_bytes(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align)
{
    return record_of(request, chunk, align).part[RECORD_PARTS];
}

void record_memory(
        const struct offload_request *request, const struct chunk *chunk,
        size_t align, char *data, struct chunk_memory *memory)
{
    struct record record = record_of(request, chunk, align);
    memory->master = data;
    memory->lanes = optim_lanes_in_record(
            &request->extents[chunk->extent].layout, &record.lanes,
            data + record.part[1]);
    if (offload_params_in_file(request))
        memory->param = data + record.part[3];
    if (offload_grads_in_file(request))
        memory->slot = data + record.part[3];
}

/* Bytes of chunk i's record, given the previous chunk's: nearly all of a large
 * job's 100,000 chunks are as long as their neighbor. */
static size_t bytes_after(
        const struct offload_request *request, const struct chunk *chunks,
        int i, size_t align, size_t before)
{
    bool is_alike = i > 0 && chunks[i].extent == chunks[i - 1].extent &&
                    chunks[i].count == chunks[i - 1].count;
    return is_alike ? before : record_bytes(request, &chunks[i], align);
}

uint64_t records_place(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align, uint64_t *offsets)
{
    uint64_t at = 0;
    size_t bytes = 0;
    for (int i = 0; i < chunk_count; i++) {
        if (offsets)
            offsets[i] = at;
        bytes = bytes_after(request, chunks, i, align, bytes);
        at += bytes;
    }
    return at;
}

void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from,
        bool moments, copy_fn *copy)
{
    copy(to->master, from->master,
         chunk->count * dtype_bytes(offload_master_type(request->optim)));
    if (moments)
        optim_lanes_copy(
                &request->extents[chunk->extent].layout, &to->lanes,
                &from->lanes, chunk->count, copy);
}

size_t record_largest(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t align)
{
    size_t largest = 0, bytes = 0;
    for (int i = 0; i < chunk_count; i++) {
        bytes = bytes_after(request, chunks, i, align, bytes);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

int record_ring_count(const struct offload_request *request, int chunk_count)
{
    int threads = request->options->threads;
    int count = 2 * (threads > 0 ? threads : WORKERS_PLANNED) + 2;
    return count < chunk_count ? count : chunk_count;
}

void store_file_measure(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, size_t *ring_bytes_out, size_t *file_bytes_out)
{
    size_t ring_bytes;
    size_t largest = record_largest(request, chunks, chunk_count, AIO_ALIGN);
    size_t count = (size_t)record_ring_count(request, chunk_count);
    if (__builtin_mul_overflow(largest, count, &ring_bytes))
        ring_bytes = SIZE_MAX / 2; /* too large: the arena refuses it */
    /* the span begins at a multiple of ARENA_ALIGN */
    *ring_bytes_out = ring_bytes ? ring_bytes + AIO_ALIGN - ARENA_ALIGN : 0;
    *file_bytes_out =
            records_place(request, chunks, chunk_count, AIO_ALIGN, NULL);
}

/* --- the check before step 1 ---------------------------------------------- */

static enum zd_status fail_folder(const char *folder, int error)
{
    bool is_denied = error == EACCES || error == EPERM || error == EROFS;
    const char *reason = error == ENOENT    ? "there is no such folder"
                         : error == ENOTDIR ? "it is not a folder"
                                            : strerror(error);
    enum zd_status status = error == ENOENT ? ZD_ERR_NO_INPUT
                            : is_denied     ? ZD_ERR_DENIED
                                            : ZD_ERR_CREATE;
    zd_fail(status, "E0656", "offload.nvme_path cannot be used: %s", reason);
    zd_fail_where("%s", folder);
    return zd_fail_help(
            error == ENOENT ? "mkdir -p it, or set offload.nvme_path to a "
                              "folder of this machine"
                            : "set offload.nvme_path to a folder of your own");
}

enum zd_status offload_check_folder(const char *folder)
{
    if (!folder || !*folder) {
        ZD_FAIL(ZD_ERR_CONFIG, "E0655",
                "offload.optimizer = \"nvme\" needs a folder for its file");
        return zd_fail_help("offload.nvme_path = \"/path/on/a/fast/disk\"");
    }
    if (strlen(folder) + NAME_MAX + 2 > PATH_MAX)
        return fail_folder(folder, ENAMETOOLONG);
    if (access(folder, F_OK) != 0)
        return fail_folder(folder, errno);
    if (!fs_is_dir(folder))
        return fail_folder(folder, ENOTDIR);
    if (access(folder, W_OK | X_OK) != 0)
        return fail_folder(folder, errno);
    return ZD_OK;
}

static enum zd_status check_space(
        const char *folder, uint64_t file_bytes, int local_size)
{
    uint64_t free_bytes, needed;
    ZD_TRY(fs_free_bytes(folder, &free_bytes));
    if (!__builtin_mul_overflow(file_bytes, (uint64_t)local_size, &needed) &&
        needed <= free_bytes)
        return ZD_OK;
    const double mib = 1 << 20;
    zd_fail(ZD_ERR_UNFIT, "E0657",
            "offload needs %.1f MiB on disk (%d x %llu bytes), %.1f MiB are "
            "free",
            (double)file_bytes * local_size / mib, local_size,
            (unsigned long long)file_bytes, (double)free_bytes / mib);
    zd_fail_where("%s", folder);
    return zd_fail_help(
            "set offload.nvme_path to a folder on a larger disk; 8-bit states "
            "(adamw_8bit, lion_8bit) take a quarter of fp32 ones");
}

enum zd_status store_file_check(
        const struct offload_options *options, uint64_t file_bytes,
        int local_size)
{
    ZD_TRY(offload_check_folder(options->nvme_path));
    ZD_TRY(aio_file_check(file_bytes));
    return check_space(options->nvme_path, file_bytes, local_size);
}
