/* save.c - every rank writes its shard, rank 0 the manifest; renaming the
 * folder commits the checkpoint. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/saving.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- the arrays of a shard ----------------------------------------------- */

/* A range of this rank; its arrays are contiguous in the file. */
struct part {
    struct held held;
    struct zero_range range;
    int first; /* entry of its first array */
};

/* Where a range begins in the tensor as files count it. */
static size_t begin_of(
        const struct param *param, const struct columns *columns,
        const struct zero_range *range)
{
    struct slice_run run = {.begin = range->begin};
    param_slice_next(param, range->begin + range->count, &run);
    assert(columns->count || run.count == range->count);
    return columns->count ? range->begin : run.whole;
}

/* A shard that is being written. */
struct output {
    const struct checkpoint_writer *writer;
    const struct zero_view *view;
    struct part *parts; /* (part_count) by index of the range */
    int part_count;
    struct st_entry *entries;
    char (*names)[ARRAY_NAME]; /* names of entries */
    int entry_count;
    struct st_writer *file;
};

static void list_arrays(struct output *out, struct part *part, size_t blocks)
{
    const struct checkpoint_writer *writer = out->writer;
    const struct zero_range *range = &part->range;
    struct held *held = &part->held;
    int kinds = writer->job->checkpoint.save_only_model ? 1 : ARRAY_KINDS;
    part->first = out->entry_count;
    for (int kind = ARRAY_MASTER; kind < kinds; kind++) {
        struct array_shape shape = array_shape(
                (enum array_kind)kind, range->weight_type, &range->layout,
                range->count, blocks);
        char *name = out->names[out->entry_count];
        if (!shape.values)
            continue;
        held_add(held, (enum array_kind)kind, shape.type, "");
        array_name(
                name, (enum array_kind)kind, held->name, &held->columns,
                held->begin);
        out->entries[out->entry_count++] =
                (struct st_entry){name, shape.type, 1, {(int64_t)shape.values}};
    }
}

static void list_parts(struct output *out)
{
    const struct zero *zero = out->writer->zero;
    const struct zero_request *request = &out->writer->plan->zero.request;
    for (int i = 0; i < out->part_count; i++) {
        struct part *part = &out->parts[i];
        struct held *held = &part->held;
        part->range = zero_range_at(zero, ZERO_SAVES, i);
        const struct param *param = &request->table->params[part->range.id];
        bool is_first = part->range.begin == 0 && !request->config->tp.place;
        strcpy(held->name, param->name);
        held->columns = columns_of(&param->slice);
        held->begin = begin_of(param, &held->columns, &part->range);
        held->count = part->range.count;
        list_arrays(out, part, is_first ? (size_t)param->blocks.count : 0);
    }
}

/* --- writing them --------------------------------------------------------- */

/* Elements copied from zero at a time; a multiple of 256. Equal to offload's
 * default chunk, so that a chunk on disk is read only once. */
enum { CHUNK = 1 << 20 };
_Static_assert(CHUNK * sizeof(float) <= ST_ROOM_MAX, "an element's most");

static enum zd_status write_blocks(const struct output *out, int i, int entry)
{
    size_t bytes = (size_t)out->entries[entry].shape[0] * sizeof(float);
    ZD_FREED float *v = zd_must(malloc(bytes));
    ZD_TRY(out->view->blocks(out->view->ctx, i, v));
    return st_writer_add(out->file, entry, v, bytes);
}

/* Writes an array's values for elements done .. done + count - 1 of range i. */
static enum zd_status write_array(
        const struct output *out, int i, int array, size_t done, size_t count)
{
    const struct zero_view *view = out->view;
    const struct part *part = &out->parts[i];
    const struct zero_range *range = &part->range;
    enum array_kind kind = part->held.arrays[array].kind;
    int entry = part->first + array;
    bool scales = kind == ARRAY_M_SCALE || kind == ARRAY_V_SCALE;
    if (kind == ARRAY_V_BLOCKS)
        return done ? ZD_OK : write_blocks(out, i, entry);
    size_t bytes =
            array_shape(kind, range->weight_type, &range->layout, count, 0)
                    .bytes;
    void *room = st_writer_room(out->file, entry, bytes);
    ZD_TRY(view->read(
            view->ctx, i, array_lane(kind), done, count, scales ? NULL : room,
            scales ? room : NULL));
    return st_writer_add(out->file, entry, room, bytes);
}

/* Writes range i in chunks: each chunk of all arrays before the next, in the
 * order in which updates finish. */
static enum zd_status write_range(const struct output *out, int i)
{
    const struct held *held = &out->parts[i].held;
    for (size_t done = 0; done < held->count; done += CHUNK) {
        size_t left = held->count - done;
        for (int a = 0; a < held->array_count; a++)
            ZD_TRY(write_array(out, i, a, done, left < CHUNK ? left : CHUNK));
    }
    return ZD_OK;
}

static enum zd_status write_ranges(const struct output *out)
{
    for (int i = 0; i < out->part_count; i++)
        ZD_TRY(write_range(
                out, out->view->backwards ? out->part_count - 1 - i : i));
    return ZD_OK;
}

/* The file's contents for the manifest. */
static json_t *holds_json(const struct output *out)
{
    char text[HELD_TEXT];
    json_t *holds = json_array();
    for (int i = 0; i < out->part_count; i++) {
        const struct part *part = &out->parts[i];
        struct held held = part->held;
        for (int a = 0; a < held.array_count; a++)
            ZD_PRINT(
                    held.arrays[a].digest, "%.*s", HELD_DIGEST,
                    st_writer_digest(out->file, part->first + a));
        held_text(&held, text);
        json_array_append_new(holds, json_string(text));
    }
    return holds;
}

/* *report_out: the file's entry for the manifest. */
static enum zd_status write_file(
        struct output *out, const char *path, char **report_out)
{
    char digest[HASH_HEX] = "";
    uint64_t bytes = 0;
    ZD_TRY(st_writer_create(
            path, out->entries, out->entry_count, NULL, &out->file));
    enum zd_status status = write_ranges(out);
    if (status != ZD_OK) {
        st_writer_abandon(out->file);
        return status;
    }
    json_t *holds = holds_json(out);
    status = st_writer_finish(out->file, digest, &bytes);
    json_auto_t *file =
            manifest_file(strrchr(path, '/') + 1, bytes, digest, holds);
    *report_out = zd_must(json_dumps(file, JSON_COMPACT));
    return status;
}

enum zd_status saving_write(struct saving *saving, const struct zero_view *view)
{
    char name[64];
    const struct checkpoint_writer *writer = &saving->writer;
    int count = zero_range_count(writer->zero, ZERO_SAVES);
    size_t most = ARRAY_KINDS * (size_t)count;
    ZD_FREED struct part *parts = zd_array((size_t)count, sizeof *parts);
    ZD_FREED struct st_entry *entries = zd_array(most, sizeof *entries);
    ZD_FREED char(*names)[ARRAY_NAME] = zd_array(most, sizeof *names);
    struct output out = {
            .writer = writer,
            .view = view,
            .parts = parts,
            .part_count = count,
            .entries = entries,
            .names = names};
    list_parts(&out);
    ZD_PRINT(
            name, "shard-%05d-of-%05d.safetensors", comm_rank(writer->comm) + 1,
            comm_size(writer->comm));
    return write_file(&out, fs_in(saving->tmp, name).text, &saving->report);
}

/* --- the manifest --------------------------------------------------------- */

/* Writes a small file and lists it in the manifest. */
static enum zd_status write_small(
        struct saving *saving, const char *name, const char *data, size_t bytes)
{
    char digest[HASH_HEX];
    hash_bytes(data, bytes, digest);
    json_array_append_new(
            json_object_get(saving->manifest, "files"),
            manifest_file(name, bytes, digest, NULL));
    return fs_write_file(fs_in(saving->tmp, name).text, data, bytes);
}

static enum zd_status write_manifest(struct saving *saving)
{
    const struct checkpoint_writer *writer = &saving->writer;
    for (int r = 0; r < comm_size(writer->comm); r++) {
        const char *text = saving->shards + (size_t)r * saving->shard_bytes;
        json_t *shard;
        ZD_TRY(json_parse(text, strlen(text), "a shard", ZD_ERR_BUG, &shard));
        json_array_append_new(
                json_object_get(saving->manifest, "files"), shard);
    }
    /* so that the checkpoint does not need the model's folder */
    JSON_MEMBERS(name, file, writer->model_files)
        ZD_TRY(write_small(
                saving, name, json_string_value(file),
                json_string_length(file)));
    if (writer->trainer_state)
        ZD_TRY(write_small(
                saving, TRAINER_STATE_FILE, writer->trainer_state,
                strlen(writer->trainer_state)));
    manifest_seal(saving->manifest);
    ZD_TRY(json_write_file(
            fs_in(saving->tmp, CHECKPOINT_MANIFEST).text, saving->manifest));
    return fs_sync_dir(saving->tmp);
}

/* An existing checkpoint at the new one's path may be replaced only if it is
 * damaged or the run was told to go back. */
static enum zd_status check_replaced(
        const struct checkpoint_writer *writer, const char *final, bool tells)
{
    bool is_there;
    struct checkpoint *there;
    ZD_TRY(fs_look(final, &is_there));
    if (!is_there)
        return ZD_OK;
    enum zd_status status = checkpoint_open(final, CHECKPOINT_DIGESTS, &there);
    if (status == ZD_OK) {
        checkpoint_close(there);
        if (writer->own)
            return ZD_OK;
        if (writer->may_replace) {
            if (tells)
                zd_log_info("%s of the branch before is replaced", final);
            return ZD_OK;
        }
        ZD_FAIL(ZD_ERR_IO, "E0814",
                "%s already exists, and this run did not write it", final);
        return zd_fail_help(
                "move it away, or give this run another job.output_dir");
    }
    if (status != ZD_ERR_DATA && status != ZD_ERR_NO_INPUT)
        return status;
    if (tells)
        zd_log_warning(
                "%s is replaced: it is damaged (%s)", final,
                zd_error_get()->what);
    zd_error_clear();
    return ZD_OK;
}

static enum zd_status begin_dir(
        const struct checkpoint_writer *writer, const char *tmp,
        const char *final)
{
    uint64_t free_bytes,
            need = plan_checkpoint_bytes(writer->job, writer->plan);
    ZD_TRY(check_replaced(writer, final, true));
    ZD_TRY(checkpoint_sweep(writer->job->job.output_dir));
    ZD_TRY(fs_free_bytes(writer->job->job.output_dir, &free_bytes));
    if (free_bytes < need + need / 50) {
        ZD_FAIL(ZD_ERR_IO, "E0806",
                "no room for a checkpoint in %s: it takes %llu bytes, %llu are "
                "free",
                writer->job->job.output_dir, (unsigned long long)need,
                (unsigned long long)free_bytes);
        return zd_fail_help("free some space, or keep fewer with "
                            "checkpoint.save_total_limit");
    }
    if (mkdir(tmp, 0750) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot make %s: %s", tmp, strerror(errno));
    return ZD_OK;
}

/* Commits. An existing folder of that name (damaged, or from another branch of
 * the run) is exchanged with the new one atomically. If the file system cannot,
 * it is moved away first, and the next sweep restores it if the commit did not
 * complete. */
static enum zd_status commit(const char *tmp, const char *final)
{
    char dir[PATH_MAX], away[PATH_MAX];
    bool is_there;
    const char *name = strrchr(final, '/') + 1;
    int length = (int)(name - final);
    ZD_PRINT(dir, "%.*s", length, final);
    ZD_PRINT(away, "%.*s" CHECKPOINT_AWAY "%s", length, final, name);
    /* first sync names that a visible checkpoint relies on: metrics.jsonl */
    ZD_TRY(fs_sync_dir(dir));
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        ZD_TRY(fs_sync_dir(dir));
        return fs_remove_tree(tmp);
    }
    ZD_TRY(fs_look(final, &is_there));
    if (is_there && rename(final, away) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0807", "cannot move %s away: %s", final,
                strerror(errno));
    if (rename(tmp, final) != 0) {
        ZD_FAIL(ZD_ERR_IO, "E0807", "cannot rename %s to %s: %s", tmp, final,
                strerror(errno));
        if (is_there && rename(away, final) != 0)
            zd_log_warning("%s is now %s", final, away);
        return ZD_ERR_IO;
    }
    ZD_TRY(fs_sync_dir(dir));
    return is_there ? fs_remove_tree(away) : ZD_OK;
}

/* --- the parts ------------------------------------------------------------ */

/* Copies everything, because another thread writes the manifest while training
 * continues. */
static enum zd_status make_manifest(
        struct saving *saving, const struct train_state *state)
{
    json_auto_t *shared = manifest_build(&saving->writer, state);
    saving->manifest = shared ? json_deep_copy(shared) : NULL;
    if (!saving->manifest)
        return ZD_FAIL(ZD_ERR_BUG, "E0902", "the manifest cannot be built");
    return begin_dir(&saving->writer, saving->tmp, saving->final);
}

enum zd_status saving_begin(
        struct saving *saving, const struct checkpoint_writer *writer,
        const struct train_state *state)
{
    const char *output_dir = writer->job->job.output_dir;
    *saving = (struct saving){.writer = *writer, .step = state->step};
    strcpy(saving->tmp,
           checkpoint_place(output_dir, ".tmp-", state->step).text);
    strcpy(saving->final, checkpoint_place(output_dir, "", state->step).text);
    if (writer->own && strcmp(writer->own, saving->final) != 0)
        saving->writer.own = NULL; /* another name: irrelevant here */
    enum zd_status status =
            COMM_FIRST(writer->comm, make_manifest(saving, state));
    if (status != ZD_OK)
        saving_end(saving, status);
    return status;
}

enum zd_status saving_gather(struct saving *saving)
{
    struct comm *comm = saving->writer.comm;
    int64_t longest = (int64_t)strlen(saving->report) + 1;
    ZD_TRY(comm_all_reduce_i64(comm, &longest, 1, COMM_MAX));
    size_t bytes = ((size_t)longest + 7) / 8 * 8;
    ZD_FREED char *padded = zd_array(1, bytes);
    saving->shard_bytes = bytes;
    saving->shards = zd_must(malloc((size_t)comm_size(comm) * bytes));
    strcpy(padded, saving->report);
    return comm_gather_all(comm, padded, bytes, saving->shards);
}

enum zd_status saving_commit(struct saving *saving)
{
    ZD_TRY(write_manifest(saving));
    /* another may have appeared while it was written */
    ZD_TRY(check_replaced(&saving->writer, saving->final, false));
    if (saving->writer.harden_rows)
        ZD_TRY(saving->writer.harden_rows(saving->writer.rows));
    return commit(saving->tmp, saving->final);
}

void saving_end(struct saving *saving, enum zd_status status)
{
    if (status != ZD_OK && comm_rank(saving->writer.comm) == 0) {
        struct zd_error cause = *zd_error_get();
        fs_remove_tree(saving->tmp); /* best effort; the next save sweeps too */
        zd_error_set(&cause);
    }
    json_decref(saving->manifest);
    free(saving->report);
    free(saving->shards);
    free(saving->writer.trainer_state);
    *saving = (struct saving){.step = -1};
}

static enum zd_status save_steps(struct saving *saving)
{
    struct comm *comm = saving->writer.comm;
    const struct zero_view view = zero_view_live(saving->writer.zero);
    ZD_TRY(comm_agree(comm, saving_write(saving, &view)));
    ZD_TRY(saving_gather(saving));
    return COMM_FIRST(comm, saving_commit(saving));
}

enum zd_status checkpoint_save(
        const struct checkpoint_writer *writer, const struct train_state *state,
        char *path_out)
{
    struct saving saving;
    ZD_TRY(saving_begin(&saving, writer, state));
    strcpy(path_out, saving.final);
    enum zd_status status = save_steps(&saving);
    saving_end(&saving, status);
    return status;
}
