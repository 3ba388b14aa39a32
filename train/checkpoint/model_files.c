#include "train/checkpoint/model_files.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "model/files/export_dir.h"

enum { BYTES_MAX = 256 << 20 };

/* An existing file, or a dangling link, cannot be read. */
static enum zd_status fail_kept(enum zd_status status)
{
    if (status == ZD_ERR_NO_INPUT || status == ZD_ERR_DATA)
        zd_fail_help("mend or remove it: every checkpoint and the exported "
                     "model have a copy of it");
    return status;
}

static enum zd_status keep(const char *dir, const char *name, json_t *files)
{
    const struct fs_path path = fs_in(dir, name);
    ZD_FREED char *data = NULL;
    size_t bytes;
    bool is_there;
    ZD_TRY(fs_look(path.text, &is_there));
    if (!is_there)
        return ZD_OK;
    enum zd_status status = fs_read_file(path.text, BYTES_MAX, &data, &bytes);
    if (status != ZD_OK)
        return fail_kept(status);
    json_object_set_new(files, name, json_stringn_nocheck(data, bytes));
    return export_check_link(dir, name);
}

enum zd_status model_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        json_t **files_out)
{
    json_auto_t *files = json_object();
    if (with_config)
        ZD_TRY(keep(model_dir, "config.json", files));
    for (int i = 0; export_copied_files[i]; i++) {
        const char *dir = i == 0 ? model_dir : tokenizer_dir;
        if (dir)
            ZD_TRY(keep(dir, export_copied_files[i], files));
    }
    *files_out = json_incref(files);
    return ZD_OK;
}
