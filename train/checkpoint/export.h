/* export.h - exports a checkpoint as a Hugging Face folder, streaming. Internal
 * to train. */
#pragma once

#include "model/files/export_hf.h"
#include "train/checkpoint/checkpoint.h"

struct export_request {
    const char *path; /* the checkpoint; its config.json and tokenizer files are
                         copied */
    const char *out_dir;
    const enum dtype *dtype; /* NULL: the run's */
    uint64_t max_shard_bytes;
    const struct quantize_options *quantize; /* NULL: not quantized; needs
                                                `comm` NULL */
    enum checkpoint_check check;
    /* For a checkpoint of an adapter: export the merged model instead of a PEFT
     * folder. */
    bool merges;
    /* Folder of the base (not needed for an adapter without DoRA); NULL: the
     * manifest's. */
    const char *base;
};

/* Collective: every rank reads and writes a part of the weights. `comm` NULL:
 * the caller does all of it. */
enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request);
