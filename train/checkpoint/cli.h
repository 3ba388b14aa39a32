/* cli.h - implements `zerod ckpt` and `zerod export`, without MPI. */
#pragma once

#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"
#include "model/files/export_hf.h"

/* PATH: a checkpoint, or for ls an output_dir. *out: a summary, for ls a list
 * (new reference). On failure it may also be set: one of the list cannot be
 * read, or a file is damaged. verify reads every byte; ZD_ERR_DATA names a
 * damaged file. */
typedef enum zd_status checkpoint_query(const char *path, json_t **out);
checkpoint_query checkpoint_ls, checkpoint_show, checkpoint_verify;

struct train_export {
    const char *path, *out_dir;
    const enum dtype *dtype; /* NULL: the checkpoint's export type */
    const struct quantize_options *quantize; /* NULL: not quantized */
    bool merges; /* for a checkpoint of adapters: export the merged model, not
                    the adapter */
    const char *base; /* folder of the base; NULL: the manifest's */
};
/* Writes a checkpoint as a Hugging Face folder, or its adapter as a PEFT
 * folder, streaming. With `quantize` the layers' linear weights are quantized.
 */
enum zd_status train_export(const struct train_export *options);
