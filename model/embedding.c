#include "model/internal.h"

#include <string.h>

/* Positions count from the document's first token. */
static void fill_positions(struct model *model, const struct pass *pass)
{
    for (int n = 0; n < pass->N; n++)
        model->positions[n] = pass->decode ? pass->past + n
                                           : n % pass->T - pass->doc_start[n];
}

enum zd_status embedding_forward(
        struct model *model, const struct pass *pass,
        const struct model_hooks *hooks, void *out)
{
    const struct kernels *k = model->kernels;
    int C = model->config->hidden_size;
    fill_positions(model, pass);
    ZD_TRY(unit_acquire(model, hooks, 0));
    ZD_TRY(k->embedding_forward(
            NULL, out, pass->tokens, model->params[model->wte], pass->N, C,
            false));
    if (model->wpe >= 0)
        ZD_TRY(k->embedding_forward(
                NULL, out, model->positions, model->params[model->wpe], pass->N,
                C, true));
    return unit_release(model, hooks, 0);
}

/* Add the rows of dx to a table's gradient, which begins at nothing unless
 * something is in it. */
static enum zd_status scatter(
        const struct model *model, int id, const int32_t *rows, const void *dx,
        int N, bool add)
{
    float *grad = model->grads[id];
    if (!grad)
        return ZD_OK;
    if (!add)
        memset(grad, 0, model->table->params[id].count * sizeof *grad);
    return model->kernels->embedding_backward(
            NULL, grad, rows, NULL, dx, N, model->config->hidden_size);
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
    ZD_TRY(scatter(
            model, model->wte, pass->tokens, dx, pass->N, held || accumulate));
    if (model->wpe >= 0)
        ZD_TRY(scatter(
                model, model->wpe, model->positions, dx, pass->N, accumulate));
    model->embedding_grads_held = false;
    return unit_grads_release(model, hooks, 0);
}
