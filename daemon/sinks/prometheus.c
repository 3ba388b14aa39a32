/* prometheus.c - a run's numbers as metrics; docs/metrics.md lists them.
 *
 * Every sample has the label zerod_job: several jobs of a machine meet in
 * node_exporter's folder, and the name `job` is Prometheus' own. What is not
 * known (an evaluation that was not made) is left out, not 0. */
#include "daemon/sinks/prometheus.h"

#include "base/log.h"
#include "daemon/sinks/exposition.h"
#include "daemon/sinks/sink.h"
#include "zd_config.h"

#include <math.h>
#include <stdlib.h>

/* A heartbeat that is so old, of a job that makes steps, is none. */
enum { HEARTBEAT_SECONDS = 60, HEARTBEAT_STEPS = 10 };

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

/* --- ranks --- */

typedef double rank_value(
        const struct run_state *state, const struct train_rank_report *rank);

static const char *rank_name(const struct train_rank_report *rank, char *text)
{
    snprintf(text, 16, "%d", rank->rank);
    return text;
}

/* One sample of each rank. */
static void put_ranks(
        struct exposition *to, const struct run_state *state,
        const struct family *family, rank_value *value)
{
    char number[16];
    if (state->rank_count == 0)
        return;
    family_open(to, family);
    for (int r = 0; r < state->rank_count; r++)
        family_sample(
                to, value(state, &state->ranks[r]), "rank",
                rank_name(&state->ranks[r], number), NULL);
}

static double heartbeat_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return rank->heartbeat;
}

static double step_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->step;
}

static double resident_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->resident;
}

static double peak_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->resident_peak;
}

static double data_wait_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return rank->phase_seconds[PHASE_DATA];
}

/* Ranks are asked between steps: while the run evaluates, saves or is paused,
 * an old heartbeat says nothing. */
static bool is_up(
        const struct run_state *state, const struct train_rank_report *rank)
{
    double limit =
            fmax(HEARTBEAT_SECONDS, HEARTBEAT_STEPS * state->mean_step_seconds);
    double since = fmax(rank->heartbeat, state->state_since);
    if (state->state >= RUN_DONE)
        return false;
    return state->state != RUN_RUNNING || run_state_now() - since < limit;
}

static void put_life(struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(
                to, &(struct family){
                            "zerod_rank_up", FAMILY_GAUGE, NULL,
                            "1 while the rank answers; 0 when it was not heard "
                            "for a minute and ten steps, and after the end."});
    for (int r = 0; r < state->rank_count; r++)
        family_sample(
                to, is_up(state, &state->ranks[r]), "rank",
                rank_name(&state->ranks[r], number), "host",
                state->ranks[r].host, NULL);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_last_heartbeat_timestamp_seconds", FAMILY_GAUGE,
                    "seconds", "When the rank was last heard, since 1970."},
            heartbeat_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_step", FAMILY_GAUGE, NULL,
                    "The rank's step when it was last heard."},
            step_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_data_wait_seconds", FAMILY_COUNTER, "seconds",
                    "Time that the rank waited for data."},
            data_wait_of);
}

/* --- memory --- */

typedef uint64_t memory_value(
        const struct train_rank_report *rank, enum arena_memory where);

static uint64_t planned_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->planned[where];
}

static uint64_t taken_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->taken[where];
}

static uint64_t limit_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->limit[where];
}

/* One sample of each rank and memory; memories that it does not have, or that
 * have no limit, are left out. */
static void put_memory(
        struct exposition *to, const struct run_state *state, const char *name,
        const char *help, memory_value *value)
{
    struct family family = {name, FAMILY_GAUGE, "bytes", help};
    bool is_open = false;
    char number[16];
    for (int r = 0; r < state->rank_count; r++)
        for (int i = 0; i < ARENA_MEMORIES; i++) {
            enum arena_memory where = (enum arena_memory)i;
            const struct train_rank_report *rank = &state->ranks[r];
            if (rank->planned[i] == 0 ||
                (value == limit_of && !limit_of(rank, where)))
                continue;
            if (!is_open)
                family_open(to, &family);
            is_open = true;
            family_sample(
                    to, (double)value(rank, where), "rank",
                    rank_name(rank, number), "where", arena_memory_name(where),
                    NULL);
        }
}

static void put_memory_kinds(
        struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(
                to, &(struct family){
                            "zerod_memory_bytes", FAMILY_GAUGE, "bytes",
                            "Memory that a rank holds, by what it is "
                            "for; padding is not counted."});
    for (int r = 0; r < state->rank_count; r++)
        for (int i = 0; i < ARENA_MEMORIES; i++)
            for (int kind = 0; kind < SPAN_KINDS; kind++) {
                const struct train_rank_report *rank = &state->ranks[r];
                if (rank->planned[i] == 0)
                    continue;
                family_sample(
                        to, (double)rank->kinds[i][kind], "rank",
                        rank_name(rank, number), "where",
                        arena_memory_name((enum arena_memory)i), "kind",
                        span_kind_name((enum span_kind)kind), NULL);
            }
}

static void put_memories(struct exposition *to, const struct run_state *state)
{
    put_memory_kinds(to, state);
    put_memory(
            to, state, "zerod_memory_planned_bytes",
            "Memory that the plan gave a rank.", planned_of);
    put_memory(
            to, state, "zerod_memory_taken_bytes",
            "Memory that a rank has taken; less while it is released.",
            taken_of);
    put_memory(
            to, state, "zerod_memory_limit_bytes",
            "Memory that a rank may take, where there is a limit.", limit_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_resident_bytes", FAMILY_GAUGE, "bytes",
                    "Memory of the rank's process (VmRSS)."},
            resident_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_resident_peak_bytes", FAMILY_GAUGE, "bytes",
                    "The most that it had (VmHWM)."},
            peak_of);
}

/* --- bytes that moved --- */

struct moved {
    const char *name;
    size_t offset; /* in train_rank_report */
};
#define MOVED(name, member)                                                    \
    {                                                                          \
        name, offsetof(struct train_rank_report, member)                       \
    }
static const struct moved paths[] = {
        MOVED("down", down_bytes),
        MOVED("up", up_bytes),
        MOVED("disk_read", disk_read_bytes),
        MOVED("disk_write", disk_written_bytes),
        {0}};
static const struct moved ops[] = {
        MOVED("reduce_scatter", reduce_scatter_bytes),
        MOVED("all_gather", all_gather_bytes),
        MOVED("all_reduce", all_reduce_bytes),
        {0}};
#undef MOVED

static void put_moved(
        struct exposition *to, const struct run_state *state, const char *name,
        const char *help, const char *label, const struct moved *moved)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(to, &(struct family){name, FAMILY_COUNTER, "bytes", help});
    for (int r = 0; r < state->rank_count; r++)
        for (const struct moved *each = moved; each->name; each++) {
            const char *rank = (const char *)&state->ranks[r];
            family_sample(
                    to, (double)*(const uint64_t *)(rank + each->offset),
                    "rank", rank_name(&state->ranks[r], number), label,
                    each->name, NULL);
        }
}

static void put_transfers(struct exposition *to, const struct run_state *state)
{
    put_moved(
            to, state, "zerod_transfer_bytes",
            "Bytes between device, host and disk: gradients down, parameters "
            "up.",
            "path", paths);
    put_moved(
            to, state, "zerod_comm_bytes",
            "Bytes that the rank sent to others.", "op", ops);
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
            .out = open_memstream(&text, bytes_out),
            .open_metrics = form == PROMETHEUS_OPEN_METRICS,
            .job = state->job->job.name};
    if (!to.out)
        return NULL;
    put_job(&to, state);
    put_progress(&to, state);
    put_losses(&to, state);
    put_speed(&to, state);
    put_life(&to, state);
    put_memories(&to, state);
    put_transfers(&to, state);
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
