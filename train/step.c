/* step.c - one optimizer step on all ranks. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/device/stream.h"
#include "train/command/commands.h"
#include "train/command/signals.h"
#include "train/run.h"

#include <math.h>

static const char skipped_nonfinite[] = "nonfinite";
static const char skipped_overflow[] = "overflow";

/* Words of the exchange that begins a step; zero/plan.h prices it. */
enum {
    WORD_TARGETS,
    WORD_TOKENS,
    WORD_FLAGS,
    WORD_FAILED,
    WORD_COMMAND, /* a command waits at rank 0 */
    WORDS
};
_Static_assert((int)WORDS == (int)ZERO_STEP_COUNTS, "priced in zero/plan.h");

enum { PAUSED_POLL_MS = 50, DATA_POLL_MS = 1000 };

/* Keep the batches of a step that has not started; commands may run in
 * between. */
static enum zd_status load_batches(struct trainer *trainer)
{
    if (trainer->has_batches || trainer->is_paused)
        return ZD_OK;
    trainer->has_batches = true;
    struct comm_data data = comm_data_begin(trainer->comm);
    enum zd_status status = ZD_OK;
    enum train_run_state before = trainer->run_state;
    bool waits = false;
    for (int a = 0; a < trainer->plan.accumulation && status == ZD_OK; a++) {
        while (!loader_wait(trainer->loader, DATA_POLL_MS)) {
            waits = true;
            trainer_tell_state(trainer, RUN_WAITING);
        }
        status = loader_next(trainer->loader, &trainer->batches[a]);
    }
    if (waits)
        trainer_tell_state(trainer, before);
    comm_data_end(trainer->comm, data);
    return status;
}

/* The unmasked targets of this rank's micro-batches, and their tokens. */
static int64_t targets_here(const struct trainer *trainer, int64_t *tokens_out)
{
    int64_t targets = 0, tokens = 0;
    for (int a = 0; a < trainer->plan.accumulation; a++) {
        targets += trainer->batches[a].target_count;
        tokens += trainer->batches[a].token_count;
    }
    *tokens_out = tokens;
    return targets;
}

static int64_t raised_flags(const struct trainer *trainer)
{
    int64_t flags = signals_take(trainer->save_seconds);
    const struct checkpoint_options *save = &trainer->job->checkpoint;
    if (trainer_is_first(trainer) && save->save_strategy == SAVE_TIME &&
        trainer->last_saved_step != trainer->state.step &&
        (!trainer->saves.current || save_is_stuck(trainer)) &&
        clock_seconds() - trainer->last_save_time >= save->save_every_seconds)
        flags |= SIGNALS_TIME_SAVE;
    if (trainer_is_first(trainer) &&
        deadline_has_come(
                &trainer->deadline, clock_wall_seconds(), trainer->save_seconds,
                rank_meter_step_seconds(&trainer->meter)))
        flags |= SIGNALS_SAVE_EXIT | SIGNALS_DEADLINE;
    if (rank_report_is_due(trainer))
        flags |= SIGNALS_RANKS;
    if (save_is_writing(trainer))
        flags |= SIGNALS_SAVING;
    return flags;
}

/* Tells all ranks the step's number of targets, requests by signals, whether
 * any rank's data failed, and whether a command waits. */
static enum zd_status exchange(struct trainer *trainer, int64_t words[WORDS])
{
    enum zd_status loaded = load_batches(trainer);
    words[WORD_FAILED] = loaded != ZD_OK;
    words[WORD_TARGETS] = words[WORD_TOKENS] = 0;
    if (trainer->has_batches && loaded == ZD_OK &&
        trainer_counts_sample(trainer))
        words[WORD_TARGETS] = targets_here(trainer, &words[WORD_TOKENS]);
    words[WORD_FLAGS] = raised_flags(trainer);
    words[WORD_COMMAND] = commands_wait(trainer);
    struct zd_error error = *zd_error_get();
    zd_error_clear();
    ZD_TRY(comm_all_reduce_i64(trainer->comm, words, WORDS, COMM_SUM));
    if (!words[WORD_FAILED])
        return ZD_OK;
    /* a bad token was found late: save what was trained, then end with the
     * cause */
    ZD_TRY(zero_settle(trainer->zero));
    ZD_TRY(trainer_save(trainer, SAVE_FAILING));
    zd_error_set(&error);
    return comm_agree(trainer->comm, loaded);
}

static struct objective_sums sums_of(
        const struct trainer *trainer, int64_t targets)
{
    int64_t tokens;
    return (struct objective_sums){
            .targets = targets,
            .mine = targets_here(trainer, &tokens),
            .ranks = mesh_samples(trainer->plan.mesh, 0).size,
            .over_ranks = !trainer->job->train.average_tokens_across_devices};
}

/* Adds a phase that has just ended to the trace. Returns the time. */
static double phase_end(
        const struct trainer *trainer, const char *name, double began)
{
    double now = clock_seconds();
    spans_add(trace_spans(trainer->trace), LANE_TRAINER, name, -1, began, now);
    return now;
}

static struct model_batch batch_of(const struct trainer *trainer, int a)
{
    struct model_batch batch =
            batches_of_model(&trainer->batches[a], trainer->plan.per_device);
    batch.step = trainer->state.step;
    batch.first_sample = batches_first_sample(trainer, a);
    return batch;
}

/* Runs micro-batches `begin` .. begin + count - 1, by layer if there are
 * several; zero sees them as one, number `turn` of the step. */
static enum zd_status run_micros(
        struct trainer *trainer, int turn, int begin, int count, float dloss,
        struct train_step_report *report)
{
    struct model_hooks hooks = zero_hooks(trainer->zero);
    double began = clock_seconds();

    for (int i = 0; i < count; i++)
        trainer->model_batches[i] = batch_of(trainer, begin + i);
    hooks.spans = trace_spans(trainer->trace);
    ZD_TRY(zero_micro_begin(trainer->zero, turn));
    ZD_TRY(model_forward(
            trainer->model, trainer->model_batches, count, dloss, &hooks));
    double half = phase_end(trainer, "forward", began);
    ZD_TRY(model_backward(trainer->model, &hooks));
    report->forward_seconds += half - began;
    report->backward_seconds += phase_end(trainer, "backward", half) - half;
    return ZD_OK;
}

/* The factor of the loss's gradient. */
static double scale_of(const struct trainer *trainer)
{
    double scale = trainer->state.loss_scale.scale;
    return scale > 0 ? scale : 1;
}

static double clip_factor(double norm, double max_norm)
{
    double factor = max_norm / (norm + 1e-6);
    return max_norm > 0 && factor < 1 ? factor : 1;
}

static struct optim_step step_of(
        const struct trainer *trainer, const struct train_step_report *report,
        double factor)
{
    return (struct optim_step){
            .options = &trainer->job->optim,
            .learning_rate = report->learning_rate,
            .seed = trainer->job->job.seed,
            .t = trainer->state.applied_steps + 1,
            .grad_scale = (float)(factor / scale_of(trainer))};
}

static enum zd_status update(
        struct trainer *trainer, struct train_step_report *report)
{
    double max_norm = live_max_grad_norm(trainer);
    struct optim_step step =
            step_of(trainer, report, clip_factor(report->grad_norm, max_norm));
    double began = clock_seconds();
    trainer->state.applied_steps++;
    ZD_TRY(zero_update(trainer->zero, &step));
    double half = phase_end(trainer, "update", began);
    ZD_TRY(zero_gather_params(trainer->zero));
    report->update_seconds = half - began;
    report->gather_seconds = phase_end(trainer, "gather all", half) - half;
    return ZD_OK;
}

/* A loss that is not finite does not depend on the loss scale: the forward pass
 * has overflowed or the model has diverged. */
static void skip(
        const struct trainer *trainer, struct train_step_report *report)
{
    bool overflowed = report->loss_scale.scale > 0 && isfinite(report->loss);
    report->skipped = overflowed ? skipped_overflow : skipped_nonfinite;
    report->diverged = !overflowed || trainer->job->train.fp16.loss_scale > 0;
}

/* Updates the loss scale for the next step. */
static void settle_scale(
        struct trainer *trainer, struct train_step_report *report)
{
    bool overflowed = report->skipped == skipped_overflow;
    if (report->loss_scale.scale > 0 && (overflowed || !report->skipped))
        report->scale_change = loss_scale_update(
                &trainer->state.loss_scale, &trainer->job->train.fp16,
                overflowed);
}

/* Advances a save right after the exchange, when no other work is under way:
 * elsewhere its small messages would wait for gathers of parameters and for
 * updating threads. */
static enum zd_status poll_save(
        struct trainer *trainer, const int64_t words[WORDS])
{
    struct zero_wire before = zero_wire(trainer->zero), after;
    double began = clock_seconds(), waited = comm_waited(trainer->comm);
    ZD_TRY(save_poll(trainer, signals_has(words[WORD_FLAGS], SIGNALS_SAVING)));
    after = zero_wire(trainer->zero);
    trainer->aside.wire = zero_wire_since(&before, &after);
    trainer->aside.waited = comm_waited(trainer->comm) - waited;
    trainer->aside.seconds = clock_seconds() - began;
    return ZD_OK;
}

static enum zd_status compute(
        struct trainer *trainer, const int64_t words[WORDS],
        struct train_step_report *report)
{
    const struct objective *objective = trainer->objective;
    struct objective_sums sums = sums_of(trainer, words[WORD_TARGETS]);
    struct exact_sum loss;
    float dloss = (float)((double)objective->weight(&sums) * scale_of(trainer));
    struct optim_step unclipped = step_of(trainer, report, 1);

    ZD_TRY(zero_step_begin(trainer->zero));
    zero_step_expect(trainer->zero, &unclipped);
    int A = trainer->plan.accumulation, count = trainer->plan.by_layer ? A : 1;
    for (int a = 0; a < A; a += count)
        ZD_TRY(run_micros(trainer, a / count, a, count, dloss, report));
    double began = clock_seconds();
    ZD_TRY(zero_reduce_finish(trainer->zero));
    ZD_TRY(model_loss_take(trainer->model, &loss));
    objective->term(&sums, &loss);
    if (!trainer_counts_loss(trainer))
        exact_sum_clear(&loss);
    ZD_TRY(zero_grad_norm(trainer->zero, &report->grad_norm, &loss));
    ZD_TRY(device_check());
    report->reduce_seconds = phase_end(trainer, "reduce", began) - began;
    report->loss = objective->loss(&sums, &loss);
    report->grad_norm /= scale_of(trainer);
    ZD_TRY(poll_save(trainer, words));
    if (isfinite(report->loss) && isfinite(report->grad_norm))
        return update(trainer, report);
    skip(trainer, report);
    return zero_skip(trainer->zero);
}

/* Sleeps on every rank while paused, so that none spins in the exchange. */
static void rest(void)
{
    struct timespec time = {.tv_nsec = PAUSED_POLL_MS * 1000000L};
    nanosleep(&time, NULL); /* a signal may end it early, and is handled next */
}

static struct step_turn turn_of(
        const struct trainer *trainer, const int64_t words[WORDS])
{
    int64_t flags = words[WORD_FLAGS];
    bool exits = signals_has(flags, SIGNALS_SAVE_EXIT) ||
                 signals_has(flags, SIGNALS_EXIT);
    bool has_command = words[WORD_COMMAND] != 0 && !exits;
    return (struct step_turn){
            .flags = flags,
            .has_command = has_command,
            .ran = !exits && !has_command && !trainer->is_paused};
}

/* `held`: seconds that a GPU's stream waited, not the host. */
static struct train_exposed exposed_of(
        const struct trainer *trainer,
        const struct train_offload_report *offload, double waited, double held)
{
    const struct offload_report *engine = &offload->engine;
    bool is_cpu = trainer->plan.backend == DEVICE_CPU;
    return (struct train_exposed){
            .update = engine->wait_host_seconds + engine->wait_disk_seconds,
            .gathers = fmax(waited, 0),
            .copies = engine->wait_down_seconds + engine->wait_up_seconds +
                      offload->activations.wait_seconds + held,
            .launches = is_cpu ? 0 : NAN};
}

enum zd_status trainer_step(
        struct trainer *trainer, struct step_turn *turn,
        struct train_step_report *report)
{
    int64_t words[WORDS];
    struct train_state *state = &trainer->state;
    double began = clock_seconds();

    stragglers_begin(trainer);
    *report = (struct train_step_report){
            .step = state->step + 1,
            .max_steps = state->max_steps,
            .loss = NAN,
            .grad_norm = NAN,
            .loss_scale = state->loss_scale};
    if (trainer->is_paused)
        rest();
    ZD_TRY(exchange(trainer, words));
    report->data_seconds = clock_seconds() - began;
    *turn = turn_of(trainer, words);
    if (!turn->ran)
        return poll_save(trainer, words);

    double waited = comm_waited(trainer->comm);
    double held = stream_counters(NULL).held;
    trainer->has_batches = false;
    spans_add(
            trace_spans(trainer->trace), LANE_TRAINER, "data", -1, began,
            began + report->data_seconds);
    report->learning_rate = live_learning_rate(trainer);
    live_settings(trainer, report->settings);
    report->global_batch = trainer->plan.global_batch;
    report->tokens = words[WORD_TOKENS];
    if (words[WORD_TARGETS] > 0) {
        ZD_TRY(compute(trainer, words, report));
    } else {
        ZD_TRY(poll_save(trainer, words));
        report->skipped = "no_targets";
    }
    report->offload.active = trainer->plan.zero.states_on_host ||
                             trainer->plan.zero.request.spill_bytes > 0 ||
                             trainer->job->offload.activations != OFFLOAD_NONE;
    report->offload.engine = zero_offload_report(trainer->zero);
    report->offload.has_disk = trainer->job->offload.optimizer == OFFLOAD_NVME;
    report->offload.undone_steps = report->offload.engine.undone;
    report->offload.activations = model_offload_report_take(trainer->model);
    report->offload.has_activations = report->offload.activations.down_bytes ||
                                      report->offload.activations.up_bytes;
    report->exposed = exposed_of(
            trainer, &report->offload,
            comm_waited(trainer->comm) - waited - trainer->aside.waited,
            stream_counters(NULL).held - held);
    train_offload_add(&report->offload, &trainer->offload_late);
    trainer->offload_late = (struct train_offload_report){0};
    state->step++;
    state->samples_taken += trainer->plan.global_batch;
    state->tokens_seen += report->tokens;
    trainer->tokens_here += report->tokens;
    state->skipped_steps += report->skipped != NULL;
    settle_scale(trainer, report);
    if (report->diverged)
        state->skipped_in_a_row++;
    else if (report->skipped != skipped_overflow)
        state->skipped_in_a_row = 0;
    double end = clock_seconds();
    spans_add(
            trace_spans(trainer->trace), LANE_TRAINER, "step", state->step,
            began, end);
    report->step_seconds = end - began - trainer->aside.seconds;
    report->tokens_per_second = (double)report->tokens / report->step_seconds;
    return ZD_OK;
}
