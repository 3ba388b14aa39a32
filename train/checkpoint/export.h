/* export.h - a Hugging Face directory from a checkpoint, streaming. Internal to
 * train. */
#pragma once

#include "model/files/export_hf.h"
#include "train/checkpoint/checkpoint.h"

struct export_request {
    const char *path; /* the checkpoint's folder, whose config.json and
                         tokenizer files are taken along */
    const char *out_dir;
    const enum dtype *dtype; /* NULL: the type the run decided on */
    uint64_t max_shard_bytes;
    const struct quantize_options *quantize; /* NULL: whole weights; by one
                                                process, `comm` NULL */
    enum checkpoint_check check;
    /* Of a checkpoint that holds an adapter: the model with it merged in, not
     * the adapter as PEFT has it. */
    bool merges;
    /* Folder of what a checkpoint does not hold (an adapter without DoRA does
     * without it); NULL: from where the manifest says. */
    const char *base;
};

/* Collective: every rank reads and writes a part of the weights. `comm` NULL:
 * the caller does all of it. */
enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request);
