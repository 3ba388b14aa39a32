/* cli.h - what `zerod ckpt` and `zerod export` do; no MPI. */
#ifndef ZD_TRAIN_CHECKPOINT_CLI_H
#define ZD_TRAIN_CHECKPOINT_CLI_H

#include "base/number/dtype.h"
#include "base/status.h"
#include "model/export_quantised.h"

/* PATH: a checkpoint, or for ls an output_dir that holds some. Results go to
 * `out` as text or as one JSON document. verify reads every byte and is
 * ZD_ERR_DATA, naming the file, when something is wrong. */
enum zd_status checkpoint_ls(const char *path, bool json, FILE *out);
enum zd_status checkpoint_show(const char *path, bool json, FILE *out);
enum zd_status checkpoint_verify(const char *path, bool json, FILE *out);

/* Write checkpoint `path` as a Hugging Face directory `out_dir`, streaming. The
 * element type is the checkpoint's export type unless `dtype_given`; with
 * `quantise` the layers' linear weights are in codes. */
enum zd_status train_export(
        const char *path, const char *out_dir, bool dtype_given,
        enum dtype dtype, const struct quantise_options *quantise);

#endif
