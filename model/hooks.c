#include "model/internal.h"

#include <assert.h>

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
