#include "model/internal.h"

#include "base/device/device_memory.h"

enum zd_status embedding_rows(
        const struct model *model, enum role role, const int32_t *rows, int N,
        void *out, bool add)
{
    return model->kernels->embedding_forward(
            NULL, out, rows, model->params[role_id(model, 0, role)], N,
            model->config->hidden_size, add);
}

enum zd_status embedding_forward(
        struct model *model, const struct pass *pass,
        const struct model_hooks *hooks, void *out)
{
    ZD_TRY(unit_acquire(model, hooks, 0));
    ZD_TRY(model->config->family->embed(model, pass, out));
    return unit_release(model, hooks, 0);
}

/* A gradient that is not added to begins at 0. */
enum zd_status embedding_scatter(
        const struct model *model, enum role role, const int32_t *rows,
        const int32_t *order, const struct pass *pass, bool add)
{
    int id = role_id(model, 0, role);
    float *grad = model->grads[id];
    if (!grad)
        return ZD_OK;
    if (!add)
        ZD_TRY(device_clear(
                grad, model->table->params[id].count * sizeof *grad));
    return model->kernels->embedding_backward(
            NULL, grad, rows, order, pass->acts->dx, pass->N,
            model->config->hidden_size);
}

enum zd_status embedding_backward(
        struct model *model, const struct pass *pass,
        const struct model_hooks *hooks)
{
    bool held = model->embedding_grads_held;
    bool accumulate = model->embedding_accumulates;
    if (!model->unit_trains[0])
        return ZD_OK;
    if (!held)
        ZD_TRY(unit_grads_acquire(model, hooks, 0, &accumulate));
    ZD_TRY(model->config->family->embed_backward(
            model, pass, held || accumulate, accumulate));
    model->embedding_grads_held = false;
    return unit_grads_release(model, hooks, 0);
}
