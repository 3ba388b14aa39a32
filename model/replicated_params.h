/* replicated_params.h - all parameters of a model on one device, whole: the
 * model_hooks of someone who shards nothing and trains nothing. */
#pragma once

#include "model/model.h"
#include "model/weights.h"

struct replicated_params;

/* Read every tensor from `source`, to `dtype`. Tensors follow each other in
 * memory without gaps. `table` is borrowed and must outlive it. */
enum zd_status replicated_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source,
        struct replicated_params **replica_out);
void replicated_destroy(struct replicated_params *replica);

struct model_hooks replicated_hooks(struct replicated_params *replica);

void *replicated_param(
        struct replicated_params *replica, int id); /* (count) of dtype */
