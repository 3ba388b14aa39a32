#include "train/checkpoint/model_files.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/export_dir.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 256 << 20 };

/* One that is there cannot be read; a link that leads nowhere is there. */
static enum zd_status fail_kept(enum zd_status status)
{
    if (status == ZD_ERR_NO_INPUT || status == ZD_ERR_DATA)
        zd_fail_help("mend or remove it: every checkpoint and the exported "
                     "model have a copy of it");
    return status;
}

/* The next of the list, whose bytes it has. */
static void name_file(struct model_files *files, const char *name)
{
    struct model_file *file = &files->list[files->count++];
    ZD_PRINT(file->name, "%s", name);
}

static enum zd_status keep(
        const char *dir, const char *name, struct model_files *files)
{
    char path[PATH_MAX];
    bool is_there;
    fs_join(path, sizeof path, dir, name);
    ZD_TRY(fs_look(path, &is_there));
    if (!is_there)
        return ZD_OK;
    struct model_file *file = &files->list[files->count];
    enum zd_status status =
            fs_read_file(path, BYTES_MAX, &file->data, &file->bytes);
    if (status != ZD_OK)
        return fail_kept(status);
    name_file(files, name);
    return export_check_link(dir, name);
}

static enum zd_status keep_all(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        struct model_files *files)
{
    if (with_config)
        ZD_TRY(keep(model_dir, "config.json", files));
    for (int i = 0; export_copied_files[i]; i++) {
        const char *dir = i == 0 ? model_dir : tokenizer_dir;
        if (dir)
            ZD_TRY(keep(dir, export_copied_files[i], files));
    }
    return ZD_OK;
}

enum zd_status model_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        struct model_files *files)
{
    size_t most = 1;
    while (export_copied_files[most - 1])
        most++;
    *files = (struct model_files){.list = zd_array(most, sizeof *files->list)};
    enum zd_status status =
            keep_all(model_dir, tokenizer_dir, with_config, files);
    if (status != ZD_OK)
        model_files_fini(files);
    return status;
}

void model_files_add(
        struct model_files *files, const char *name, const char *text)
{
    struct model_file *file = &files->list[files->count];
    file->data = zd_must(strdup(text));
    file->bytes = strlen(text);
    name_file(files, name);
}

void model_files_fini(struct model_files *files)
{
    for (int i = 0; i < files->count; i++)
        free(files->list[i].data);
    free(files->list);
    *files = (struct model_files){0};
}
