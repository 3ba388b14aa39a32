/* hf_files.h - the weight files in the folder of a Hugging Face model:
 * model.safetensors, or model.safetensors.index.json and its shards, whose
 * names must stay inside the folder. */
#pragma once

#include "base/file/safetensors.h"

struct hf_files {
    struct st_file **files; /* owned, each open */
    int count;
};

/* ZD_ERR_DATA naming folder, index or file. */
enum zd_status hf_files_open(const char *dir, struct hf_files *out);
void hf_files_close(struct hf_files *files);
