/* cli.h - what `zerod ckpt` and `zerod export` do; no MPI. */
#ifndef ZD_TRAIN_CHECKPOINT_CLI_H
#define ZD_TRAIN_CHECKPOINT_CLI_H

#include "base/number/dtype.h"
#include "base/status.h"
#include "model/files/export_quantized.h"

/* PATH: a checkpoint, or for ls an output_dir that holds some. Results go to
 * `out` as text or as one JSON document. verify reads every byte and is
 * ZD_ERR_DATA, naming the file, when something is wrong. */
enum zd_status checkpoint_ls(const char *path, bool json, FILE *out);
enum zd_status checkpoint_show(const char *path, bool json, FILE *out);
enum zd_status checkpoint_verify(const char *path, bool json, FILE *out);

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

#endif
