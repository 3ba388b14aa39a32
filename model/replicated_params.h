/* replicated_params.h - all parameters of a model on one device: model_hooks
 * without sharding, for inference. */
#pragma once

#include "model/model.h"
#include "model/weights.h"

struct replicated_params;

/* Reads every tensor from `source`, converted to `dtype`. Tensors are
 * contiguous in memory. `table` is borrowed and must outlive it. */
enum zd_status replicated_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source,
        struct replicated_params **replica_out);
void replicated_destroy(struct replicated_params *replica);

struct model_hooks replicated_hooks(struct replicated_params *replica);

void *replicated_param(
        struct replicated_params *replica, int id); /* (count), type: dtype */
