/* fake.h - a model without arithmetic: tensors of awkward sizes, and a pass
 * that calls the hooks in the order of model_unit_events and makes gradients
 * out of the parameters it is given and a hash. So a wrong parameter, a
 * gradient that is lost, doubled or reduced too early shows in the weights
 * after a step. */
#pragma once

#include "zero/zero.h"

struct fake {
    struct model_config config;
    struct param_table table;
};

struct fake_shape {
    int layers;
    bool tied;
    int scale;        /* 1: tensors of a few hundred elements */
    int freeze_every; /* every n-th tensor is frozen; 0: none */
    bool freeze_low;  /* the embedding and the first layer are frozen */
};

void fake_create(struct fake *fake, const struct fake_shape *shape);
void fake_destroy(struct fake *fake);

/* Initial weights. */
struct weight_source fake_weights(struct fake *fake);

struct fake_pass {
    const struct fake *fake;
    const struct model_hooks *hooks;
    enum dtype dtype;
    struct checkpointing checkpointing;
    int rank, micro, step;
    int more; /* micro-batches after it that take turns with it in each unit */
    bool silent; /* every gradient is 0 */
    bool broken; /* one gradient is not finite */
    void *late;  /* fake_largest_bytes of the device */
};
size_t fake_largest_bytes(const struct fake *fake); /* of a tensor, in fp32 */
/* Forward and backward of a micro-batch. *sum_out (may be NULL): what the
 * parameters that were seen add up to. */
enum zd_status fake_train(const struct fake_pass *pass, double *sum_out);
enum zd_status fake_evaluate(const struct fake_pass *pass, double *sum_out);
