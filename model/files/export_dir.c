#include "model/files/export_dir.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "base/words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *const export_copied_files[] = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "chat_template.json",
        NULL,
};

/* Is `path`, with links resolved, below `folder`? */
static bool is_below(const char *path, const char *folder)
{
    char real[PATH_MAX];
    if (!realpath(folder, real))
        return false;
    size_t length = strlen(real);
    return strncmp(path, real, length) == 0 && path[length] == '/';
}

/* In the hub's cache, models--X/snapshots/REV has links to models--X/blobs. */
static bool is_blob_of(const char *path, const char *real_dir)
{
    char blobs[PATH_MAX + 8];
    const char *at = strstr(real_dir, "/snapshots/");
    ZD_PRINT(blobs, "%.*s/blobs", at ? (int)(at - real_dir) : 0, real_dir);
    return at && is_below(path, blobs);
}

enum zd_status export_check_link(const char *dir, const char *name)
{
    char real[PATH_MAX], real_dir[PATH_MAX];
    const struct fs_path path = fs_in(dir, name);
    if (realpath(path.text, real) && realpath(dir, real_dir) &&
        (is_below(real, real_dir) || is_blob_of(real, real_dir)))
        return ZD_OK;
    ZD_BAD("E0316", "%s is a link to a file outside of the model's folder",
           path.text);
    return zd_fail_help(
            "replace the link by the file: every checkpoint and the "
            "exported model have a copy of it");
}

static enum zd_status copy_file(
        const char *from_dir, const char *to_dir, const char *name)
{
    enum { COPY_BYTES_MAX = 1 << 30 };
    const struct fs_path from = fs_in(from_dir, name);
    ZD_FREED char *data = NULL;
    size_t bytes;
    bool is_there;
    ZD_TRY(fs_look(from.text, &is_there));
    if (!is_there)
        return ZD_OK;
    ZD_TRY(fs_read_file(from.text, COPY_BYTES_MAX, &data, &bytes));
    ZD_TRY(export_check_link(from_dir, name));
    return fs_write_file(fs_in(to_dir, name).text, data, bytes);
}

enum zd_status export_copy_files(
        const char *model, const char *tokenizer, const char *to)
{
    for (int i = 0; export_copied_files[i]; i++) {
        const char *from = i == 0 ? model : tokenizer;
        if (from)
            ZD_TRY(copy_file(from, to, export_copied_files[i]));
    }
    return ZD_OK;
}

static bool is_export_name(const char *name)
{
    static const char written[] =
            "config.json model.safetensors model.safetensors.index.json "
            "adapter_config.json adapter_model.safetensors";
    int shard, shards, used = 0;
    if (words_have(written, " ", name))
        return true;
    for (int i = 0; export_copied_files[i]; i++)
        if (strcmp(name, export_copied_files[i]) == 0)
            return true;
    return sscanf(name, "model-%d-of-%d.safetensors%n", &shard, &shards,
                  &used) == 2 &&
           used > 0 && name[used] == '\0';
}

/* Weights that we wrote have our mark. A file that is not safetensors is not
 * ours; one that cannot be read is an error. */
static enum zd_status has_our_mark(
        const char *dir, const char *name, bool *is_ours_out)
{
    struct st_file *file;
    enum zd_status status = st_open(fs_in(dir, name).text, &file);
    *is_ours_out = false;
    if (status == ZD_ERR_DATA || status == ZD_ERR_NO_INPUT) {
        zd_error_clear();
        return ZD_OK;
    }
    ZD_TRY(status);
    const char *writer = json_string_at(file->metadata, EXPORT_WRITER_KEY);
    *is_ours_out = writer && strcmp(writer, EXPORT_WRITER) == 0;
    st_close(file);
    return ZD_OK;
}

struct found { /* in a folder that an export would replace */
    const char *dir;
    char foreign[256];
    bool is_finished, is_empty, is_marked;
};

/* A temporary file of an interrupted fs_write_file. */
static bool is_beside_name(const char *name)
{
    char place[256];
    const char *end = strrchr(name, '.');
    if (!end || strcmp(end, ".tmp") != 0)
        return false;
    ZD_PRINT(place, "%.*s", (int)(end - name), name);
    return is_export_name(place);
}

static enum zd_status look_at(void *ctx, const char *name)
{
    bool is_ours = true;
    struct found *found = ctx;
    const char *end = strrchr(name, '.');
    found->is_empty = false;
    if (!is_export_name(name) && (found->is_finished || !is_beside_name(name)))
        ZD_PRINT(found->foreign, "%s", name);
    else if (found->is_finished && end && strcmp(end, ".safetensors") == 0)
        ZD_TRY(has_our_mark(found->dir, name, &is_ours));
    found->is_marked = found->is_marked && is_ours;
    return ZD_OK;
}

/* `finished`: its weights must have our mark (an interrupted export's may be
 * incomplete). */
static enum zd_status check(const char *dir, bool finished)
{
    struct found found = {
            .dir = dir,
            .is_finished = finished,
            .is_empty = true,
            .is_marked = true};
    bool is_there;
    ZD_TRY(fs_look(dir, &is_there));
    if (!is_there)
        return ZD_OK;
    if (!fs_is_dir(dir))
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314",
                "cannot write the model to `%s`: it is not a folder", dir);
    ZD_TRY(fs_each_name(dir, look_at, &found));
    if (found.is_empty || (found.is_marked && !found.foreign[0]))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0314", "`%s` already exists and %s%s%s", dir,
            found.foreign[0] ? "holds `" : "was not written by zerod",
            found.foreign, found.foreign[0] ? "`, which no export writes" : "");
    return zd_fail_help("name another folder, or remove this one");
}

enum zd_status export_dir_places(
        const char *dir, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES])
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    if (length >= EXPORT_PATH_BYTES - 8)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314", "a path of %zu bytes is too long",
                length);
    snprintf(to, EXPORT_PATH_BYTES - 8, "%.*s", (int)length, dir);
    snprintf(temporary, EXPORT_PATH_BYTES, "%.*s.tmp", (int)length, dir);
    return ZD_OK;
}

enum zd_status export_dir_names(
        const char *dir, bool is_adapter, char to[EXPORT_PATH_BYTES],
        char temporary[EXPORT_PATH_BYTES])
{
    static const char *const files[] = {"adapter_config.json", "config.json"};
    static const char *const kinds[] = {"an adapter", "a model"};
    ZD_TRY(export_dir_places(dir, to, temporary));
    ZD_TRY(check(to, true));
    if (!fs_exists(fs_in(to, files[is_adapter]).text))
        return check(temporary, false);
    ZD_FAIL(ZD_ERR_CREATE, "E0314", "`%s` holds %s, which %s would replace", to,
            kinds[is_adapter], kinds[!is_adapter]);
    return zd_fail_help("name another folder, or remove this one");
}

enum zd_status export_dir_begin(const char *temporary)
{
    bool is_there;
    ZD_TRY(fs_look(temporary, &is_there));
    if (is_there)
        ZD_TRY(fs_remove_tree(temporary));
    return fs_make_dirs(temporary);
}

enum zd_status export_dir_replace(const char *from, const char *to)
{
    /* Exchanges the folders, so that a model exists at every moment; the old
     * one then has the temporary name. */
    bool exchanged =
            fs_exists(to) &&
            renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0;
    if (!exchanged) {
        if (fs_exists(to))
            ZD_TRY(fs_remove_tree(to));
        if (rename(from, to) != 0)
            return ZD_FAIL(
                    ZD_ERR_IO, "E0315", "cannot rename `%s` to `%s`: %s", from,
                    to, strerror(errno));
    }
    ZD_TRY(fs_sync_name(to));
    return exchanged ? fs_remove_tree(from) : ZD_OK;
}
