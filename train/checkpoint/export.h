/* export.h - a Hugging Face directory from a checkpoint, streaming. Internal to
 * train. */
#pragma once

#include "model/files/export_quantized.h"
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
    /* What a checkpoint does not hold (an adapter without DoRA does without
     * it): from the folder `base`, by `open_base`, or when both are NULL from
     * where the manifest says. */
    const char *base;
    enum zd_status (*open_base)(
            const void *ctx, const struct model_config *config,
            const struct param_table *table, struct weight_source *source_out);
    const void *ctx;
};

/* base.c: the tensors that a checkpoint does not hold. */
/* Where the run had them; NULL: in no folder. */
const char *base_path(const struct checkpoint *checkpoint);
/* From where the request says, else where the run had them. E0327: they are
 * others, which is not looked for in a checkpoint that is trusted. `table`: the
 * model's own, borrowed as `config` is. */
enum zd_status base_open(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out);
/* All of a model: what the checkpoint holds, and the rest of its base. */
enum zd_status base_open_whole(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out);

/* Does it hold an adapter, whose base is elsewhere? */
bool checkpoint_is_adapter(const struct checkpoint *checkpoint);
/* What it holds as PEFT has it; a line says who cannot read that. `table` is
 * the model's own. */
enum zd_status export_adapter(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        enum dtype dtype);
/* The weights of the model with the adapter merged into it. `table` is the
 * model's own; what is borrowed must outlive the source. */
enum zd_status export_open_merged(
        const struct checkpoint *checkpoint, const struct model_config *config,
        const struct param_table *table, const struct export_request *request,
        struct weight_source *source_out);

/* Collective: every rank reads and writes a part of the weights. `comm` NULL:
 * the caller does all of it. */
enum zd_status export_checkpoint(
        struct comm *comm, const struct export_request *request);
