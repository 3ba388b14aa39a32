#include "train/trainer/live.h"

#include "base/log.h"
#include "train/checkpoint/manifest.h"
#include "train/trainer/batches.h"
#include "train/trainer/between.h"

#include <math.h>

/* --- the settings --------------------------------------------------------- */

static double scheduled_rate(const struct trainer *trainer)
{
    return optim_learning_rate(
            &trainer->job->optim, trainer->state.step,
            trainer->state.max_steps);
}

/* Of the step behind `steps` of them. */
static double rate_after(const struct trainer *trainer, int64_t steps)
{
    const struct train_live *live = &trainer->state.live;
    double rate = optim_learning_rate(
            &trainer->job->optim, steps, trainer->state.max_steps);
    if (!(live->rate_set > 0))
        return rate;
    /* the rate that was asked for, exactly, wherever the schedule stands as it
     * stood then */
    return rate == live->rate_base ? live->rate_set
                                   : rate * (live->rate_set / live->rate_base);
}

double live_learning_rate(const struct trainer *trainer)
{
    return rate_after(trainer, trainer->state.step);
}

bool live_in_warmup(const struct trainer *trainer)
{
    return trainer->state.step + 1 <
           optim_warmup_steps(&trainer->job->optim, trainer->state.max_steps);
}

bool live_rate_note(const struct trainer *trainer, char *text, size_t bytes)
{
    int64_t next = trainer->state.step + 1, last = trainer->state.max_steps;
    int64_t warmup = optim_warmup_steps(&trainer->job->optim, last);
    double now = live_learning_rate(trainer);
    double end = rate_after(trainer, last - 1);
    char rise[96] = "";
    if (live_in_warmup(trainer))
        snprintf(
                rise, sizeof rise, "rises to %.4g at step %lld, and is ",
                rate_after(trainer, warmup - 1), (long long)warmup);
    else if (next >= last || end == now)
        return false; /* it is what it stays */
    snprintf(
            text, bytes,
            "the %s goes on: learning_rate is %.4g at step %lld, the next, "
            "%s%.4g at step %lld, the last",
            rise[0] ? "warm-up" : "schedule", now, (long long)next,
            rise[0] ? rise : "and ", end, (long long)last);
    return true;
}

double live_max_grad_norm(const struct trainer *trainer)
{
    const struct train_live *live = &trainer->state.live;
    return live->has_max_grad_norm ? live->max_grad_norm
                                   : trainer->job->optim.max_grad_norm;
}

static int64_t interval(const struct trainer *trainer, int64_t set, double job)
{
    return set > 0 ? set : steps_interval(job, trainer->state.max_steps);
}

int64_t live_save_steps(const struct trainer *trainer)
{
    return interval(
            trainer, trainer->state.live.save_steps,
            trainer->job->checkpoint.save_steps);
}

int64_t live_eval_steps(const struct trainer *trainer)
{
    return interval(
            trainer, trainer->state.live.eval_steps,
            trainer->job->eval.eval_steps);
}

static bool saves_by_steps(const struct trainer *trainer)
{
    return trainer->job->checkpoint.save_strategy == SAVE_STEPS;
}

static bool evaluates_by_steps(const struct trainer *trainer)
{
    return trainer->job->eval.eval_strategy == EVAL_STEPS &&
           trainer->plan.shape.eval_B > 0;
}

void live_settings(const struct trainer *trainer, double *values)
{
    const struct train_live *live = &trainer->state.live;
    values[SET_LEARNING_RATE] = live_learning_rate(trainer);
    values[SET_MAX_GRAD_NORM] = live_max_grad_norm(trainer);
    values[SET_ACCUMULATION] = trainer->plan.accumulation;
    values[SET_LOGGING_STEPS] = (double)interval(
            trainer, live->logging_steps, trainer->job->log.logging_steps);
    values[SET_SAVE_STEPS] =
            saves_by_steps(trainer) ? (double)live_save_steps(trainer) : NAN;
    values[SET_EVAL_STEPS] = evaluates_by_steps(trainer)
                                     ? (double)live_eval_steps(trainer)
                                     : NAN;
}

void live_asked(const struct trainer *trainer, bool *is_set, double *values)
{
    const struct train_live *live = &trainer->state.live;
    values[SET_LEARNING_RATE] = live->rate_set;
    values[SET_MAX_GRAD_NORM] = live->max_grad_norm;
    values[SET_ACCUMULATION] = trainer->plan.accumulation;
    values[SET_LOGGING_STEPS] = (double)live->logging_steps;
    values[SET_SAVE_STEPS] = (double)live->save_steps;
    values[SET_EVAL_STEPS] = (double)live->eval_steps;
    for (int id = 0; id < SETTINGS; id++)
        is_set[id] = values[id] > 0;
    is_set[SET_MAX_GRAD_NORM] = live->has_max_grad_norm;
    is_set[SET_ACCUMULATION] = live->accumulation > 0;
}

/* --- set ------------------------------------------------------------------ */

static enum zd_status check_range(const struct train_command *command)
{
    int given = 0;
    for (int id = 0; id < SETTINGS; id++) {
        const struct train_setting *setting = &train_settings[id];
        double value = command->value[id];
        if (!command->given[id])
            continue;
        given++;
        if (!(value >= setting->min && value <= setting->max) ||
            (setting->is_above_min && value == setting->min) ||
            (setting->is_integer && value != floor(value)))
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E1005", "%s cannot be %.17g", setting->name,
                    value);
    }
    if (!given)
        return ZD_FAIL(ZD_ERR_USAGE, "E1005", "no setting is given");
    return ZD_OK;
}

/* What does not depend on this rank alone: all come to the same answer. */
static enum zd_status check_set(
        const struct trainer *trainer, const struct train_command *command)
{
    ZD_TRY(check_range(command));
    if (command->given[SET_SAVE_STEPS] && !saves_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not save by a number of steps");
        zd_fail_help("checkpoint.save_strategy = \"steps\"");
        return ZD_ERR_USAGE;
    }
    if (command->given[SET_EVAL_STEPS] && !evaluates_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not evaluate by a number of steps");
        zd_fail_help("eval.eval_strategy = \"steps\", and [[data.eval]]");
        return ZD_ERR_USAGE;
    }
    if (command->given[SET_LEARNING_RATE] && !(scheduled_rate(trainer) > 0))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1007",
                "the schedule's learning rate is 0 at step %lld and cannot be "
                "scaled",
                (long long)trainer->state.step + 1);
    return ZD_OK;
}

/* The loader's thread reads the plan, so it stops meanwhile. */
static enum zd_status change_accumulation(
        struct trainer *trainer, int accumulation,
        struct command_outcome *outcome)
{
    batches_stop(trainer);
    enum zd_status status = batches_accumulate(trainer, accumulation);
    if (status == ZD_ERR_UNFIT || status == ZD_ERR_CONFIG)
        command_fail(outcome); /* all ranks have the same plan */
    else
        ZD_TRY(status);
    if (status == ZD_OK) {
        trainer->state.live.accumulation = accumulation;
        trainer->state.live.global_batch = trainer->plan.global_batch;
    }
    return comm_agree(trainer->comm, batches_start(trainer));
}

static void apply(struct trainer *trainer, const struct train_command *command)
{
    struct train_live *live = &trainer->state.live;
    const double *value = command->value;
    if (command->given[SET_LEARNING_RATE]) {
        live->rate_base = scheduled_rate(trainer);
        live->rate_set = value[SET_LEARNING_RATE];
    }
    if (command->given[SET_MAX_GRAD_NORM]) {
        live->has_max_grad_norm = true;
        live->max_grad_norm = value[SET_MAX_GRAD_NORM];
    }
    if (command->given[SET_LOGGING_STEPS])
        live->logging_steps = (int64_t)value[SET_LOGGING_STEPS];
    if (command->given[SET_SAVE_STEPS])
        live->save_steps = (int64_t)value[SET_SAVE_STEPS];
    if (command->given[SET_EVAL_STEPS])
        live->eval_steps = (int64_t)value[SET_EVAL_STEPS];
    trainer->last_saved_step = -1; /* what is saved of this step says less */
}

static json_t *settings_json(const struct trainer *trainer)
{
    double values[SETTINGS];
    json_t *json = json_object();
    live_settings(trainer, values);
    for (int id = 0; id < SETTINGS; id++) {
        bool is_whole = train_settings[id].is_integer && !isnan(values[id]);
        json_object_set_new(
                json, train_settings[id].name,
                is_whole ? json_integer((json_int_t)values[id])
                         : json_number_or_null(values[id]));
    }
    return json;
}

enum zd_status live_set(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    if (check_set(trainer, command) != ZD_OK) {
        command_fail(outcome);
        return ZD_OK;
    }
    if (command->given[SET_ACCUMULATION])
        ZD_TRY(change_accumulation(
                trainer, (int)command->value[SET_ACCUMULATION], outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    char note[256];
    apply(trainer, command);
    outcome->result = settings_json(trainer);
    if (command->given[SET_LEARNING_RATE] &&
        live_rate_note(trainer, note, sizeof note))
        json_object_set_new(outcome->result, "note", json_string(note));
    return ZD_OK;
}

/* --- resume --------------------------------------------------------------- */

static bool is_changed(const json_t *before, const json_t *now, const char *key)
{
    const json_t *a = json_object_get(before, key);
    const json_t *b = json_object_get(now, key);
    if (!a || !b || json_number_value(a) == json_number_value(b))
        return false;
    zd_log_info(
            "%s of the job file holds again: it was changed after `set` had "
            "set it",
            key);
    return true;
}

static void forget_changed(
        struct train_live *live, const json_t *before, const json_t *now)
{
    if (live->rate_set > 0 && is_changed(before, now, "optim.learning_rate"))
        live->rate_set = live->rate_base = 0;
    if (live->has_max_grad_norm &&
        is_changed(before, now, "optim.max_grad_norm"))
        live->has_max_grad_norm = false;
    if (live->logging_steps && is_changed(before, now, "log.logging_steps"))
        live->logging_steps = 0;
    if (live->save_steps && is_changed(before, now, "checkpoint.save_steps"))
        live->save_steps = 0;
    if (live->eval_steps && is_changed(before, now, "eval.eval_steps"))
        live->eval_steps = 0;
}

/* A job that gives the global batch keeps it whatever the world; one that gives
 * micro-batches keeps these. */
static enum zd_status resume_accumulation(struct trainer *trainer)
{
    struct train_live *live = &trainer->state.live;
    int64_t across = (int64_t)trainer->plan.per_device * trainer->plan.world;
    int64_t A = live->accumulation;
    if (trainer->job->train.global_batch_size > 0) {
        A = live->global_batch / across;
        if (A * across != live->global_batch) {
            ZD_FAIL(ZD_ERR_CONFIG, "E1009",
                    "the global batch was set to %lld samples while the run "
                    "went on; %d ranks of %d samples do not divide it",
                    (long long)live->global_batch, trainer->plan.world,
                    trainer->plan.per_device);
            zd_fail_help("another number of ranks, or train.global_batch_size "
                         "in the job file, which then holds again");
            return ZD_ERR_CONFIG;
        }
    }
    ZD_TRY(batches_accumulate(trainer, (int)A));
    live->accumulation = A;
    live->global_batch = trainer->plan.global_batch;
    return ZD_OK;
}

enum zd_status live_resume(struct trainer *trainer, const json_t *manifest)
{
    struct train_live *live = &trainer->state.live;
    json_t *now = manifest_settings(trainer->job, trainer->writer.global_batch);
    forget_changed(live, json_object_get(manifest, "settings"), now);
    json_decref(now);
    if (!live->accumulation)
        return ZD_OK;
    if (manifest_batch_changed(manifest, &trainer->job->train)) {
        zd_log_info("the batch of the job file holds again: it was changed "
                    "after `set` had set it");
        live->accumulation = live->global_batch = 0;
        return ZD_OK;
    }
    return resume_accumulation(trainer);
}
