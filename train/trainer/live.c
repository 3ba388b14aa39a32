#include "train/trainer/trainer.h"

#include "base/log.h"
#include "train/checkpoint/manifest.h"

#include <math.h>

/* --- the settings --------------------------------------------------------- */

double live_scheduled_rate(const struct trainer *trainer)
{
    return optim_learning_rate(
            &trainer->job->optim, trainer->state.step,
            trainer->state.max_steps);
}

/* The rate of the step after `steps` steps. */
static double rate_after(const struct trainer *trainer, int64_t steps)
{
    const struct train_live *live = &trainer->state.live;
    double set = live->value[SET_LEARNING_RATE];
    double rate = optim_learning_rate(
            &trainer->job->optim, steps, trainer->state.max_steps);
    if (!live->given[SET_LEARNING_RATE])
        return rate;
    /* exactly the requested rate while the schedule is at the same value */
    return rate == live->rate_base ? set : rate * (set / live->rate_base);
}

double live_learning_rate(const struct trainer *trainer)
{
    return rate_after(trainer, trainer->state.step);
}

static int64_t warmup_steps(const struct trainer *trainer)
{
    return optim_warmup_steps(&trainer->job->optim, trainer->state.max_steps);
}

double live_peak_rate(const struct trainer *trainer)
{
    int64_t warmup = warmup_steps(trainer);
    return trainer->state.step + 1 < warmup ? rate_after(trainer, warmup - 1)
                                            : NAN;
}

void live_set(struct trainer *trainer, const struct train_command *command)
{
    struct train_live *live = &trainer->state.live;
    if (command->given[SET_LEARNING_RATE])
        live->rate_base = isnan(live_peak_rate(trainer))
                                  ? live_scheduled_rate(trainer)
                                  : trainer->job->optim.learning_rate;
    for (int id = 0; id < SETTINGS; id++)
        if (command->given[id]) {
            live->given[id] = true;
            live->value[id] = command->value[id];
        }
    if (command->given[SET_ACCUMULATION])
        live->global_batch = trainer->plan.global_batch;
}

bool live_rate_note(const struct trainer *trainer, char *text, size_t bytes)
{
    int64_t next = trainer->state.step + 1, last = trainer->state.max_steps;
    int64_t warmup = warmup_steps(trainer);
    double now = live_learning_rate(trainer), peak = live_peak_rate(trainer);
    double end = rate_after(trainer, last - 1);
    char rise[96] = "", fall[96] = "";
    if (!isnan(peak))
        ZD_PRINT(
                rise, ", warms up to %.4g at step %lld", peak,
                (long long)warmup);
    if (last > warmup && end != (isnan(peak) ? now : peak))
        ZD_PRINT(fall, ", decays to %.4g at step %lld", end, (long long)last);
    if (!rise[0] && !fall[0])
        return false; /* no change */
    snprintf(
            text, bytes, "learning_rate is %.4g at step %lld%s%s", now,
            (long long)next, rise, fall);
    return true;
}

double live_max_grad_norm(const struct trainer *trainer)
{
    const struct train_live *live = &trainer->state.live;
    return live->given[SET_MAX_GRAD_NORM] ? live->value[SET_MAX_GRAD_NORM]
                                          : trainer->job->optim.max_grad_norm;
}

/* The interval as set, else the job's, which may be a fraction of all steps. */
static int64_t interval(
        const struct trainer *trainer, enum train_setting_id id, double steps)
{
    const struct train_live *live = &trainer->state.live;
    if (live->given[id])
        return (int64_t)live->value[id];
    if (steps > 0 && steps < 1)
        steps = ceil(steps * (double)trainer->state.max_steps);
    return steps >= 1 ? (int64_t)steps : 0;
}

int64_t live_save_steps(const struct trainer *trainer)
{
    return interval(
            trainer, SET_SAVE_STEPS, trainer->job->checkpoint.save_steps);
}

int64_t live_eval_steps(const struct trainer *trainer)
{
    return interval(trainer, SET_EVAL_STEPS, trainer->job->eval.eval_steps);
}

bool live_saves_by_steps(const struct trainer *trainer)
{
    return trainer->job->checkpoint.save_strategy == SAVE_STEPS;
}

bool live_evaluates_by_steps(const struct trainer *trainer)
{
    return trainer->job->eval.eval_strategy == EVAL_STEPS &&
           trainer->plan.shape.eval_B > 0;
}

void live_settings(const struct trainer *trainer, double *values)
{
    values[SET_LEARNING_RATE] = live_learning_rate(trainer);
    values[SET_MAX_GRAD_NORM] = live_max_grad_norm(trainer);
    values[SET_ACCUMULATION] = trainer->plan.accumulation;
    values[SET_LOGGING_STEPS] = (double)interval(
            trainer, SET_LOGGING_STEPS, trainer->job->log.logging_steps);
    values[SET_SAVE_STEPS] = live_saves_by_steps(trainer)
                                     ? (double)live_save_steps(trainer)
                                     : NAN;
    values[SET_EVAL_STEPS] = live_evaluates_by_steps(trainer)
                                     ? (double)live_eval_steps(trainer)
                                     : NAN;
}

/* --- resume --------------------------------------------------------------- */

static void forget_changed(
        struct train_live *live, const json_t *before, const json_t *now)
{
    for (int id = 0; id < SETTINGS; id++) {
        const char *key = train_settings[id].key;
        const json_t *a = json_object_get(before, key);
        const json_t *b = json_object_get(now, key);
        if (!live->given[id] || id == SET_ACCUMULATION || !a || !b ||
            json_number_value(a) == json_number_value(b))
            continue;
        zd_log_info(
                "%s of the job file holds again: it was changed after `set` "
                "had set it",
                key);
        live->given[id] = false;
        live->value[id] = 0;
    }
}

/* A job that gives the global batch keeps it with any number of ranks; one that
 * gives micro-batches keeps their number. 0: it cannot. `across`: samples of a
 * micro-batch of all ranks. */
static int64_t set_micros(
        const struct train_job *job, int64_t accumulation, int64_t global_batch,
        int64_t across)
{
    if (!job->train.global_batch_size)
        return accumulation;
    return global_batch % across ? 0 : global_batch / across;
}

enum zd_status live_plan_batch(
        struct trainer *trainer, struct train_options *train)
{
    const struct run_ahead *ahead = &trainer->ahead;
    int world = trainer->plan.world, B, A;
    struct mesh mesh;
    ZD_TRY(mesh_cut(trainer->job->parallel, world, &mesh));
    int samplers = mesh_samples(mesh, 0).size;
    ZD_TRY(train_resolve_batch(
            train, samplers, world / samplers, &B, &A, &trainer->job_batch));
    int64_t micros = set_micros(
            trainer->job, ahead->accumulation, ahead->global_batch,
            (int64_t)B * samplers);
    if (!ahead->accumulation || micros < 1 || micros > INT32_MAX)
        return ZD_OK; /* resume_batch tells what is wrong */
    train->global_batch_size = 0;
    train->per_device_train_batch_size = B;
    train->gradient_accumulation_steps = (int)micros;
    return ZD_OK;
}

static int64_t samples_across(const struct trainer *trainer)
{
    int samplers = mesh_samples(trainer->plan.mesh, 0).size;
    return (int64_t)trainer->plan.per_device * samplers;
}

enum zd_status live_own_batch(struct trainer *trainer)
{
    return batches_accumulate(
            trainer, (int)(trainer->job_batch / samples_across(trainer)));
}

static enum zd_status resume_batch(struct trainer *trainer)
{
    struct train_live *live = &trainer->state.live;
    const struct train_job *job = trainer->job;
    int64_t across = samples_across(trainer);
    int64_t A = set_micros(
            job, (int64_t)live->value[SET_ACCUMULATION], live->global_batch,
            across);
    if (A == 0) {
        ZD_FAIL(ZD_ERR_CONFIG, "E1009",
                "the global batch was set to %lld samples while the run went "
                "on; %lld ranks of %d samples do not divide it",
                (long long)live->global_batch,
                (long long)(across / trainer->plan.per_device),
                trainer->plan.per_device);
        return zd_fail_help(
                "another number of ranks, or train.global_batch_size in the "
                "job file, which then holds again");
    }
    if (job->train.global_batch_size)
        zd_log_info(
                "resuming with train.global_batch_size = %lld, set while the "
                "run went on (%lld in the job file)",
                (long long)live->global_batch, (long long)trainer->job_batch);
    ZD_TRY(batches_accumulate(trainer, (int)A));
    live->value[SET_ACCUMULATION] = (double)A;
    live->global_batch = trainer->plan.global_batch;
    return ZD_OK;
}

enum zd_status live_resume(struct trainer *trainer, const json_t *manifest)
{
    struct train_live *live = &trainer->state.live;
    json_auto_t *now =
            manifest_settings(trainer->job, trainer->writer.global_batch);
    forget_changed(live, json_object_get(manifest, "settings"), now);
    if (!live->given[SET_ACCUMULATION])
        return live_own_batch(trainer);
    if (manifest_batch_changed(manifest, &trainer->job->train)) {
        zd_log_info("the batch of the job file holds again: it was changed "
                    "after `set` had set it");
        live->given[SET_ACCUMULATION] = false;
        live->value[SET_ACCUMULATION] = 0;
        return live_own_batch(trainer);
    }
    return resume_batch(trainer);
}
