/* prometheus.c - a run's numbers as metrics; docs/metrics.md lists them.
 *
 * Every sample has the label zerod_job: several jobs of a machine meet in
 * node_exporter's folder, and the name `job` is Prometheus' own. What is not
 * known (an evaluation that was not made) is left out, not 0. */
#include "daemon/sinks/prometheus.h"

#include "base/log.h"
#include "base/text_stream.h"
#include "daemon/sinks/prometheus_ranks.h"
#include "daemon/sinks/sink.h"
#include "zd_config.h"

#include <math.h>
#include <stdlib.h>

/* A family of one sample; left out when the value is not known. */
static void put(
        struct exposition *to, const char *name, enum family_type type,
        const char *unit, const char *help, double value)
{
    struct family family = {name, type, unit, help};
    if (isnan(value))
        return;
    family_open(to, &family);
    family_sample(to, value, NULL);
}

static void gauge(
        struct exposition *to, const char *name, const char *help, double value)
{
    put(to, name, FAMILY_GAUGE, NULL, help, value);
}

static void seconds_gauge(
        struct exposition *to, const char *name, const char *help, double value)
{
    put(to, name, FAMILY_GAUGE, "seconds", help, value);
}

static void counter(
        struct exposition *to, const char *name, const char *help, double value)
{
    put(to, name, FAMILY_COUNTER, NULL, help, value);
}

/* --- the job --- */

static const char *model_of(const struct train_job *job)
{
    const char *type =
            json_string_value(json_object_get(job->model.config, "model_type"));
    return job->model.path ? job->model.path : type ? type : "";
}

static void put_job(struct exposition *to, const struct run_state *state)
{
    const struct train_job *job = state->job;
    char stage[16], world[16];
    snprintf(stage, sizeof stage, "%d", state->zero_stage);
    snprintf(world, sizeof world, "%d", state->world);
    family_open(
            to, &(struct family){
                        "zerod_build", FAMILY_INFO, NULL,
                        "What this program was built of."});
    family_sample(
            to, 1, "version", ZD_VERSION, "matmul",
            ZD_HAVE_ONEDNN ? "onednn" : "openblas", NULL);
    family_open(
            to, &(struct family){
                        "zerod_job", FAMILY_INFO, NULL,
                        "What the job trains, and how."});
    family_sample(
            to, 1, "run_name", job->job.run_name ? job->job.run_name : "",
            "model", model_of(job), "optimizer",
            train_optimizer_name(job->optim.name), "zero_stage",
            state->has_banner ? stage : "", "world_size",
            state->has_banner ? world : "", "dtype",
            dtype_name(job->train.dtype), NULL);
    family_open(
            to, &(struct family){
                        "zerod_job_state", FAMILY_GAUGE, NULL,
                        "1 for the state that the run is in."});
    for (int i = 0; i < RUN_STATES; i++) {
        enum train_run_state each = (enum train_run_state)i;
        family_sample(
                to, each == state->state, "state", train_run_state_name(each),
                NULL);
    }
    seconds_gauge(
            to, "zerod_job_start_timestamp_seconds",
            "When this process began, since 1970.", state->started);
    seconds_gauge(
            to, "zerod_job_state_timestamp_seconds",
            "When the run came into its state, since 1970.",
            state->state_since);
    seconds_gauge(
            to, "zerod_report_timestamp_seconds",
            "When these numbers were put together, since 1970: a text file "
            "that nobody writes any more grows old.",
            run_state_now());
    counter(to, "zerod_control_dropped_messages",
            "Steps that the control thread was too busy to hear of.",
            (double)state->feed_dropped);
}

/* --- steps --- */

static void put_progress(struct exposition *to, const struct run_state *state)
{
    counter(to, "zerod_train_steps", "Optimizer steps made, since step 1.",
            (double)state->step.step);
    gauge(to, "zerod_train_steps_target", "Steps that the run has in all.",
          state->has_banner ? (double)state->max_steps : NAN);
    counter(to, "zerod_train_tokens", "Tokens trained on, of all ranks.",
            (double)state->tokens);
    counter(to, "zerod_train_samples", "Samples trained on, of all ranks.",
            (double)state->samples_taken);
    gauge(to, "zerod_train_epoch", "Passes over the data, with a fraction.",
          state->samples_per_epoch > 0
                  ? (double)state->samples_taken /
                            (double)state->samples_per_epoch
                  : NAN);
    seconds_gauge(
            to, "zerod_train_eta_seconds",
            "Time that the steps left will take.", run_state_eta(state));
    seconds_gauge(
            to, "zerod_train_last_step_timestamp_seconds",
            "When the last step of this process ended, since 1970; before it, "
            "when the process began.",
            state->updated);
}

/* Of the last step, as it was: a loss that is not finite is told. */
static void put_losses(struct exposition *to, const struct run_state *state)
{
    const struct train_step_report *step = &state->step;
    bool has_step = state->step_histogram.sum > 0;
    struct family loss = {
            "zerod_train_loss", FAMILY_GAUGE, NULL,
            "Mean loss of the last step's target tokens."};
    struct family norm = {
            "zerod_train_grad_norm", FAMILY_GAUGE, NULL,
            "Norm of the last step's gradient, before clipping."};
    if (has_step) {
        family_open(to, &loss);
        family_sample(to, step->loss, NULL);
        family_open(to, &norm);
        family_sample(to, step->grad_norm, NULL);
    }
    gauge(to, "zerod_train_learning_rate", "Learning rate of the last step.",
          has_step ? step->learning_rate : NAN);
    gauge(to, "zerod_train_loss_scale",
          "What the last step's loss was multiplied by (fp16).",
          step->loss_scale.scale > 0 ? step->loss_scale.scale : NAN);
    gauge(to, "zerod_eval_loss", "Loss of the last evaluation.",
          state->eval_loss);
    gauge(to, "zerod_eval_best_loss", "The smallest loss of an evaluation.",
          state->best_eval_loss);
    family_open(
            to,
            &(struct family){
                    "zerod_train_skipped_steps", FAMILY_COUNTER, NULL,
                    "Steps that changed nothing, by reason, of this process."});
    family_sample(
            to, (double)state->skipped_overflow, "reason", "overflow", NULL);
    family_sample(
            to, (double)state->skipped_nonfinite, "reason", "nonfinite", NULL);
    family_sample(
            to, (double)state->skipped_no_targets, "reason", "no_targets",
            NULL);
}

static void put_speed(struct exposition *to, const struct run_state *state)
{
    double seconds = state->mean_step_seconds;
    family_open(
            to, &(struct family){
                        "zerod_step_duration_seconds", FAMILY_HISTOGRAM,
                        "seconds", "Time of a step."});
    family_histogram(to, &state->step_histogram);
    family_open(
            to, &(struct family){
                        "zerod_step_phase_seconds", FAMILY_COUNTER, "seconds",
                        "Time that rank 0 spent in each phase, since the "
                        "process began."});
    for (int i = 0; i < PHASES; i++)
        family_sample(
                to, state->phase_seconds[i], "phase",
                train_phase_name((enum train_phase)i), NULL);
    gauge(to, "zerod_train_tokens_per_second",
          "Tokens of all ranks, by the mean time of the last steps.",
          seconds > 0 ? (double)state->step.tokens / seconds : NAN);
    counter(to, "zerod_model_flops",
            "Arithmetic that the model needs for the tokens trained on.",
            state->flops_per_token > 0
                    ? state->flops_per_token * (double)state->tokens
                    : NAN);
}

/* --- checkpoints --- */

static void put_checkpoints(
        struct exposition *to, const struct run_state *state)
{
    bool has = state->last_checkpoint_step >= 0;
    gauge(to, "zerod_checkpoint_last_step", "Step of the last checkpoint.",
          has ? (double)state->last_checkpoint_step : NAN);
    seconds_gauge(
            to, "zerod_checkpoint_last_timestamp_seconds",
            "When the last checkpoint was complete, since 1970.",
            has && state->last_checkpoint_time > 0 ? state->last_checkpoint_time
                                                   : NAN);
    put(to, "zerod_checkpoint_bytes", FAMILY_GAUGE, "bytes",
        "Size of the last checkpoint.",
        state->checkpoint_bytes ? (double)state->checkpoint_bytes : NAN);
    family_open(
            to, &(struct family){
                        "zerod_checkpoint_duration_seconds", FAMILY_HISTOGRAM,
                        "seconds", "Time that a checkpoint took."});
    family_histogram(to, &state->checkpoint_histogram);
    put(to, "zerod_checkpoint_stall_seconds", FAMILY_COUNTER, "seconds",
        "Time that training stood still for checkpoints.",
        state->checkpoint_stall_seconds);
    put(to, "zerod_checkpoint_write_seconds", FAMILY_COUNTER, "seconds",
        "Time that checkpoints were written for, by the slowest rank.",
        state->checkpoint_write_seconds);
    counter(to, "zerod_checkpoint_failures",
            "Checkpoints that were asked for and failed.",
            (double)state->checkpoint_failures);
}

/* --- the whole --- */

char *prometheus_write(
        const struct run_state *state, enum prometheus_form form,
        size_t *bytes_out)
{
    char *text;
    struct exposition to = {
            .out = text_stream_open(&text, bytes_out),
            .open_metrics = form == PROMETHEUS_OPEN_METRICS,
            .job = state->job->job.name};
    put_job(&to, state);
    put_progress(&to, state);
    put_losses(&to, state);
    put_speed(&to, state);
    prometheus_put_life(&to, state);
    prometheus_put_memories(&to, state);
    prometheus_put_transfers(&to, state);
    put_checkpoints(&to, state);
    if (form != PROMETHEUS_TEXTFILE)
        exposition_process(&to);
    exposition_end(&to);
    return fclose(to.out) == 0 ? text : NULL;
}

char *prometheus_text(
        const struct run_state *state, bool open_metrics, size_t *bytes_out)
{
    return prometheus_write(
            state, open_metrics ? PROMETHEUS_OPEN_METRICS : PROMETHEUS_TEXT,
            bytes_out);
}
