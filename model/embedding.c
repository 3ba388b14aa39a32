#include "model/internal.h"

#include "base/device/device_memory.h"

/* Each place has some rows of the token table, and reads zeros for ids of
 * others (batch.c). Positions are those of the share. */
static enum zd_status add_rows(
        const struct model *model, const struct pass *pass, enum role role,
        const int32_t *rows, void *out, bool add)
{
    bool is_cut = role == ROLE_TOKENS;
    void *part = is_cut ? tokens_part(model, out) : out;
    ZD_TRY(model->kernels->embedding_forward(
            NULL, part, rows, model->params[role_id(model, 0, role)],
            is_cut ? pass->N : pass->share, model->config->hidden_size, add));
    return tokens_scatter(model, out, part, pass->share);
}

/* transformers rounds Gemma's factor to the weight's type. */
static double embedding_scale(const struct model *model)
{
    float scale = (float)model->config->embedding_scale;
    if (model->config->family->embedding_scale_rounded)
        dtype_round(&scale, model->kernels->dtype, 1);
    return scale;
}

enum zd_status embedding_forward(
        const struct model *model, const struct pass *pass, void *out)
{
    double scale = embedding_scale(model);
    ZD_TRY(add_rows(model, pass, ROLE_TOKENS, pass->tokens, out, false));
    if (role_id(model, 0, ROLE_POSITIONS) >= 0)
        ZD_TRY(add_rows(
                model, pass, ROLE_POSITIONS, pass->own_positions, out, true));
    return scale ? hidden_scale(model, out, out, pass->share, scale) : ZD_OK;
}

/* Clears the gradient unless it accumulates. */
static enum zd_status scatter_rows(
        const struct model *model, enum role role, const int32_t *rows,
        const int32_t *order, const struct pass *pass, bool add)
{
    int id = role_id(model, 0, role);
    float *grad = model->grads[id];
    if (!grad)
        return ZD_OK;
    bool is_cut = role == ROLE_TOKENS;
    void *dout = pass->acts->dx;
    if (!add)
        ZD_TRY(device_clear(
                grad, model->table->params[id].count * sizeof *grad));
    if (is_cut)
        ZD_TRY(tokens_gather(model, 0, dout, pass->share, &dout));
    return model->kernels->embedding_backward(
            NULL, grad, rows, order, dout, is_cut ? pass->N : pass->share,
            model->config->hidden_size);
}

/* tokens_add: the head has already written its part of the token table's
 * gradient. */
static enum zd_status scatter_pass(
        const struct model *model, const struct pass *pass, bool tokens_add,
        bool accumulate)
{
    double scale = embedding_scale(model);
    void *dx = pass->acts->dx;
    if (scale)
        ZD_TRY(hidden_scale(model, dx, dx, pass->share, scale));
    ZD_TRY(scatter_rows(
            model, ROLE_TOKENS, pass->tokens, pass->token_order, pass,
            tokens_add));
    return role_id(model, 0, ROLE_POSITIONS) < 0
                   ? ZD_OK
                   : scatter_rows(
                             model, ROLE_POSITIONS, pass->own_positions,
                             pass->position_order, pass, accumulate);
}

enum zd_status embedding_backward(struct model *model)
{
    bool held = model->embedding_grads_held;
    bool accumulate = model->embedding_accumulates;
    if (!model->unit_trains[0])
        return ZD_OK;
    if (!held)
        ZD_TRY(unit_grads_acquire(model, 0, &accumulate));
    for (int m = 0; m < model->pass_count; m++) {
        ZD_TRY(scatter_pass(
                model, &model->pass[m], held || accumulate, accumulate));
        accumulate = true;
    }
    model->embedding_grads_held = false;
    return unit_grads_release(model, 0);
}
