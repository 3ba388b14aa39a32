#include "train/checkpoint/cli.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/export.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What is known of one checkpoint, sound or not; "ok" is null for one that
 * cannot be read. New reference. */
static json_t *summary(const char *path)
{
    static const char *const keys[] = {
            "step",     "world",     "stage",      "files",   "tensors",
            "progress", "optimizer", "parameters", "adapter", "base"};
    json_t *manifest, *row = json_object();
    enum zd_status status = manifest_open(path, CHECKPOINT_SIZES, &manifest);
    json_object_set_new(row, "path", json_string(path));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        json_object_set(row, keys[i], json_object_get(manifest, keys[i]));
    json_decref(manifest);
    bool is_known = status == ZD_OK || status == ZD_ERR_DATA;
    json_object_set_new(
            row, "ok", is_known ? json_boolean(status == ZD_OK) : json_null());
    if (status != ZD_OK)
        json_object_set_new(row, "error", json_string(zd_error_get()->what));
    return row;
}

/* Takes the reference. */
static void print_json(json_t *json, FILE *out)
{
    char *text =
            zd_must(json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)));
    json_decref(json);
    fprintf(out, "%s\n", text);
    free(text);
}

static void print_row(const json_t *row, FILE *out)
{
    size_t i;
    json_t *file;
    json_int_t bytes = 0;
    const json_t *ok = json_object_get(row, "ok");
    json_array_foreach(json_object_get(row, "files"), i, file) bytes +=
            json_integer_at(file, "bytes");
    fprintf(out, "%-10lld %-6lld %-6lld %14lld  %-5s %s\n",
            json_integer_at(row, "step"), json_integer_at(row, "world"),
            json_integer_at(row, "stage"), bytes,
            json_is_null(ok)   ? "?"
            : json_is_true(ok) ? "ok"
                               : "BAD",
            json_string_at(row, "path"));
}

static enum zd_status check_folder(const char *path)
{
    bool is_there;
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_FAIL(ZD_ERR_NO_INPUT, "E0801", "no such folder: %s", path);
    if (!fs_is_dir(path))
        return ZD_FAIL(ZD_ERR_DATA, "E0801", "%s is not a folder", path);
    return ZD_OK;
}

/* The checkpoint at `path`, or those below it. *trouble: the first that cannot
 * be read. New reference. */
static enum zd_status summaries(
        const char *path, struct zd_error *trouble, json_t **rows_out)
{
    char manifest[PATH_MAX], full[PATH_MAX];
    int64_t *steps = NULL;
    int count = 1;
    fs_join(manifest, sizeof manifest, path, CHECKPOINT_MANIFEST);
    if (!fs_exists(manifest))
        ZD_TRY(checkpoint_list(path, &steps, &count));
    *rows_out = json_array();
    for (int k = 0; k < count; k++) {
        if (steps)
            checkpoint_place(full, path, steps[k]);
        json_t *row = summary(steps ? full : path);
        if (json_is_null(json_object_get(row, "ok")) &&
            trouble->status == ZD_OK)
            *trouble = *zd_error_get();
        zd_error_clear();
        json_array_append_new(*rows_out, row);
    }
    free(steps);
    return ZD_OK;
}

enum zd_status checkpoint_ls(const char *path, bool json, FILE *out)
{
    struct zd_error trouble = {.status = ZD_OK};
    json_t *rows, *row;
    size_t i;

    ZD_TRY(check_folder(path));
    ZD_TRY(summaries(path, &trouble, &rows));
    if (json) {
        print_json(rows, out);
    } else {
        fprintf(out, "%-10s %-6s %-6s %14s  %-5s %s\n", "STEP", "WORLD",
                "STAGE", "BYTES", "SIZES", "PATH");
        json_array_foreach(rows, i, row) print_row(row, out);
        json_decref(rows);
    }
    zd_error_set(&trouble);
    return trouble.status;
}

/* {a.b} of a line stands for a member of a member of the row; a line of which
 * one is missing is left out. */
static const char *const lines[] = {
        "step     {step} of {progress.max_steps}",
        "world    {world} ranks, ZeRO stage {stage}",
        "samples  {progress.samples_taken} taken, {progress.tokens_seen} "
        "tokens",
        "params   {parameters.all}, {parameters.trainable} of them trained",
        "adapter  LoRA, r {adapter.config.r} on "
        "{adapter.config.target_modules}; DoRA: {adapter.config.use_dora}",
        "base     {base.path}, held in {base.format}",
        "random   the base is of seed {base.seed}, held in {base.format}",
        "optim    {optimizer.name}, masters {optimizer.master}; tensors with m "
        "{optimizer.m}, v {optimizer.v}",
        "scale    loss x {progress.loss_scale.scale}, good steps "
        "{progress.loss_scale.good_steps}, hysteresis "
        "{progress.loss_scale.hysteresis}"};

static const json_t *member_at(const json_t *json, const char *path)
{
    char key[64];
    for (size_t length; *path != '}'; path += length + (path[length] == '.')) {
        length = strcspn(path, ".}");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        json = json_object_get(json, key);
    }
    return json_is_null(json) ? NULL : json;
}

static void print_line(const json_t *row, const char *line, FILE *out)
{
    char text[2000];
    struct text_buffer buffer = {.out = text, .bytes = sizeof text};
    for (const char *open; (open = strchr(line, '{'));
         line = strchr(open, '}') + 1) {
        const json_t *value = member_at(row, open + 1);
        if (!value)
            return;
        char *words = json_is_string(value)
                              ? strdup(json_string_value(value))
                              : json_dumps(
                                        value, JSON_ENCODE_ANY |
                                                       JSON_REAL_PRECISION(10));
        text_buffer_add(
                &buffer, "%.*s%s", (int)(open - line), line,
                (const char *)zd_must(words));
        free(words);
    }
    fprintf(out, "%s%s\n", text, line);
}

/* Where a checkpoint is wanted, and `path` is the folder of several. */
static enum zd_status help_to_choose(const char *path, enum zd_status status)
{
    char manifest[PATH_MAX], word[2 * PATH_MAX] = "";
    struct text_buffer quoted = {.out = word, .bytes = sizeof word};
    struct zd_error error = *zd_error_get();
    int64_t *steps = NULL;
    int count = 0;
    fs_join(manifest, sizeof manifest, path, CHECKPOINT_MANIFEST);
    if (status == ZD_OK || fs_exists(manifest))
        return status;
    if (checkpoint_list(path, &steps, &count) != ZD_OK)
        zd_error_clear();
    free(steps);
    zd_error_set(&error);
    text_buffer_add_word(&quoted, path);
    if (count > 0)
        zd_fail_help("`zerod ckpt ls %s` names its checkpoints", word);
    return status;
}

enum zd_status checkpoint_show(const char *path, bool json, FILE *out)
{
    size_t i;
    json_t *file, *manifest;
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
    if (json) {
        print_json(row, out);
        return ZD_OK;
    }
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
        print_line(row, lines[k], out);
    fprintf(out, "tensors  %zu\n",
            json_object_size(json_object_get(row, "tensors")));
    json_array_foreach(json_object_get(row, "files"), i, file)
    {
        const char *parts = json_string_at(file, MANIFEST_PARTS_DIGEST);
        fprintf(out, "file     %-40s %14lld bytes  xxh3 %s%s\n",
                json_string_at(file, "name"), json_integer_at(file, "bytes"),
                parts ? parts : json_string_at(file, MANIFEST_DIGEST),
                parts ? " of its parts" : "");
    }
    fprintf(out, "sizes    %s\n",
            json_is_true(json_object_get(row, "ok"))
                    ? "ok (zerod ckpt verify reads every byte)"
                    : "BAD");
    json_decref(row);
    return ZD_OK;
}

enum zd_status checkpoint_verify(const char *path, bool json, FILE *out)
{
    struct checkpoint *checkpoint;
    ZD_TRY(check_folder(path));
    enum zd_status status = help_to_choose(
            path, checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint));
    if (status == ZD_ERR_NO_INPUT)
        status = ZD_ERR_DATA;
    if (status == ZD_OK)
        checkpoint_close(checkpoint);
    if (json) {
        json_t *result =
                json_pack("{s:s, s:b}", "path", path, "ok", status == ZD_OK);
        if (status != ZD_OK)
            json_object_set_new(
                    result, "error", json_string(zd_error_get()->what));
        print_json(result, out);
    } else if (status == ZD_OK) {
        fprintf(out, "%s: every file matches its digest\n", path);
    }
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
