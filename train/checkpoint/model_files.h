/* model_files.h - files of the model and its tokenizer that are copied into
 * every checkpoint and the export. They are read before step 1 and kept in
 * memory, so that the run does not depend on their folder later. Internal to
 * train. */
#pragma once

#include "base/file/json.h"

/* Returns {name: bytes of the file (need not be UTF-8)}: config.json (only
 * `with_config`; else the run writes one) and generation_config.json from
 * `model_dir`, the tokenizer's files from `tokenizer_dir`. Either may be NULL,
 * and files may be absent; a file that exists but cannot be read is an error.
 * New reference. */
enum zd_status model_files_read(
        const char *model_dir, const char *tokenizer_dir, bool with_config,
        json_t **files_out);
