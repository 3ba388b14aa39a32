/* run_metrics.c - the metrics of a run; train/report/metric.h says what a row
 * means. */
#include "base/clock.h"
#include "daemon/state/run_state.h"

#include <math.h>

double run_state_eta(const struct run_state *state)
{
    int64_t left = state->facts.max_steps - state->step.step;
    if (!state->has_banner || state->step.step == 0 ||
        state->state == RUN_STOPPED || state->state == RUN_FAILED)
        return NAN;
    if (left <= 0 || state->state == RUN_DONE)
        return 0;
    return state->mean_step_seconds > 0
                   ? state->mean_step_seconds * (double)left
                   : NAN;
}

static double over(double value, double by)
{
    return by > 0 ? value / by : NAN;
}

/* What is computed of a `run`. */
#define OF_RUN(name, number)                                                   \
    static double name(const void *from, int i)                                \
    {                                                                          \
        const struct run_state *run = from;                                    \
        return number;                                                         \
    }
OF_RUN(epoch_of, over((double)run->facts.samples_taken,
                      (double)run->facts.samples_per_epoch))
OF_RUN(rate_of, over((double)run->step.tokens, run->mean_step_seconds))
OF_RUN(flops_per_token,
       run->facts.flops_per_token > 0 ? run->facts.flops_per_token : NAN)
OF_RUN(flops_rate_of, flops_per_token(run, i) * rate_of(run, i))
OF_RUN(mfu_of, over(flops_rate_of(run, i), run->facts.world * run->facts.peak))
OF_RUN(flops_of, flops_per_token(run, i) * (double)run->facts.tokens)
OF_RUN(eta_of, run_state_eta(run))
OF_RUN(elapsed_of,
       (run->ended > 0 ? run->ended : clock_wall_seconds()) - run->started)
OF_RUN(skipped_of,
       (double)(run->skipped[0] + run->skipped[1] + run->skipped[2]))
OF_RUN(checkpoint_step_of,
       run->last_checkpoint_step >= 0 ? (double)run->last_checkpoint_step : NAN)
OF_RUN(is_in_state, run->state == (enum train_run_state)i)
#undef OF_RUN

static double now_of(const void *from, int i)
{
    return clock_wall_seconds();
}

static const char *skip_reason(int i)
{
    static const char *const names[] = {"overflow", "nonfinite", "no_targets"};
    return names[i];
}
const struct metric_index skip_reasons = {"reason", SKIP_REASONS, skip_reason};

static const char *state_name(int state)
{
    return train_run_state_name((enum train_run_state)state);
}
static const struct metric_index run_states = {"state", RUN_STATES, state_name};

#define AT(type_, field)                                                       \
    .type = METRIC_##type_, .offset = offsetof(struct run_state, field)
#define AFTER_BANNER .when = offsetof(struct run_state, has_banner)
/* clang-format off */
static const struct metric rows[] = {
{NULL, .value = is_in_state, .index = &run_states, .family = "zerod_job_state", .help = "1 for the state that the run is in."},
{"started", AT(REAL, started), .family = "zerod_job_start_timestamp_seconds", .help = "When this process began, since 1970."},
{NULL, AT(REAL, state_since), .family = "zerod_job_state_timestamp_seconds", .help = "When the run entered its state, since 1970."},
{NULL, .value = now_of, .family = "zerod_report_timestamp_seconds", .help = "When these numbers were collected, since 1970: shows that a text file is no longer written."},
{NULL, AT(UINT64, queue_dropped), .family = "zerod_control_dropped_messages", .kind = FAMILY_COUNTER, .help = "Steps that the busy control thread missed."},
{"step", AT(INT64, step.step), .family = "zerod_train_steps", .kind = FAMILY_COUNTER, .help = "Optimizer steps made, since step 1."},
{"max_steps", AT(INT64, facts.max_steps), AFTER_BANNER, .family = "zerod_train_steps_target", .help = "Steps of the whole run."},
{"tokens", AT(INT64, facts.tokens), .family = "zerod_train_tokens", .kind = FAMILY_COUNTER, .help = "Tokens trained on, of all ranks, of the whole run."},
{"samples", AT(INT64, facts.samples_taken), .family = "zerod_train_samples", .kind = FAMILY_COUNTER, .help = "Samples trained on, of all ranks, of the whole run."},
{"epoch", .value = epoch_of, .family = "zerod_train_epoch", .help = "Passes over the data, with a fraction."},
{"eta_seconds", .value = eta_of, .family = "zerod_train_eta_seconds", .help = "Time that the remaining steps will take."},
{"elapsed_seconds", .value = elapsed_of},
{"updated", AT(REAL, updated), .family = "zerod_train_last_step_timestamp_seconds", .help = "When the last step of this process ended, since 1970; before it, when the process began."},
{"eval_loss", AT(REAL, facts.eval_loss), .series = "eval/loss", .family = "zerod_eval_loss", .help = "Loss of the last evaluation."},
{"best_eval_loss", AT(REAL, facts.best_eval_loss), .family = "zerod_eval_best_loss", .help = "The smallest loss of an evaluation."},
{"loss_scale", AT(REAL, step.loss_scale.scale), .flags = METRIC_POSITIVE},
{"skipped_steps", .value = skipped_of, .type = METRIC_INT64},
{NULL, AT(INT64, skipped), .index = &skip_reasons, .family = "zerod_train_skipped_steps", .kind = FAMILY_COUNTER, .help = "Steps that changed nothing, by reason, of this process."},
{"step_seconds", AT(REAL, mean_step_seconds), .flags = METRIC_POSITIVE},
{NULL, AT(HISTOGRAM, step_histogram), .family = "zerod_step_duration_seconds", .kind = FAMILY_HISTOGRAM, .help = "Time of a step."},
{"phase_seconds.*", AT(REAL, phase_seconds), .index = &metric_phases, .family = "zerod_step_phase_seconds", .kind = FAMILY_COUNTER, .help = "Time that rank 0 spent in each phase, since the process began."},
{"tokens_per_second", .value = rate_of, .family = "zerod_train_tokens_per_second", .help = "Tokens of all ranks, by the mean time of the last steps."},
{"model_flops_per_second", .value = flops_rate_of},
{"mfu", .value = mfu_of},
{NULL, .value = flops_of, .family = "zerod_model_flops", .kind = FAMILY_COUNTER, .help = "Operations that the model needs for the tokens trained on."},
{"world", AT(INT, facts.world), AFTER_BANNER},
{"stage", AT(INT, facts.zero_stage), AFTER_BANNER},
{"parameters", AT(INT64, facts.parameters), AFTER_BANNER},
{"trainable_parameters", AT(INT64, facts.trainable), AFTER_BANNER},
{"bad_rows", AT(INT64, facts.bad_rows), AFTER_BANNER},
{"all_parameters", AT(INT64, facts.parameters), AFTER_BANNER},
{"global_batch_size", AT(INT64, facts.global_batch), AFTER_BANNER},
{"per_device_train_batch_size", AT(INT, facts.per_device), AFTER_BANNER},
{"deadline", AT(REAL, facts.deadline), .flags = METRIC_POSITIVE},
{"last_checkpoint_step", .value = checkpoint_step_of, .type = METRIC_INT64, .family = "zerod_checkpoint_last_step", .help = "Step of the last checkpoint."},
{"last_checkpoint_time", AT(REAL, last_checkpoint_time), .flags = METRIC_POSITIVE, .family = "zerod_checkpoint_last_timestamp_seconds", .help = "When the last checkpoint was complete, since 1970."},
{NULL, AT(UINT64, checkpoint_bytes), .flags = METRIC_POSITIVE, .family = "zerod_checkpoint_bytes", .help = "Size of the last checkpoint."},
{NULL, AT(HISTOGRAM, checkpoint_histogram), .family = "zerod_checkpoint_duration_seconds", .kind = FAMILY_HISTOGRAM, .help = "Time of a checkpoint, from the start of the save to its commit."},
{NULL, AT(REAL, checkpoint_stall_seconds), .family = "zerod_checkpoint_stall_seconds", .kind = FAMILY_COUNTER, .help = "Time that training stood still for checkpoints."},
{NULL, AT(REAL, checkpoint_write_seconds), .family = "zerod_checkpoint_write_seconds", .kind = FAMILY_COUNTER, .help = "Time that the slowest rank wrote checkpoints."},
{NULL, AT(INT64, checkpoint_failures), .family = "zerod_checkpoint_failures", .kind = FAMILY_COUNTER, .help = "Checkpoints that were requested and failed."},
};
/* clang-format on */
#undef AT
#undef AFTER_BANNER
const struct metric_table run_metrics = {
        rows, sizeof rows / sizeof rows[0], sizeof(struct run_state)};
