#include "model/internal.h"

/* Layers whose backward runs together: a segment that is recomputed from its
 * input, or one layer that kept everything. */
struct group {
    int from, to;
};

static enum zd_status recompute(
        struct model *model, const struct pass *pass, int layer,
        const struct group *group)
{
    if (!pass->acts->recompute)
        return ZD_OK;
    if (layer == group->from)
        ZD_TRY(residuals_await(model, pass, layer));
    return forward_kept(model, pass, layer, false, layer < group->to);
}

/* A layer's backward, for one micro-batch after the other. The last layer of a
 * group is recomputed just before its backward. */
static enum zd_status backward_layer(
        struct model *model, int layer, const struct group *group)
{
    struct layer_run run = {.model = model, .layer = layer};
    for (int m = 0; m < model->pass_count; m++) {
        const struct pass *pass = &model->pass[m];
        if (layer == group->from && m > 0)
            ZD_TRY(residuals_fetch(model, pass, layer));
        if (layer == group->to)
            ZD_TRY(recompute(model, pass, layer, group));
        if (m == 0)
            ZD_TRY(unit_grads_acquire(model, layer, &run.accumulate));
        struct layer_acts slot = kept_acts(pass, layer);
        run.pass = pass;
        run.acts = &slot;
        run.held = pass->acts->recompute && layer == group->to;
        ZD_TRY(layer_backward(&run));
        run.accumulate = true;
    }
    ZD_TRY(unit_grads_release(model, layer));
    return unit_release(model, layer);
}

/* Each layer stays acquired from its recomputation to its backward. */
static enum zd_status backward_group(
        struct model *model, const struct group *group)
{
    ZD_TRY(residuals_fetch(model, &model->pass[0], group->from));
    for (int layer = group->from; layer <= group->to; layer++) {
        ZD_TRY(unit_acquire(model, layer));
        for (int m = 0; m < model->pass_count && layer < group->to; m++)
            ZD_TRY(recompute(model, &model->pass[m], layer, group));
    }
    for (int layer = group->to; layer >= group->from; layer--)
        ZD_TRY(backward_layer(model, layer, group));
    return ZD_OK;
}

enum zd_status model_backward(
        struct model *model, const struct model_hooks *hooks)
{
    const struct activations *acts = &model->passes[PASS_TRAIN];
    struct group group = {.to = model->config->layers};
    model->hooks = hooks;
    for (int m = 0; m < model->pass_count; m++)
        model->pass[m].inputs = model->pass[m].acts->returned;

    for (; group.to >= acts->first; group.to = group.from - 1) {
        int above = (group.to - acts->first) % acts->segment;
        group.from = acts->recompute ? group.to - above : group.to;
        ZD_TRY(backward_group(model, &group));
    }
    ZD_TRY(embedding_backward(model));
    hooks_end(model);
    return ZD_OK;
}
