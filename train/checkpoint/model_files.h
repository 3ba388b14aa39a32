/* model_files.h - files of the model and its tokenizer that every checkpoint
 * and the export have a copy of: read before step 1 and kept, so that nothing
 * that happens to their folder can lose the model in the end. Internal to
 * train. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct model_file {
    char name[64];
    char *data; /* owned */
    size_t bytes;
};

struct model_files {
    struct model_file *list; /* owned */
    int count;
};

/* config.json (`with_config`: else the run makes one) and
 * generation_config.json of `model_dir`, the tokenizer's files of
 * `tokenizer_dir`; either may be NULL, and a file may be absent. One that is
 * there and cannot be read is an error. */
enum zd_status model_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        struct model_files *files);
/* One more, of this text; there is room for a config.json that was not read,
 * and a tokenizer_config.json that is not there. */
void model_files_add(
        struct model_files *files, const char *name, const char *text);
void model_files_fini(struct model_files *files);
