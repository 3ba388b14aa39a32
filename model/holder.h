/* holder.h - all parameters and gradients of a model on one device, whole: the
 * model_hooks of someone who shards nothing (tests, generation, benchmarks). */
#ifndef ZD_MODEL_HOLDER_H
#define ZD_MODEL_HOLDER_H

#include "model/model.h"
#include "model/weights.h"

struct holder;

/* Reads every tensor from `source` and keeps it in `dtype`; with gradients,
 * fp32 ones for the trainable tensors. `table` is borrowed and must outlive it.
 */
enum zd_status holder_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source, bool with_grads,
        struct holder **holder_out);
void holder_destroy(struct holder *holder);

struct model_hooks holder_hooks(struct holder *holder);
/* The next micro-batch writes the gradients, those after it add to them. */
void holder_step_begin(struct holder *holder);

void *holder_param(struct holder *holder, int id); /* (count) of dtype */
float *holder_grad(struct holder *holder, int id); /* (count); NULL: frozen */

#endif
