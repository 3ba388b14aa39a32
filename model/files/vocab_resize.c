#include "model/files/vocab_resize.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "model/files/hf_names.h"
#include "model/files/text_config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void model_config_resize_vocab(struct model_config *config, int rows)
{
    if (!config->stored_rows)
        config->stored_rows = config->vocab_size;
    config->vocab_size = rows;
    json_object_set_new(
            text_config_of(config->json, config), "vocab_size",
            zd_must(json_integer(rows)));
}

enum zd_status model_config_resize_vocab_for(
        const char *adapter_dir, struct model_config *config)
{
    char path[PATH_MAX];
    struct st_file *file;
    char module[HF_NAME_BYTES], name[2 * HF_NAME_BYTES];
    fs_join(path, sizeof path, adapter_dir, "adapter_model.safetensors");
    if (!fs_exists(path)) /* told by who opens it */
        return ZD_OK;
    ZD_TRY(st_open(path, &file));
    hf_name_of_module(config, config->family->embeddings[0].name, module);
    snprintf(name, sizeof name, "base_model.model.%s", module);
    const struct st_tensor *embedding = st_find(file, name);
    int64_t rows = embedding && embedding->dims == 2 ? embedding->shape[0] : 0;
    st_close(file);
    if (rows > config->vocab_size && rows <= INT_MAX)
        model_config_resize_vocab(config, (int)rows);
    return ZD_OK;
}
