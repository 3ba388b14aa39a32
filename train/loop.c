/* loop.c - the main loop of a run: steps, and work between steps. */
#include "base/clock.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/command/commands.h"
#include "train/command/signals.h"
#include "train/run.h"
#include "train/train.h"

#include <math.h>

enum { NONFINITE_MAX = 5 };

/* Does the job let a signal end it without a checkpoint? If not, another rank
 * had too little time. */
static bool exit_was_wished_for(const struct run_options *options)
{
    return options->on_sigterm == ON_SIGNAL_EXIT ||
           options->on_sigusr1 == ON_SIGNAL_EXIT ||
           options->on_sigusr2 == ON_SIGNAL_EXIT;
}

static enum zd_status save_for_signal(struct trainer *trainer, bool must)
{
    ZD_TRY(between_begin(trainer));
    /* the end of the run waits for the save */
    ZD_TRY(trainer_save(trainer, must ? SAVE_LAST : SAVE_TIMED));
    return between_end(trainer);
}

/* Does what signals requested before this step; *stop_out: end the run with 75.
 */
static enum zd_status obey(
        struct trainer *trainer, int64_t flags, bool *stop_out)
{
    *stop_out = signals_has(flags, SIGNALS_EXIT) ||
                signals_has(flags, SIGNALS_SAVE_EXIT);
    if (signals_has(flags, SIGNALS_EXIT)) {
        if (trainer_is_first(trainer) &&
            (signals_cut_short() || !exit_was_wished_for(&trainer->job->run)))
            zd_log_warning(
                    "no time for a checkpoint before mpirun kills its "
                    "ranks; the last one stands (%s). To stop with a "
                    "checkpoint send USR1 to mpirun",
                    trainer->last_checkpoint[0] ? trainer->last_checkpoint
                                                : "none yet");
        return ZD_OK;
    }
    trainer->met_deadline = signals_has(flags, SIGNALS_DEADLINE);
    if (signals_has(flags, SIGNALS_SAVE_EXIT))
        return save_for_signal(trainer, true);
    if (signals_has(flags, SIGNALS_SAVE) ||
        signals_has(flags, SIGNALS_TIME_SAVE))
        return save_for_signal(trainer, false);
    return ZD_OK;
}

/* Logs changes of an fp16 job's loss scale. */
static void tell_scale(
        const struct trainer *trainer, const struct train_step_report *report)
{
    double was = report->loss_scale.scale,
           now = trainer->state.loss_scale.scale;
    if (report->scale_change == LOSS_SCALE_GREW)
        zd_log_info(
                "loss scale %.10g from step %lld on (was %.10g)", now,
                (long long)report->step + 1, was);
    else if (
            report->scale_change == LOSS_SCALE_SHRANK ||
            report->scale_change == LOSS_SCALE_WAITED)
        zd_log_info(
                "step %lld was skipped: a gradient overflowed at loss scale "
                "%.10g; %.10g from now on",
                (long long)report->step, was, now);
}

static enum zd_status fail_scale(
        const struct trainer *trainer, const struct train_step_report *report)
{
    if (!trainer_is_first(trainer))
        return ZD_ERR_NUMERICS;
    ZD_FAIL(ZD_ERR_NUMERICS, "E0621",
            "a gradient overflowed in step %lld at loss scale %.10g, the "
            "smallest "
            "that train.fp16.min_loss_scale allows",
            (long long)report->step, report->loss_scale.scale);
    return zd_fail_help(
            "lower optim.learning_rate, lengthen optim.warmup_steps, or "
            "train in bf16 or fp32");
}

static enum zd_status check_guard(
        struct trainer *trainer, const struct train_step_report *report)
{
    if (report->scale_change == LOSS_SCALE_SPENT)
        return fail_scale(trainer, report);
    if (!report->diverged)
        return ZD_OK;
    if (trainer_is_first(trainer))
        zd_log_warning(
                "step %lld was skipped: loss %g, gradient norm %g",
                (long long)report->step, report->loss, report->grad_norm);
    if (trainer->job->guard.nan == GUARD_STOP ||
        trainer->state.skipped_in_a_row >= NONFINITE_MAX) {
        if (!trainer_is_first(trainer))
            return ZD_ERR_NUMERICS;
        ZD_FAIL(ZD_ERR_NUMERICS, "E0620",
                "%lld step%s in a row had a loss or gradient norm that is not "
                "finite (last: step %lld)",
                (long long)trainer->state.skipped_in_a_row,
                trainer->state.skipped_in_a_row == 1 ? "" : "s",
                (long long)report->step);
        return zd_fail_help(
                "lower optim.learning_rate, lengthen optim.warmup_steps, "
                "or train in a wider train.dtype");
    }
    return ZD_OK;
}

/* Warns once: a run whose targets are all masked would otherwise end like a
 * successful one. */
static void warn_if_masked(
        struct trainer *trainer, const struct train_step_report *report)
{
    bool masked = report->skipped && isnan(report->loss) && !report->diverged;
    if (!masked || trainer->told_masked)
        return;
    trainer->told_masked = true;
    zd_log_warning(
            "step %lld was skipped: every target of its samples is masked. "
            "`zerod data inspect` shows what is trained; data.cutoff_len may "
            "end before the first answer",
            (long long)report->step);
}

static enum zd_status after_step(
        struct trainer *trainer, struct train_step_report *report,
        const struct zero_wire *before)
{
    struct zero_wire now = zero_wire(trainer->zero);
    struct zero_wire sent = zero_wire_since(before, &now);
    report->groups = zero_wire_since(&trainer->aside.wire, &sent);
    report->wire = zero_wire_sum(&report->groups);
    crash_guard_step(trainer->crash_guard, report->step);
    if (!isnan(report->loss))
        trainer->last_loss = report->loss;
    train_offload_add(&trainer->offload_total, &report->offload);
    trainer->exposed_total.update += report->exposed.update;
    trainer->exposed_total.gathers += report->exposed.gathers;
    trainer->exposed_total.copies += report->exposed.copies;
    trainer->exposed_total.launches += report->exposed.launches;
    rank_meter_step(&trainer->meter, report);
    comm_step(trainer->comm, report->step + 1, report->step_seconds);
    if (trainer_is_first(trainer)) {
        warn_if_masked(trainer, report);
        tell_scale(trainer, report);
    }
    ZD_TRY(trainer_tell_step(trainer, report));
    ZD_TRY(stragglers_step(trainer, report->step_seconds));
    return check_guard(trainer, report);
}

/* Explains why a run that was resumed after run.stop_after ends at once. */
static void tell_nothing_to_do(const struct trainer *trainer)
{
    if (trainer_is_first(trainer))
        zd_log_info(
                "nothing to do: run.stop_after (--stop-after) ends this run "
                "after step %lld, and %s is at step %lld already",
                (long long)trainer->job->run.stop_after, trainer->resumed_from,
                (long long)trainer->state.step);
}

static enum zd_status run_steps(struct trainer *trainer, bool *stopped_out)
{
    struct train_step_report report;
    struct train_state *state = &trainer->state;
    int64_t last = state->max_steps;
    int64_t stop_after = trainer->job->run.stop_after;
    if (stop_after > 0 && stop_after < last)
        last = stop_after;

    *stopped_out = false;
    if (state->step >= last)
        tell_nothing_to_do(trainer);
    while (state->step < last && !trainer->is_stopped) {
        struct step_turn turn;
        struct zero_wire before = zero_wire(trainer->zero);
        ZD_TRY(trainer_step(trainer, &turn, &report));
        report.bad_rows = dataset_summary(trainer->train_data).bad_rows;
        /* a save requested by a signal includes this step and its evaluation,
         * unless the run ends here without computing */
        if (turn.ran) {
            ZD_TRY(after_step(trainer, &report, &before));
            ZD_TRY(trainer_between(trainer));
            if (trace_step(trainer))
                ZD_TRY(profile_end(trainer));
        }
        if (turn.has_command)
            ZD_TRY(trainer_command(trainer));
        if (signals_has(turn.flags, SIGNALS_RANKS))
            ZD_TRY(rank_report_gather(trainer));
        ZD_TRY(obey(trainer, turn.flags, stopped_out));
        if (*stopped_out)
            break;
    }
    return save_settle(trainer);
}

/* NULL: nothing stopped it. */
static const char *stopped_by(const struct trainer *trainer, bool by_signal)
{
    if (by_signal)
        return trainer->met_deadline ? "deadline" : "signal";
    if (trainer->state.step >= trainer->state.max_steps)
        return NULL;
    return trainer->is_stopped ? "request" : "--stop-after";
}

static void show_end(struct trainer *trainer, bool exported, bool by_signal)
{
    const struct fs_path dir = export_dir(trainer->job);
    double seconds = clock_seconds() - trainer->started;
    const struct model_shape *shape = &trainer->plan.shape;
    double rate = seconds > 0 ? (double)trainer->tokens_here / seconds : 0;
    train_offload_add(&trainer->offload_total, &trainer->offload_late);
    struct train_end end = {
            .step = trainer->state.step,
            .max_steps = trainer->state.max_steps,
            .last_loss = trainer->last_loss,
            .best_eval_loss = trainer->state.best_eval_loss,
            .seconds = seconds,
            .tokens_per_second = rate,
            .model_flops_per_second =
                    rate * model_flops_per_token(
                                   &trainer->plan.config, &trainer->plan.table,
                                   shape->T),
            .skipped_steps = trainer->state.skipped_steps,
            .checkpoint = trainer->last_checkpoint[0] ? trainer->last_checkpoint
                                                      : NULL,
            .export_dir = exported ? dir.text : NULL,
            .stopped_by = stopped_by(trainer, by_signal),
            .offload = trainer->offload_total,
            .exposed = trainer->exposed_total,
            .offload_steps = trainer->meter.steps,
    };
    if (trainer_is_first(trainer) && trainer->observer->end)
        trainer->observer->end(trainer->observer->ctx, &end);
}

static enum zd_status sync_rows(struct trainer *trainer)
{
    if (!trainer_is_first(trainer))
        return ZD_OK;
    struct comm_files *files = comm_files_begin(trainer->comm, "end");
    enum comm_work before = comm_work(trainer->comm, WORK_SAVE);
    enum zd_status status = file_writer_sync(trainer->metrics);
    if (status == ZD_OK)
        trainer_state_write(trainer);
    comm_work(trainer->comm, before);
    comm_files_end(files);
    return status;
}

static void tell_stopped(const struct trainer *trainer, const char *how)
{
    zd_log_info(
            "stopped %s after step %lld; %s", how,
            (long long)trainer->state.step,
            trainer->last_checkpoint[0]
                    ? "start the same command again to go on"
                    : "there is no checkpoint: the same command begins again "
                      "at step 1");
}

/* Ends the run: saves the last step (also with stop_after; a stop command
 * decides itself) and exports the model. */
static enum zd_status finish(struct trainer *trainer)
{
    const struct train_job *job = trainer->job;
    bool complete = trainer->state.step >= trainer->state.max_steps;
    bool saves = !trainer->is_stopped &&
                 (job->checkpoint.save_strategy != SAVE_NO || !complete);
    ZD_TRY(between_begin(trainer));
    ZD_TRY(profile_end(trainer)); /* it may have fewer steps than requested */
    if (saves)
        ZD_TRY(trainer_save(trainer, SAVE_LAST));
    ZD_TRY(sync_rows(trainer));
    if (complete)
        ZD_TRY(trainer_export(trainer));
    ZD_TRY(rank_report_ask(trainer));
    ZD_TRY(rank_device_tell(trainer));
    show_end(trainer, complete && job->checkpoint.export != EXPORT_NONE, false);
    trainer_tell_state(trainer, complete ? RUN_DONE : RUN_STOPPED);
    if (trainer->is_stopped && trainer_is_first(trainer))
        tell_stopped(trainer, "on request");
    return ZD_OK;
}

static void tell_stop(const struct trainer *trainer)
{
    char how[160] = "by a signal";
    if (trainer->met_deadline)
        deadline_print(
                &trainer->deadline, clock_wall_seconds(), how, sizeof how);
    tell_stopped(trainer, how);
}

static enum zd_status run(struct trainer *trainer)
{
    bool stopped;
    const struct train_job *job = trainer->job;
    if (trainer->state.step == 0 && job->eval.eval_on_start)
        ZD_TRY(trainer_evaluate(trainer, NULL));
    ZD_TRY(between_begin(trainer)); /* finish pending work of loading */
    trainer->offload_late = (struct train_offload_report){0};
    ZD_TRY(between_end(trainer));
    ZD_TRY(rank_report_ask(trainer));
    trainer_tell_state(trainer, RUN_RUNNING);
    comm_step(trainer->comm, trainer->state.step + 1, 0);
    crash_guard_running(trainer->crash_guard);
    ZD_TRY(run_steps(trainer, &stopped));
    if (!stopped)
        return finish(trainer);
    ZD_TRY(zero_settle(trainer->zero));
    show_end(trainer, false, true);
    trainer_tell_state(trainer, RUN_STOPPED);
    if (trainer_is_first(trainer))
        tell_stop(trainer);
    return ZD_ERR_STOPPED;
}

/* The run had finished before. Exports the model if it is missing (the run was
 * killed between its last save and its end, or the export was removed). */
static enum zd_status conclude(struct trainer *trainer)
{
    int32_t is_missing = 0;
    if (trainer_is_first(trainer)) {
        is_missing = !fs_exists(export_dir(trainer->job).text);
        zd_log_info(
                "this run is finished: %s is at step %lld, the last is %lld",
                trainer->resumed_from, (long long)trainer->state.step,
                (long long)trainer->state.max_steps);
    }
    ZD_TRY(comm_broadcast(trainer->comm, &is_missing, sizeof is_missing, 0));
    return is_missing ? trainer_export(trainer) : ZD_OK;
}

void train_catch_signals(void)
{
    struct run_options options = train_job_default().run;
    signals_install(&options);
}

/* Reports the failure first: a rank that leaves alone breaks its peers'
 * collectives, and a failed GPU may block the cleanup. */
static void fail(struct trainer *trainer, enum zd_status status)
{
    if (trainer->observer->failed)
        trainer->observer->failed(trainer->control, status);
    comm_give_up(trainer->comm);
    trainer_tell_state(trainer, RUN_FAILED);
}

enum zd_status train_run(
        const struct train_job *job, struct comm *comm,
        const struct train_observer *observer)
{
    struct trainer *trainer = zd_array(1, sizeof *trainer);
    bool finished = false;
    signals_install(&job->run);
    enum zd_status status =
            trainer_init(trainer, job, comm, observer, &finished);
    ZD_THEN(status, finished ? conclude(trainer) : run(trainer));
    if (status == ZD_OK && finished)
        trainer_tell_state(trainer, RUN_DONE);
    commands_refuse(trainer);
    crash_guard_end(trainer->crash_guard, status);
    if (status != ZD_OK && status != ZD_ERR_STOPPED)
        fail(trainer, status);
    trainer_destroy(trainer);
    return status;
}
