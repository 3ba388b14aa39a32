/* checkpoint_save.c - every rank writes its ranges, rank 0 the manifest; the
 * rename of the folder is the commit. */
#include "base/fs.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void checkpoint_name(char *out, size_t out_bytes, int64_t step)
{
    snprintf(out, out_bytes, "checkpoint-%06lld", (long long)step);
}

/* --- this rank's shard ---------------------------------------------------- */

enum part { PART_VALUES, PART_SCALES, PART_BLOCKS };

/* One array of one range of this rank. */
struct piece {
    char name[PARAM_NAME_MAX + 40];
    const char *type; /* as safetensors names it */
    size_t count;     /* values */
    struct zero_range range;
    int lane;
    enum part part;
};

static void add_piece(
        const struct checkpoint_writer *writer, struct piece *pieces,
        int *count, const char *kind, const struct piece *piece)
{
    const struct zero_range *range = &piece->range;
    struct piece *out = &pieces[(*count)++];
    *out = *piece;
    snprintf(
            out->name, sizeof out->name, "%s/%s@%zu", kind,
            writer->plan->table.params[range->id].name, range->begin);
}

static void add_lane(
        const struct checkpoint_writer *writer, struct piece *pieces,
        int *count, const struct zero_range *range, enum optim_lane lane)
{
    static const char *const types[] = {"", "F32", "BF16", "U8", ""};
    const struct param *param = &writer->plan->table.params[range->id];
    enum optim_format format = range->layout.lane[lane];
    struct piece piece = {
            .type = types[format],
            .count = range->count,
            .range = *range,
            .lane = lane};
    if (format == OPTIM_BLOCKS && range->begin == 0) { /* once */
        piece.part = PART_BLOCKS;
        piece.type = "F32";
        piece.count = (size_t)param->blocks.count;
        add_piece(writer, pieces, count, "v_blocks", &piece);
    }
    if (format == OPTIM_NONE || format == OPTIM_BLOCKS)
        return;
    add_piece(writer, pieces, count, lane == OPTIM_M ? "m" : "v", &piece);
    if (format != OPTIM_8BIT)
        return;
    piece.part = PART_SCALES;
    piece.type = "F32";
    piece.count = optim_scale_count(format, range->count);
    add_piece(
            writer, pieces, count, lane == OPTIM_M ? "m_scale" : "v_scale",
            &piece);
}

enum { PIECES_PER_RANGE = 5 };

/* The arrays this rank saves; returns how many. */
static int list_pieces(
        const struct checkpoint_writer *writer, struct piece *pieces)
{
    int count = 0;
    bool moments = !writer->job->checkpoint.save_only_model;
    for (int i = 0; i < zero_range_count(writer->zero, ZERO_SAVES); i++) {
        struct zero_range range = zero_range_at(writer->zero, ZERO_SAVES, i);
        struct piece weights = {
                .type = dtype_safetensors_name(range.weight_type),
                .count = range.count,
                .range = range,
                .lane = ZERO_WEIGHTS};
        add_piece(
                writer, pieces, &count, range.trains ? "master" : "frozen",
                &weights);
        for (int lane = 0; moments && lane < OPTIM_LANES; lane++)
            add_lane(writer, pieces, &count, &range, (enum optim_lane)lane);
    }
    return count;
}

/* Elements that are copied out of zero at a time; a multiple of 256. As many as
 * a chunk of offload has by default, so that one on a disk is read once. */
enum { CHUNK = 1 << 20 };

static enum zd_status write_piece(
        const struct checkpoint_writer *writer, const struct piece *piece,
        void *buffer, struct st_writer *out)
{
    const struct zero_range *range = &piece->range;
    bool scales = piece->part == PART_SCALES;
    if (piece->part == PART_BLOCKS)
        return st_writer_write(
                out, zero_block_v(writer->zero, range->id),
                piece->count * sizeof(float));
    for (size_t done = 0; done < range->count; done += CHUNK) {
        size_t left = range->count - done;
        size_t count = left < CHUNK ? left : CHUNK, bytes;
        if (piece->lane == ZERO_WEIGHTS)
            bytes = count * dtype_bytes(range->weight_type);
        else if (scales)
            bytes = optim_scale_count(OPTIM_8BIT, count) * sizeof(float);
        else
            bytes = optim_lane_bytes(range->layout.lane[piece->lane], count);
        ZD_TRY(zero_range_read(
                writer->zero, range, piece->lane, done, count,
                scales ? NULL : buffer, scales ? buffer : NULL));
        ZD_TRY(st_writer_write(out, buffer, bytes));
    }
    return ZD_OK;
}

static enum zd_status create_file(
        const char *path, const struct piece *pieces, int count,
        struct st_writer **out)
{
    struct st_entry *entries = calloc((size_t)count + 1, sizeof *entries);
    if (!entries)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    for (int i = 0; i < count; i++)
        entries[i] = (struct st_entry){
                .name = pieces[i].name,
                .dtype = pieces[i].type,
                .dims = 1,
                .shape = {(int64_t)pieces[i].count}};
    enum zd_status status = st_writer_create(path, entries, count, NULL, out);
    free(entries);
    return status;
}

static enum zd_status write_pieces(
        const struct checkpoint_writer *writer, const char *path,
        const struct piece *pieces, int count, struct manifest_file *file)
{
    struct st_writer *out = NULL;
    void *buffer = malloc(CHUNK * sizeof(float));
    enum zd_status status;
    if (!buffer)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    status = create_file(path, pieces, count, &out);
    if (status != ZD_OK)
        goto err_buffer;
    for (int i = 0; i < count && status == ZD_OK; i++)
        status = write_piece(
                writer, &pieces[st_writer_order(out, i)], buffer, out);
    if (status == ZD_OK)
        status = st_writer_finish(out, file->digest, &file->bytes);
    else
        st_writer_abandon(out);
err_buffer:
    free(buffer);
    return status;
}

static enum zd_status write_shard(
        const struct checkpoint_writer *writer, const char *dir,
        struct manifest_file *file)
{
    enum zd_status status;
    char path[PATH_MAX];
    size_t most = PIECES_PER_RANGE *
                          (size_t)zero_range_count(writer->zero, ZERO_SAVES) +
                  1;
    struct piece *pieces = calloc(most, sizeof *pieces);

    if (!pieces)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    memset(file, 0, sizeof *file);
    snprintf(
            file->name, sizeof file->name, "shard-%05d-of-%05d.safetensors",
            comm_rank(writer->comm) + 1, comm_size(writer->comm));
    fs_join(path, sizeof path, dir, file->name);
    status = write_pieces(
            writer, path, pieces, list_pieces(writer, pieces), file);
    free(pieces);
    return status;
}

/* Small files that make the folder complete without its model's home. */
static enum zd_status copy_file(
        const char *from_dir, const char *dir, const char *name,
        json_t *manifest)
{
    enum zd_status status;
    char from[PATH_MAX], to[PATH_MAX], *data;
    size_t bytes;
    struct manifest_file file = {0};

    fs_join(from, sizeof from, from_dir, name);
    if (!fs_exists(from))
        return ZD_OK;
    ZD_TRY(fs_read_file(from, (uint64_t)256 << 20, &data, &bytes));
    fs_join(to, sizeof to, dir, name);
    status = fs_write_file(to, data, bytes);
    snprintf(file.name, sizeof file.name, "%s", name);
    file.bytes = bytes;
    hash_bytes(data, bytes, file.digest);
    free(data);
    if (status == ZD_OK)
        manifest_add_file(manifest, &file);
    return status;
}

static enum zd_status write_config(
        const struct checkpoint_writer *writer, const char *dir,
        json_t *manifest)
{
    char path[PATH_MAX];
    struct manifest_file file = {.name = "config.json"};
    if (writer->model_dir) {
        ZD_TRY(copy_file(writer->model_dir, dir, "config.json", manifest));
        return copy_file(
                writer->model_dir, dir, "generation_config.json", manifest);
    }
    fs_join(path, sizeof path, dir, file.name);
    json_t *config = json_copy(writer->plan->config.json);
    if (writer->eos >= 0 &&
        !json_is_integer(json_object_get(config, "eos_token_id")))
        json_object_set_new(config, "eos_token_id", json_integer(writer->eos));
    enum zd_status status = json_write_file(path, config);
    json_decref(config);
    ZD_TRY(status);
    ZD_TRY(hash_file(path, file.digest, &file.bytes));
    manifest_add_file(manifest, &file);
    return ZD_OK;
}

static enum zd_status write_manifest(
        const struct checkpoint_writer *writer, const struct train_state *state,
        const char *dir, const struct manifest_file *shards)
{
    static const char *const tokenizer_files[] = {
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "vocab.json",
            "merges.txt",
            "added_tokens.json",
            "chat_template.jinja"};
    enum zd_status status;
    char path[PATH_MAX];
    json_t *manifest = manifest_build(writer, state);

    if (!manifest)
        return ZD_FAIL(ZD_ERR_BUG, "E0902", "the manifest cannot be built");
    for (int r = 0; r < comm_size(writer->comm); r++)
        manifest_add_file(manifest, &shards[r]);
    status = write_config(writer, dir, manifest);
    for (size_t i = 0; status == ZD_OK && writer->tokenizer_dir &&
                       i < sizeof tokenizer_files / sizeof tokenizer_files[0];
         i++)
        status = copy_file(
                writer->tokenizer_dir, dir, tokenizer_files[i], manifest);
    if (status == ZD_OK)
        status = manifest_seal(manifest);
    fs_join(path, sizeof path, dir, CHECKPOINT_MANIFEST);
    if (status == ZD_OK)
        status = json_write_file(path, manifest);
    json_decref(manifest);
    return status == ZD_OK ? fs_sync_dir(dir) : status;
}

/* Bytes of all ranks' arrays of one tensor. */
static uint64_t tensor_bytes(const struct checkpoint_writer *writer, int id)
{
    const struct zero_plan *plan = &writer->plan->zero;
    const struct param *param = &plan->request.table->params[id];
    enum dtype compute = plan->request.dtype;
    bool none = plan->request.optim.master == OPTIM_MASTER_NONE;
    if (!param->trainable)
        return (plan->frozen_master ? 4 : dtype_bytes(compute)) * param->count;
    uint64_t bytes = (none ? dtype_bytes(compute) : 4) * param->count;
    struct optim_layout layout = zero_layout_of(plan, id);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout.lane[lane];
        if (writer->job->checkpoint.save_only_model)
            continue;
        bytes += optim_lane_bytes(format, param->count) +
                 4 * optim_scale_count(format, param->count);
        if (format == OPTIM_BLOCKS)
            bytes += 4 * (uint64_t)param->blocks.count;
    }
    return bytes;
}

/* Bytes of all ranks' shards, for the free-space check. */
static uint64_t bytes_needed(const struct checkpoint_writer *writer)
{
    const struct param_table *table = &writer->plan->table;
    uint64_t bytes = 0;
    for (int id = 0; id < table->count; id++)
        bytes += tensor_bytes(writer, id);
    return bytes;
}

static enum zd_status begin_dir(
        const struct checkpoint_writer *writer, const char *tmp)
{
    uint64_t free_bytes, need = bytes_needed(writer);
    ZD_TRY(checkpoint_sweep(writer->job->job.output_dir));
    ZD_TRY(fs_free_bytes(writer->job->job.output_dir, &free_bytes));
    if (free_bytes < need + need / 50) {
        ZD_FAIL(ZD_ERR_IO, "E0806",
                "no room for a checkpoint in %s: it takes %llu bytes, %llu are "
                "free",
                writer->job->job.output_dir, (unsigned long long)need,
                (unsigned long long)free_bytes);
        zd_fail_help("free some space, or keep fewer with "
                     "checkpoint.save_total_limit");
        return ZD_ERR_IO;
    }
    if (mkdir(tmp, 0750) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot make %s: %s", tmp, strerror(errno));
    return ZD_OK;
}

/* The commit. A folder of that name (one that does not verify, or of another
 * branch of the run) changes places with the new one, so that no moment is
 * without; where the file system cannot, it makes way first. */
static enum zd_status commit(
        const char *output_dir, const char *tmp, const char *final)
{
    char trash[PATH_MAX];
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        ZD_TRY(fs_sync_dir(output_dir));
        return fs_remove_tree(tmp);
    }
    fs_join(trash, sizeof trash, output_dir, ".tmp-replaced");
    if (fs_exists(final)) {
        ZD_TRY(fs_remove_tree(trash));
        if (rename(final, trash) != 0)
            return ZD_FAIL(
                    ZD_ERR_IO, "E0807", "cannot move %s away: %s", final,
                    strerror(errno));
    }
    if (rename(tmp, final) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot rename %s to %s: %s", tmp, final,
                strerror(errno));
    ZD_TRY(fs_sync_dir(output_dir));
    return fs_remove_tree(trash);
}

static enum zd_status save_steps(
        const struct checkpoint_writer *writer, const struct train_state *state,
        const char *tmp, const char *final, struct manifest_file *shards)
{
    struct manifest_file mine;
    struct comm *comm = writer->comm;
    enum zd_status status = ZD_OK;
    bool first = comm_rank(comm) == 0;

    if (first)
        status = begin_dir(writer, tmp);
    ZD_TRY(comm_agree(comm, status));
    status = write_shard(writer, tmp, &mine);
    ZD_TRY(comm_agree(comm, status));
    ZD_TRY(comm_gather_all(comm, &mine, sizeof mine, shards));
    if (first)
        status = write_manifest(writer, state, tmp, shards);
    if (first && status == ZD_OK)
        status = commit(writer->job->job.output_dir, tmp, final);
    return comm_agree(comm, status);
}

enum zd_status checkpoint_save(
        const struct checkpoint_writer *writer, const struct train_state *state,
        char *path_out)
{
    char name[64], hidden[80], tmp[PATH_MAX];
    const char *output_dir = writer->job->job.output_dir;
    struct manifest_file *shards =
            calloc((size_t)comm_size(writer->comm), sizeof *shards);

    if (!shards)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    checkpoint_name(name, sizeof name, state->step);
    snprintf(hidden, sizeof hidden, ".tmp-%s", name);
    fs_join(tmp, sizeof tmp, output_dir, hidden);
    fs_join(path_out, PATH_MAX, output_dir, name);
    enum zd_status status = save_steps(writer, state, tmp, path_out, shards);
    free(shards);
    if (status != ZD_OK && comm_rank(writer->comm) == 0) {
        struct zd_error cause = *zd_error_get();
        fs_remove_tree(tmp); /* best effort; the next save sweeps too */
        zd_error_set(&cause);
    }
    return status;
}
