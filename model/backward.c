#include "model/internal.h"

static enum zd_status backward_one(
        struct model *model, const struct pass *pass, int layer,
        const struct model_hooks *hooks)
{
    struct layer_acts slot = kept_acts(pass->acts, layer);
    struct layer_run run = {model, pass, &slot, layer};
    ZD_TRY(unit_grads_acquire(model, hooks, layer, &run.accumulate));
    ZD_TRY(layer_backward(&run));
    ZD_TRY(unit_grads_release(model, hooks, layer));
    return unit_release(model, hooks, layer);
}

/* Recompute a segment's layers, then go back through them; each stays
 * acquired from the one to the other. */
static enum zd_status backward_segment(
        struct model *model, const struct pass *pass, int from, int to,
        const struct model_hooks *hooks)
{
    for (int layer = from; layer <= to; layer++) {
        ZD_TRY(unit_acquire(model, hooks, layer));
        ZD_TRY(forward_kept(model, pass, layer, false, layer < to));
    }
    for (int layer = to; layer >= from; layer--)
        ZD_TRY(backward_one(model, pass, layer, hooks));
    return ZD_OK;
}

enum zd_status model_backward(
        struct model *model, const struct model_hooks *hooks)
{
    const struct activations *acts = &model->passes[PASS_TRAIN];
    struct pass *pass = &model->pass;
    int layers = model->config->layers;
    pass->hooks = hooks;
    if (!acts->recompute)
        for (int layer = layers; layer >= acts->first; layer--) {
            ZD_TRY(unit_acquire(model, hooks, layer));
            ZD_TRY(backward_one(model, pass, layer, hooks));
        }
    else
        for (int s = acts->segments - 1; s >= 0; s--) {
            ZD_TRY(residuals_return(model, pass, s));
            int from = acts->first + s * acts->segment;
            int to = from + acts->segment - 1;
            ZD_TRY(backward_segment(
                    model, pass, from, to < layers ? to : layers, hooks));
        }
    ZD_TRY(embedding_backward(model, pass, hooks));
    hooks_end(model);
    return ZD_OK;
}
