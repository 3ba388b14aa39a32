/* base.h - the tensors that a checkpoint does not hold, for who exports it.
 * Internal to the checkpoint. */
#ifndef ZD_TRAIN_CHECKPOINT_BASE_H
#define ZD_TRAIN_CHECKPOINT_BASE_H

#include "train/checkpoint/export.h"

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

#endif
