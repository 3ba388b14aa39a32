/* tell.c - rank 0's reports of a run: observer, metrics.jsonl, events.jsonl and
 * trainer_state.json. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- trainer_state.json: the history ------------------------------------- */

static bool is_wanted(const struct trainer *trainer)
{
    return trainer_is_first(trainer) && trainer->job->report.trainer_state;
}

static double epoch_now(const struct trainer *trainer)
{
    int64_t M = dataset_summary(trainer->train_data).samples; /* 0: unknown */
    return M ? (double)trainer->state.samples_taken / (double)M : 0;
}

static void add_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

/* Adds a row for the current step; borrowed. */
static json_t *add_row(struct trainer *trainer)
{
    json_t *row = json_pack("{s:I}", "step", (json_int_t)trainer->state.step);
    add_real(row, "epoch", epoch_now(trainer));
    json_array_append_new(trainer->history.rows, row);
    return row;
}

static void trainer_state_step(
        struct trainer *trainer, const struct train_step_report *report)
{
    struct state_history *history = &trainer->history;
    double every = report->settings[SET_LOGGING_STEPS];
    bool is_first = report->step == 1 && trainer->job->log.logging_first_step;
    if (!is_wanted(trainer))
        return;
    if (isfinite(report->loss)) {
        history->loss_sum += report->loss;
        history->loss_count++;
    }
    if (!is_first && !(every >= 1 && report->step % (int64_t)every == 0))
        return;
    json_t *row = add_row(trainer);
    add_real(row, "grad_norm", report->grad_norm);
    add_real(row, "learning_rate", report->learning_rate);
    if (history->loss_count)
        add_real(row, "loss", history->loss_sum / (double)history->loss_count);
    history->loss_sum = 0;
    history->loss_count = 0;
}

static void trainer_state_eval(struct trainer *trainer, double eval_loss)
{
    if (is_wanted(trainer))
        add_real(add_row(trainer), "eval_loss", eval_loss);
}

void trainer_state_resume(struct trainer *trainer)
{
    bool is_there;
    json_auto_t *json = NULL;
    if (!is_wanted(trainer))
        return;
    const struct fs_path path =
            fs_in(trainer->resumed_from, TRAINER_STATE_FILE);
    enum zd_status status = fs_look(path.text, &is_there);
    if (status == ZD_OK && is_there)
        status = json_parse_file_upto(
                path.text, (uint64_t)1 << 32, (size_t)1 << 26, &json);
    if (status != ZD_OK) {
        zd_log_warning(
                "the history of " TRAINER_STATE_FILE " begins anew: %s",
                zd_error_get()->what);
        zd_error_clear();
    }
    JSON_EACH(row, json_object_get(json, "log_history")) {
        const json_t *step = json_object_get(row, "step");
        if (json_is_integer(step) && json_integer_value(step) >= 0 &&
            json_integer_value(step) <= trainer->state.step)
            json_array_append(trainer->history.rows, row);
    }
}

/* --- trainer_state.json: writing ------------------------------------------ */

/* Adds the best evaluation, if its step has a checkpoint. */
static void add_best(json_t *json, const struct trainer *trainer)
{
    const struct train_state *state = &trainer->state;
    char name[64];
    bool has_best = !isnan(state->best_eval_loss) && state->best_step >= 0;
    checkpoint_name(name, sizeof name, state->best_step);
    struct fs_path path = checkpoint_place(
            trainer->job->job.output_dir, "", state->best_step);
    bool is_there = has_best &&
                    (state->best_step == state->step || fs_is_dir(path.text));
    json_object_update_new(
            json,
            json_pack(
                    "{s:o, s:o, s:o}", "best_global_step",
                    has_best ? json_integer(state->best_step) : json_null(),
                    "best_metric",
                    json_number_or_null(has_best ? state->best_eval_loss : NAN),
                    "best_model_checkpoint",
                    is_there ? json_string(name) : json_null()));
}

/* The whole run in passes over the data, an integer as in transformers. */
static int64_t epochs(const struct trainer *trainer)
{
    double samples = (double)trainer->state.max_steps *
                     (double)trainer->plan.global_batch;
    int64_t M = dataset_summary(trainer->train_data).samples;
    return M ? (int64_t)ceil(samples / (double)M) : 0;
}

static json_t *state_json(const struct trainer *trainer)
{
    const struct train_state *state = &trainer->state;
    const struct job_plan *plan = &trainer->plan;
    double settings[SETTINGS];
    live_settings(trainer, settings);
    double logging = settings[SET_LOGGING_STEPS];
    json_t *json = json_pack(
            "{s:I, s:I, s:b, s:b, s:b, s:O, s:I, s:I, s:I, s:I, s:I, s:{}, "
            "s:i, s:n, s:n}",
            "eval_steps", (json_int_t)live_eval_steps(trainer), "global_step",
            (json_int_t)state->step, "is_hyper_param_search", false,
            "is_local_process_zero", true, "is_world_process_zero", true,
            "log_history", trainer->history.rows, "logging_steps",
            logging >= 1 ? (json_int_t)logging : 0, "max_steps",
            (json_int_t)state->max_steps, "num_input_tokens_seen",
            (json_int_t)state->tokens_seen, "num_train_epochs",
            (json_int_t)epochs(trainer), "save_steps",
            (json_int_t)live_save_steps(trainer), "stateful_callbacks",
            "train_batch_size", plan->per_device, "trial_name", "trial_params");
    add_best(json, trainer);
    add_real(json, "epoch", epoch_now(trainer));
    add_real(
            json, "total_flos",
            (double)state->tokens_seen *
                    model_flops_per_token(
                            &plan->config, &plan->table, plan->shape.T));
    return json;
}

char *trainer_state_text(const struct trainer *trainer)
{
    if (!is_wanted(trainer))
        return NULL;
    json_auto_t *json = state_json(trainer);
    char *text = zd_must(json_dumps(
            json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    size_t length = strlen(text);
    text = zd_must(realloc(text, length + 2));
    strcpy(text + length, "\n");
    return text;
}

void trainer_state_write(const struct trainer *trainer)
{
    ZD_FREED char *text = trainer_state_text(trainer);
    if (!text)
        return;
    struct fs_path path =
            fs_in(trainer->job->job.output_dir, TRAINER_STATE_FILE);
    if (fs_write_file(path.text, text, strlen(text)) != ZD_OK) {
        zd_log_warning("%s", zd_error_get()->what);
        zd_error_clear();
    }
}

/* --- as it happens -------------------------------------------------------- */

/* Tells the watch what kind of work runs, so that long work is not a hang.
 * Setup does so for each part (train/setup.c). */
static void tell_watch(struct trainer *trainer, enum train_run_state state)
{
    static const enum comm_work works[RUN_STATES] = {
            [RUN_WAITING] = WORK_DATA,
            [RUN_EVALUATING] = WORK_EVALUATE,
            [RUN_SAMPLING] = WORK_SAMPLE,
            [RUN_CHECKPOINTING] = WORK_SAVE};
    if (state != RUN_STARTING)
        comm_work(trainer->comm, works[state]);
}

void trainer_tell_state(struct trainer *trainer, enum train_run_state state)
{
    if (trainer->run_state == state && state != RUN_STARTING)
        return;
    trainer->run_state = state;
    tell_watch(trainer, state);
    if (!trainer_is_first(trainer))
        return;
    json_t *members = state == RUN_STARTING
                              ? job_plan_parameters(&trainer->plan)
                              : json_object();
    json_object_set_new(
            members, "state", json_string(train_run_state_name(state)));
    events_tell(trainer->events, "state", trainer->state.step, members);
}

enum zd_status trainer_tell_step(
        struct trainer *trainer, const struct train_step_report *report)
{
    const struct train_observer *observer = trainer->observer;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    json_t *row = metrics_row(report);
    if (observer->event)
        events_tell(trainer->events, "step", report->step, json_incref(row));
    ZD_TRY(metrics_add(trainer->metrics, row));
    trainer_state_step(trainer, report);
    if (observer->step)
        observer->step(observer->ctx, report);
    return ZD_OK;
}

enum zd_status trainer_tell_eval(struct trainer *trainer, double eval_loss)
{
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    zd_log_info(
            "eval  step %lld  eval_loss %.4f  perplexity %.4g", (long long)step,
            eval_loss, exp(eval_loss));
    events_tell(
            trainer->events, "eval", step,
            json_pack("{s:o}", "eval_loss", json_number_or_null(eval_loss)));
    trainer_state_eval(trainer, eval_loss);
    return metrics_eval(trainer->metrics, step, eval_loss);
}

/* Copies text as one line. */
static void copy_line(char *out, size_t out_bytes, const char *text)
{
    size_t used = 0;
    for (; *text && used + 3 < out_bytes; text++) {
        if (*text == '\n')
            out[used++] = '\\';
        out[used++] = *text == '\n' ? 'n' : *text;
    }
    out[used] = '\0';
}

void trainer_tell_sample(struct trainer *trainer, json_t *sample)
{
    char before[256], after[2048];
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return;
    const char *prompt = json_string_at(sample, "prompt");
    const char *text = json_string_at(sample, "text");
    if (prompt && text) {
        copy_line(before, sizeof before, prompt);
        copy_line(after, sizeof after, text);
        zd_log_info("sample  step %lld  %s|%s", (long long)step, before, after);
    }
    events_tell(trainer->events, "sample", step, json_incref(sample));
}

enum zd_status trainer_share_error(
        struct trainer *trainer, struct zd_error *out)
{
    struct comm *comm = trainer->comm;
    int64_t teller = comm_size(comm);
    *out = *zd_error_get();
    if (out->status != ZD_OK)
        teller = comm_rank(comm);
    zd_error_clear();
    ZD_TRY(comm_all_reduce_i64(comm, &teller, 1, COMM_MIN));
    return teller < comm_size(comm)
                   ? comm_broadcast(comm, out, sizeof *out, (int)teller)
                   : ZD_OK;
}

/* --- hangs ---------------------------------------------------------------- */

static void tell_hang(void *ctx, const struct watch_hang *hang)
{
    const struct trainer *trainer = ctx;
    json_t *members = json_pack(
            "{s:i, s:s, s:s, s:f}", "rank", hang->rank, "host", hang->host,
            "operation", hang->operation, "seconds", hang->seconds);
    if (trainer->events) {
        events_tell(trainer->events, "hang", hang->step, members);
        events_sync(trainer->events);
    } else {
        events_append(
                fs_in(trainer->job->job.output_dir, EVENTS_FILE).text, "hang",
                hang->step, members);
    }
}

static void tell_stalled(void *ctx, const struct watch_hang *hang)
{
    const struct trainer *trainer = ctx;
    const struct train_observer *observer = trainer->observer;
    if (observer->stalled)
        observer->stalled(observer->ctx, hang);
}

void hang_listen(struct trainer *trainer)
{
    struct watch_listener listener = {
            .ctx = trainer, .hang = tell_hang, .stalled = tell_stalled};
    comm_listen(trainer->comm, &listener);
}

void hang_forget(struct trainer *trainer)
{
    comm_listen(trainer->control, &(struct watch_listener){0});
}
