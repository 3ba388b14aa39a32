/* evaluate.c - the loss of the evaluation data: the same samples at every world
 * size, dealt over the ranks; sums are exact, so the cut does not show. */
#include "base/clock.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

/* Rows that a rank has no sample for are masked: it must still take part in the
 * gathers of its peers. */
static enum zd_status fill_batch(
        struct trainer *trainer, int64_t first, int64_t samples,
        int32_t *memory, int64_t *targets)
{
    int B = trainer->plan.shape.eval_B, T = trainer->plan.shape.T, unused;
    size_t plane = (size_t)B * (size_t)T;
    for (int b = 0; b < B; b++) {
        int32_t *tokens = memory + (size_t)b * (size_t)T;
        int32_t *labels = tokens + plane, *starts = labels + plane;
        if (first + b < samples) {
            ZD_TRY(dataset_sample(
                    trainer->eval_data, first + b, tokens, labels, starts,
                    &unused));
        } else {
            memset(tokens, 0, (size_t)T * sizeof *tokens);
            memset(starts, 0, (size_t)T * sizeof *starts);
            for (int t = 0; t < T; t++)
                labels[t] = -1;
        }
        for (int t = 0; t < T; t++)
            *targets += labels[t] >= 0;
    }
    return ZD_OK;
}

static enum zd_status run_batches(
        struct trainer *trainer, int64_t samples, struct exact_sum *loss,
        int64_t *targets)
{
    int B = trainer->plan.shape.eval_B, T = trainer->plan.shape.T;
    int64_t across = (int64_t)B * comm_size(trainer->comm);
    int32_t *memory = arena_span(&trainer->arena, "train.eval_batch");
    size_t plane = (size_t)B * (size_t)T;
    struct model_hooks hooks = zero_hooks(trainer->zero);
    struct model_batch batch = {
            .tokens = memory,
            .targets = memory + plane,
            .doc_start = memory + 2 * plane,
            .B = B,
            .T = T};

    for (int64_t first = 0; first < samples; first += across) {
        int64_t mine = first + (int64_t)B * comm_rank(trainer->comm);
        ZD_TRY(fill_batch(trainer, mine, samples, memory, targets));
        ZD_TRY(zero_eval_begin(trainer->zero));
        ZD_TRY(model_evaluate(trainer->model, &batch, &hooks, loss));
    }
    return ZD_OK;
}

enum zd_status trainer_evaluate(struct trainer *trainer)
{
    struct exact_sum loss;
    int64_t targets = 0, samples;
    const struct eval_options *eval = &trainer->job->eval;
    struct train_state *state = &trainer->state;

    if (!trainer->eval_data)
        return ZD_OK;
    enum train_run_state before = trainer->run_state;
    trainer_tell_state(trainer, RUN_EVALUATING);
    samples = dataset_samples(trainer->eval_data);
    int64_t most = eval->max_batches * eval->per_device_eval_batch_size;
    if (eval->max_batches > 0 && samples > most)
        samples = most;
    double began = clock_seconds();
    exact_sum_clear(&loss);
    enum zd_status status = run_batches(trainer, samples, &loss, &targets);
    if (status != ZD_OK)
        return status;
    exact_sum_carry(&loss);
    ZD_TRY(comm_all_reduce_i64(
            trainer->comm, loss.digit, EXACT_SUM_DIGITS, COMM_SUM));
    int64_t counts[2] = {targets, loss.nonfinite};
    ZD_TRY(comm_all_reduce_i64(trainer->comm, counts, 2, COMM_SUM));
    loss.nonfinite = counts[1];
    loss.pending = comm_size(trainer->comm);
    rank_meter_add(trainer, PHASE_EVAL, began);
    double value = counts[0] ? exact_sum_value(&loss) / (double)counts[0] : NAN;

    bool greater = trainer->job->checkpoint.greater_is_better;
    state->eval_loss = value;
    state->eval_step = state->step;
    if (!isnan(value) && (isnan(state->best_eval_loss) ||
                          (greater ? value > state->best_eval_loss
                                   : value < state->best_eval_loss))) {
        state->best_eval_loss = value;
        state->best_step = state->step;
    }
    trainer_tell_state(trainer, before);
    return trainer_tell_eval(trainer, value);
}
