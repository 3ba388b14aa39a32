/* model_files.h - files of the model and its tokenizer that are copied into
 * every checkpoint and the export. They are read before step 1 and kept in
 * memory, so that the run does not depend on their folder later. Internal to
 * train. */
#pragma once

#include "base/file/json.h"

/* {name: the bytes of the file}, which need not be UTF-8: config.json
 * (`with_config`: else the run makes one) and generation_config.json of
 * `model_dir`, the tokenizer's files of `tokenizer_dir`; either may be NULL,
 * and a file may be absent. One that is there and cannot be read is an error.
 * New reference. */
enum zd_status model_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        json_t **files_out);
