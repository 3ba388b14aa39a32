#include "train/checkpoint/cli.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/export.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>

/* A summary of one checkpoint, valid or not; "ok" is null if it cannot be read.
 * New reference. */
static json_t *summary(const char *path)
{
    static const char *const keys[] = {"step",     "world",     "mesh",
                                       "stage",    "files",     "tensors",
                                       "progress", "optimizer", "parameters",
                                       "adapter",  "base"};
    json_t *manifest, *row = json_object();
    enum zd_status status = manifest_open(path, CHECKPOINT_SIZES, &manifest);
    json_object_set_new(row, "path", json_string(path));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        json_object_set(row, keys[i], json_object_get(manifest, keys[i]));
    json_object_set_new(row, "bytes", json_integer(manifest_bytes(manifest)));
    json_decref(manifest);
    bool is_known = status == ZD_OK || status == ZD_ERR_DATA;
    json_object_set_new(
            row, "ok", is_known ? json_boolean(status == ZD_OK) : json_null());
    if (status != ZD_OK)
        json_object_set_new(row, "error", json_string(zd_error_get()->what));
    return row;
}

static enum zd_status check_folder(const char *path)
{
    bool is_there;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no such folder: %s", path);
    if (!fs_is_dir(path))
        return ZD_BAD("E0801", "%s is not a folder", path);
    return ZD_OK;
}

/* Summaries of the checkpoint at `path`, or of those below it. *trouble: the
 * first that cannot be read. New reference. */
static enum zd_status summaries(
        const char *path, struct zd_error *trouble, json_t **rows_out)
{
    ZD_FREED int64_t *steps = NULL;
    int count = 1;
    if (!fs_exists(fs_in(path, CHECKPOINT_MANIFEST).text))
        ZD_TRY(checkpoint_list(path, &steps, &count));
    *rows_out = json_array();
    for (int k = 0; k < count; k++) {
        json_t *row = summary(
                steps ? checkpoint_place(path, "", steps[k]).text : path);
        if (json_is_null(json_object_get(row, "ok")) &&
            trouble->status == ZD_OK)
            *trouble = *zd_error_get();
        zd_error_clear();
        json_array_append_new(*rows_out, row);
    }
    return ZD_OK;
}

enum zd_status checkpoint_ls(const char *path, json_t **out)
{
    struct zd_error trouble = {.status = ZD_OK};
    ZD_TRY(check_folder(path));
    ZD_TRY(summaries(path, &trouble, out));
    zd_error_set(&trouble);
    return trouble.status;
}

/* If `path` is a folder of several checkpoints instead of one, lists them as
 * help. */
static enum zd_status help_to_choose(const char *path, enum zd_status status)
{
    struct text_buffer quoted = TEXT_BUFFER(2 * PATH_MAX);
    struct zd_error error = *zd_error_get();
    ZD_FREED int64_t *steps = NULL;
    int count = 0;
    if (status == ZD_OK || fs_exists(fs_in(path, CHECKPOINT_MANIFEST).text))
        return status;
    checkpoint_list(path, &steps, &count);
    zd_error_set(&error); /* even if that failed */
    text_buffer_add_word(&quoted, path);
    if (count > 0)
        zd_fail_help("`zerod ckpt ls %s` names its checkpoints", quoted.out);
    return status;
}

enum zd_status checkpoint_show(const char *path, json_t **out)
{
    json_t *manifest;
    ZD_TRY(check_folder(path));
    ZD_TRY(help_to_choose(
            path, manifest_open(path, CHECKPOINT_TRUSTED, &manifest)));
    json_decref(manifest);
    json_t *row = summary(path);
    if (json_is_null(json_object_get(row, "ok"))) {
        json_decref(row);
        return zd_error_get()->status;
    }
    zd_error_clear();
    *out = row;
    return ZD_OK;
}

enum zd_status checkpoint_verify(const char *path, json_t **out)
{
    struct checkpoint *checkpoint;
    ZD_TRY(check_folder(path));
    enum zd_status status = help_to_choose(
            path, checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint));
    if (status == ZD_ERR_NO_INPUT)
        status = ZD_ERR_DATA;
    if (status == ZD_OK)
        checkpoint_close(checkpoint);
    *out = json_pack(
            "{s:s, s:b, s:s*}", "path", path, "ok", status == ZD_OK, "error",
            status == ZD_OK ? NULL : zd_error_get()->what);
    return status;
}

enum zd_status train_export(const struct train_export *options)
{
    struct export_request request = {
            .path = options->path,
            .out_dir = options->out_dir,
            .dtype = options->dtype,
            .max_shard_bytes = 5000000000u,
            .quantize = options->quantize,
            .check = CHECKPOINT_DIGESTS,
            .merges = options->merges,
            .base = options->base};
    ZD_TRY(check_folder(options->path));
    return help_to_choose(options->path, export_checkpoint(NULL, &request));
}
