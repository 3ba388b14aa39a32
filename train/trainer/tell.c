/* tell.c - what is heard of a run at rank 0: the observer, metrics.jsonl and
 * events.jsonl. */
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

/* What may be long is no hang. A start says so part by part (train/setup.c). */
static void tell_watch(struct trainer *trainer, enum train_run_state state)
{
    static const enum comm_work works[RUN_STATES] = {
            [RUN_EVALUATING] = WORK_EVALUATE,
            [RUN_SAMPLING] = WORK_SAMPLE,
            [RUN_CHECKPOINTING] = WORK_SAVE};
    if (state != RUN_STARTING)
        comm_work(trainer->comm, works[state]);
}

void trainer_tell_state(struct trainer *trainer, enum train_run_state state)
{
    const struct train_observer *observer = trainer->observer;
    int64_t step = trainer->state.step;
    if (trainer->run_state == state && state != RUN_STARTING)
        return;
    trainer->run_state = state;
    tell_watch(trainer, state);
    if (!trainer_is_first(trainer))
        return;
    if (observer->state)
        observer->state(observer->ctx, state, step);
    json_t *members = state == RUN_STARTING
                              ? job_plan_parameters(&trainer->plan)
                              : json_object();
    json_object_set_new(
            members, "state", json_string(train_run_state_name(state)));
    events_tell(trainer->events, "state", step, members);
}

enum zd_status trainer_tell_step(
        struct trainer *trainer, const struct train_step_report *report)
{
    const struct train_observer *observer = trainer->observer;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    json_t *row = metrics_row(report);
    if (events_want_steps(trainer->events))
        events_tell(trainer->events, "step", report->step, json_incref(row));
    ZD_TRY(metrics_add(trainer->metrics, row));
    trainer_state_step(trainer, report);
    if (observer->step)
        observer->step(observer->ctx, report);
    return ZD_OK;
}

enum zd_status trainer_tell_eval(struct trainer *trainer, double eval_loss)
{
    const struct train_observer *observer = trainer->observer;
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    if (observer->eval)
        observer->eval(observer->ctx, step, eval_loss);
    events_tell(
            trainer->events, "eval", step,
            json_pack("{s:o}", "eval_loss", json_number_or_null(eval_loss)));
    trainer_state_eval(trainer, eval_loss);
    return metrics_eval(trainer->metrics, step, eval_loss);
}

void trainer_tell_sample(struct trainer *trainer, json_t *sample)
{
    const struct train_observer *observer = trainer->observer;
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return;
    const char *prompt = json_string_value(json_object_get(sample, "prompt"));
    const char *text = json_string_value(json_object_get(sample, "text"));
    if (observer->sample && prompt && text)
        observer->sample(observer->ctx, step, prompt, text);
    events_tell(trainer->events, "sample", step, json_incref(sample));
}

void trainer_tell_saved(
        struct trainer *trainer, const struct train_saved *saved)
{
    const struct train_observer *observer = trainer->observer;
    if (!trainer_is_first(trainer))
        return;
    if (observer->saved)
        observer->saved(observer->ctx, saved);
    events_tell(
            trainer->events, "checkpoint", saved->step,
            json_pack(
                    "{s:s, s:f, s:f, s:f}", "path", saved->path, "seconds",
                    saved->seconds, "stall_seconds", saved->stall_seconds,
                    "write_seconds", saved->write_seconds));
}
