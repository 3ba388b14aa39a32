#include "train/checkpoint/kept.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/export_dir.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 256 << 20 };

/* Why one that is there cannot be read; a link that leads nowhere is there. */
static enum zd_status fail_kept(const char *path, enum zd_status status)
{
    if (status == ZD_ERR_NO_INPUT) {
        zd_error_clear();
        ZD_FAIL(status, "E0712", "%s is a link to a file that does not exist",
                path);
    }
    if (status == ZD_ERR_NO_INPUT || status == ZD_ERR_DATA)
        zd_fail_help("mend or remove it: every checkpoint and the exported "
                     "model have a copy of it");
    return status;
}

/* The next of the list, whose bytes it has. */
static void name_file(struct kept_files *kept, const char *name)
{
    struct kept_file *file = &kept->list[kept->count++];
    snprintf(file->name, sizeof file->name, "%s", name);
    hash_bytes(file->data, file->bytes, file->digest);
}

static enum zd_status keep(
        const char *dir, const char *name, struct kept_files *kept)
{
    char path[PATH_MAX];
    bool is_there;
    fs_join(path, sizeof path, dir, name);
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_OK;
    struct kept_file *file = &kept->list[kept->count];
    enum zd_status status =
            fs_read_file(path, BYTES_MAX, &file->data, &file->bytes);
    if (status != ZD_OK)
        return fail_kept(path, status);
    name_file(kept, name);
    return export_check_link(dir, name);
}

static enum zd_status keep_all(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        struct kept_files *kept)
{
    if (model_dir && with_config)
        ZD_TRY(keep(model_dir, "config.json", kept));
    for (int i = 0; export_copied_files[i]; i++) {
        const char *dir = i == 0 ? model_dir : tokenizer_dir;
        if (dir)
            ZD_TRY(keep(dir, export_copied_files[i], kept));
    }
    return ZD_OK;
}

enum zd_status kept_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        struct kept_files *kept)
{
    size_t most = 1;
    while (export_copied_files[most - 1])
        most++;
    *kept = (struct kept_files){.list = zd_array(most, sizeof *kept->list)};
    enum zd_status status =
            keep_all(model_dir, tokenizer_dir, with_config, kept);
    if (status != ZD_OK)
        kept_files_fini(kept);
    return status;
}

void kept_files_add(struct kept_files *kept, const char *name, const char *text)
{
    struct kept_file *file = &kept->list[kept->count];
    file->data = zd_must(strdup(text));
    file->bytes = strlen(text);
    name_file(kept, name);
}

bool kept_files_have(const struct kept_files *kept, const char *name)
{
    for (int i = 0; i < kept->count; i++)
        if (strcmp(kept->list[i].name, name) == 0)
            return true;
    return false;
}

void kept_files_fini(struct kept_files *kept)
{
    for (int i = 0; i < kept->count; i++)
        free(kept->list[i].data);
    free(kept->list);
    *kept = (struct kept_files){0};
}
