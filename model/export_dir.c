#include "model/export_dir.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

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

static bool is_export_name(const char *name)
{
    int shard, shards, used = 0;
    if (strcmp(name, "config.json") == 0 ||
        strcmp(name, "model.safetensors") == 0 ||
        strcmp(name, "model.safetensors.index.json") == 0)
        return true;
    for (int i = 0; export_copied_files[i]; i++)
        if (strcmp(name, export_copied_files[i]) == 0)
            return true;
    return sscanf(name, "model-%d-of-%d.safetensors%n", &shard, &shards,
                  &used) == 2 &&
           used > 0 && name[used] == '\0';
}

/* Weights that we wrote say so. */
static bool has_our_mark(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    struct st_file *file;
    fs_join(path, sizeof path, dir, name);
    if (st_open(path, &file) != ZD_OK) {
        zd_error_clear(); /* not ours is an answer, not a failure */
        return false;
    }
    const char *writer = json_string_value(
            json_object_get(file->metadata, EXPORT_WRITER_KEY));
    bool ours = writer && strcmp(writer, EXPORT_WRITER) == 0;
    st_close(file);
    return ours;
}

enum zd_status export_dir_check(const char *dir, bool finished)
{
    char foreign[256] = "";
    bool empty = true, marked = true;
    if (!fs_exists(dir))
        return ZD_OK;
    DIR *stream = fs_is_dir(dir) ? opendir(dir) : NULL;
    if (!stream)
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0314",
                "cannot write the model to `%s`: no folder that can be "
                "read",
                dir);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        const char *end = strrchr(name, '.');
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        empty = false;
        if (!is_export_name(name))
            snprintf(foreign, sizeof foreign, "%s", name);
        else if (finished && end && strcmp(end, ".safetensors") == 0)
            marked = marked && has_our_mark(dir, name);
    }
    closedir(stream);
    if (empty || (marked && !*foreign))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0314", "`%s` is there already and %s%s%s", dir,
            *foreign ? "holds `" : "was not written by zerod", foreign,
            *foreign ? "`, which no export writes" : "");
    zd_fail_help("name another folder, or remove this one");
    return ZD_ERR_CREATE;
}

enum zd_status export_dir_replace(const char *from, const char *to)
{
    char parent[PATH_BYTES];
    /* An exchange leaves no moment without a model; the old one is then
     * under the temporary name. */
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
    snprintf(parent, sizeof parent, "%s", to);
    char *slash = strrchr(parent, '/');
    if (slash && slash > parent)
        *slash = '\0';
    else
        snprintf(parent, sizeof parent, "%s", slash ? "/" : ".");
    ZD_TRY(fs_sync_dir(parent));
    return exchanged ? fs_remove_tree(from) : ZD_OK;
}
