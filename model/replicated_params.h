/* replicated_params.h - all parameters and gradients of a model on one device,
 * whole: the model_hooks of someone who shards nothing (tests, generation,
 * benchmarks). */
#pragma once

#include "model/model.h"
#include "model/weights.h"

struct replicated_params;

/* Read every tensor from `source`, to `dtype`; with gradients, fp32 ones for
 * the trainable tensors. Tensors follow each other in memory without gaps.
 * `table` is borrowed and must outlive it. */
enum zd_status replicated_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source, bool with_grads,
        struct replicated_params **replica_out);
void replicated_destroy(struct replicated_params *replica);

struct model_hooks replicated_hooks(struct replicated_params *replica);
/* The next micro-batch writes the gradients, those after it add to them. */
void replicated_step_begin(struct replicated_params *replica);

void *replicated_param(
        struct replicated_params *replica, int id); /* (count) of dtype */
float *replicated_grad(
        struct replicated_params *replica, int id); /* (count); NULL: frozen */
