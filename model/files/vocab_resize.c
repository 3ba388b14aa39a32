#include "model/files/vocab_resize.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void model_config_resize_vocab(struct model_config *config, int rows)
{
    if (!config->stored_rows)
        config->stored_rows = config->vocab_size;
    config->vocab_size = rows;
    json_object_set_new(
            config->json, "vocab_size", zd_must(json_integer(rows)));
}

enum zd_status model_config_resize_vocab_for(
        const char *adapter_dir, struct model_config *config)
{
    char path[PATH_MAX];
    struct st_file *file;
    const char *prefix = config->family->file_prefix;
    char name[2 * PARAM_NAME_MAX];
    fs_join(path, sizeof path, adapter_dir, "adapter_model.safetensors");
    if (!fs_exists(path)) /* told by who opens it */
        return ZD_OK;
    ZD_TRY(st_open(path, &file));
    snprintf(
            name, sizeof name, "base_model.model.%s%s", prefix ? prefix : "",
            config->family->embeddings[0].name);
    const struct st_tensor *embedding = st_find(file, name);
    int64_t rows = embedding && embedding->dims == 2 ? embedding->shape[0] : 0;
    st_close(file);
    if (rows > config->vocab_size && rows <= INT_MAX)
        model_config_resize_vocab(config, (int)rows);
    return ZD_OK;
}
