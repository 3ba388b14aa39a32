#include "model/internal.h"

#include "base/device/device_memory.h"

enum zd_status embedding_forward(
        struct model *model, const struct pass *pass,
        const struct model_hooks *hooks, void *out)
{
    const struct kernels *k = model->kernels;
    int C = model->config->hidden_size;
    ZD_TRY(unit_acquire(model, hooks, 0));
    ZD_TRY(k->embedding_forward(
            NULL, out, pass->tokens, model->params[model->wte], pass->N, C,
            false));
    if (model->wpe >= 0)
        ZD_TRY(k->embedding_forward(
                NULL, out, pass->positions, model->params[model->wpe], pass->N,
                C, true));
    return unit_release(model, hooks, 0);
}

/* Add the rows of dx to a table's gradient, which begins at nothing unless
 * something is in it. */
static enum zd_status scatter(
        const struct model *model, int id, const int32_t *rows,
        const int32_t *order, const void *dx, int N, bool add)
{
    float *grad = model->grads[id];
    if (!grad)
        return ZD_OK;
    if (!add)
        ZD_TRY(device_clear(
                grad, model->table->params[id].count * sizeof *grad));
    return model->kernels->embedding_backward(
            NULL, grad, rows, order, dx, N, model->config->hidden_size);
}

enum zd_status embedding_backward(
        struct model *model, const struct pass *pass,
        const struct model_hooks *hooks)
{
    bool held = model->embedding_grads_held;
    bool accumulate = model->embedding_accumulates;
    const void *dx = pass->acts->dx;
    if (!model->unit_trains[0])
        return ZD_OK;
    if (!held)
        ZD_TRY(unit_grads_acquire(model, hooks, 0, &accumulate));
    /* A tied head has written its part of the token table already. */
    ZD_TRY(
            scatter(model, model->wte, pass->tokens, pass->token_order, dx,
                    pass->N, held || accumulate));
    if (model->wpe >= 0)
        ZD_TRY(
                scatter(model, model->wpe, pass->positions,
                        pass->position_order, dx, pass->N, accumulate));
    model->embedding_grads_held = false;
    return unit_grads_release(model, hooks, 0);
}
