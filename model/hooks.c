#include "model/internal.h"

#include <assert.h>

static size_t share_count(const struct model *model, int rows)
{
    return (size_t)rows * (size_t)model->config->hidden_size;
}

enum zd_status tokens_gather(
        const struct model *model, const struct pass *pass, int i, void *share,
        int rows, void **all_out)
{
    *all_out = share;
    if (tp_size(model->config) == 1)
        return ZD_OK;
    *all_out = model->all_tokens[i];
    return pass->hooks->tokens_gather(
            pass->hooks->ctx, *all_out, share, share_count(model, rows));
}

void *tokens_part(const struct model *model, void *share)
{
    return share && tp_size(model->config) > 1 ? model->all_tokens[0] : share;
}

enum zd_status tokens_scatter(
        const struct model *model, const struct pass *pass, void *share,
        void *part, int rows)
{
    if (part == share)
        return ZD_OK;
    return pass->hooks->tokens_scatter(
            pass->hooks->ctx, share, part, share_count(model, rows));
}

void hooks_begin(struct model *model, const struct event_list *program)
{
    model->program = program;
    model->event = 0;
}

void hooks_end(const struct model *model)
{
    assert(model->event == model->program->count);
}

static void expect(struct model *model, int unit, bool acquire)
{
    assert(model->event < model->program->count);
    const struct unit_event *e = &model->program->events[model->event++];
    assert(e->unit == unit && e->acquire == acquire);
    (void)e;
}

enum zd_status unit_acquire(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    expect(model, unit, true);
    return hooks->params_acquire(hooks->ctx, unit, model->params);
}

enum zd_status unit_release(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    expect(model, unit, false);
    return hooks->params_release(hooks->ctx, unit);
}

enum zd_status unit_grads_acquire(
        struct model *model, const struct model_hooks *hooks, int unit,
        bool *accumulate_out)
{
    *accumulate_out = false;
    if (!model->unit_trains[unit])
        return ZD_OK;
    model->product_grads = hooks->product_grads;
    return hooks->grads_acquire(hooks->ctx, unit, model->grads, accumulate_out);
}

enum zd_status unit_grads_release(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    if (!model->unit_trains[unit])
        return ZD_OK;
    return hooks->grads_release(hooks->ctx, unit);
}
