/* cli.h - what `zerod ckpt` and `zerod export` do; no MPI. */
#pragma once

#include "base/file/json.h"
#include "base/number/dtype.h"
#include "base/status.h"
#include "model/files/export_hf.h"

/* PATH: a checkpoint, or for ls an output_dir that holds some. *out: what is
 * known, a new reference, of ls a list; NULL or set where it fails: one of the
 * list cannot be read, or a file is damaged. verify reads every byte and is
 * ZD_ERR_DATA, naming the file, when something is wrong. */
typedef enum zd_status checkpoint_query(const char *path, json_t **out);
checkpoint_query checkpoint_ls, checkpoint_show, checkpoint_verify;

struct train_export {
    const char *path, *out_dir;
    const enum dtype *dtype; /* NULL: the checkpoint's export type */
    const struct quantize_options *quantize; /* NULL: no codes */
    bool merges; /* of a checkpoint of adapters: the model with them merged in,
                    not the adapter */
    const char *base; /* where what it does not hold is; NULL: where it says */
};
/* Write a checkpoint as a Hugging Face directory, or what it has of an adapter
 * as PEFT has it, streaming. With `quantize` the layers' linear weights are in
 * codes. */
enum zd_status train_export(const struct train_export *options);
