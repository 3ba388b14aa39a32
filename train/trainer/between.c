#include "train/trainer/trainer.h"

static bool is_multiple(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* Did the step just made finish a pass over the data? */
static bool ends_epoch(const struct trainer *trainer)
{
    int64_t M = dataset_summary(trainer->train_data).samples;
    int64_t now = trainer->state.samples_taken;
    return M > 0 && now / M > (now - trainer->plan.global_batch) / M;
}

static bool eval_is_due(const struct trainer *trainer)
{
    const struct eval_options *eval = &trainer->job->eval;
    const struct train_state *state = &trainer->state;
    if (!trainer->eval_data || eval->eval_strategy == EVAL_NO)
        return false;
    if (state->step == state->max_steps)
        return true;
    if (eval->eval_strategy == EVAL_EPOCH)
        return ends_epoch(trainer);
    return is_multiple(state->step, live_eval_steps(trainer));
}

static bool save_is_due(const struct trainer *trainer, bool evaluated)
{
    const struct checkpoint_options *save = &trainer->job->checkpoint;
    const struct train_state *state = &trainer->state;
    switch (save->save_strategy) {
    case SAVE_NO:
    case SAVE_TIME: /* rank 0's clock says so, in the exchange of a step */
        return false;
    case SAVE_STEPS:
        return is_multiple(state->step, live_save_steps(trainer));
    case SAVE_EPOCH:
        return ends_epoch(trainer);
    case SAVE_BEST:
        return evaluated && state->best_step == state->step;
    }
    return false;
}

enum zd_status between_begin(struct trainer *trainer)
{
    struct train_offload_report late = {0};
    if (trainer->between_depth++ > 0)
        return ZD_OK;
    ZD_TRY(zero_settle(trainer->zero));
    late.engine = zero_offload_report(trainer->zero);
    /* no step stood still for these, and the next one's row gets the rest */
    late.engine.wait_down_seconds = late.engine.wait_host_seconds = 0;
    late.engine.wait_disk_seconds = late.engine.wait_up_seconds = 0;
    train_offload_add(&trainer->offload_late, &late);
    return ZD_OK;
}

enum zd_status between_end(struct trainer *trainer)
{
    if (--trainer->between_depth > 0)
        return ZD_OK;
    zero_offload_report(trainer->zero);
    model_offload_report_take(trainer->model);
    return ZD_OK;
}

enum zd_status trainer_between(struct trainer *trainer)
{
    bool eval = eval_is_due(trainer);
    bool sample = is_multiple(trainer->state.step, trainer->job->sample.steps);
    if (!eval && !sample && !save_is_due(trainer, false))
        return ZD_OK;
    ZD_TRY(between_begin(trainer));
    if (eval)
        ZD_TRY(trainer_evaluate(trainer, NULL));
    if (sample)
        ZD_TRY(trainer_sample(trainer));
    if (save_is_due(trainer, eval))
        ZD_TRY(trainer_save(trainer, SAVE_TIMED));
    return between_end(trainer);
}
