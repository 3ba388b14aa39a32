/* evaluate.c - the loss of the evaluation data: the same samples at every world
 * size, dealt over the ranks; sums are exact, so the cut does not show. */
#include "base/clock.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <string.h>

/* A row without targets: it adds nothing. */
static void mask_row(int32_t *tokens, int32_t *labels, int32_t *starts, int T)
{
    memset(tokens, 0, (size_t)T * sizeof *tokens);
    memset(starts, 0, (size_t)T * sizeof *starts);
    for (int t = 0; t < T; t++)
        labels[t] = -1;
}

/* Rows that a rank has no sample for, or cannot read, are masked: it must still
 * take part in the gathers of its peers. */
static enum zd_status fill_batch(
        struct trainer *trainer, int64_t first, int64_t samples,
        struct model_batch *batch, int64_t *targets)
{
    int B = trainer->plan.shape.eval_B, T = trainer->plan.shape.T;
    int32_t *memory = arena_span(&trainer->arena, "train.eval_batch");
    int count = 0, longest = 0;
    size_t plane = (size_t)B * (size_t)T;
    enum zd_status status = ZD_OK;
    for (int b = 0; b < B; b++) {
        int32_t *tokens = memory + (size_t)b * (size_t)T;
        int32_t *labels = tokens + plane, *starts = labels + plane;
        bool is_there = first + b < samples && status == ZD_OK;
        if (is_there)
            status = dataset_sample(
                    trainer->eval_data, first + b, tokens, labels, starts,
                    &count);
        longest = is_there && count > longest ? count : longest;
        if (!is_there || status != ZD_OK)
            mask_row(tokens, labels, starts, T);
        for (int t = 0; t < T; t++)
            *targets += labels[t] >= 0;
    }
    *batch = (struct model_batch){
            .tokens = memory,
            .targets = memory + plane,
            .doc_start = memory + 2 * plane,
            .all_doc_start = memory + 2 * plane,
            .B = B,
            .T = batch_close_up(
                    memory, memory + plane, memory + 2 * plane, B, T,
                    trainer_cuts_samples(trainer) ? T : longest)};
    if (trainer->plan.mesh.cp > 1)
        batch->doc_start = batch_take_pieces(
                memory, memory + plane, memory + 2 * plane, B, T,
                trainer->plan.shape.cp.size, trainer->plan.shape.cp.place);
    return status;
}

static enum zd_status run_batches(
        struct trainer *trainer, int64_t samples, int64_t *targets,
        enum zd_status *read)
{
    int B = trainer->plan.shape.eval_B;
    struct mesh_group part =
            mesh_samples(trainer->plan.mesh, comm_rank(trainer->comm));
    int64_t across = (int64_t)B * part.size;
    struct model_hooks hooks = zero_hooks(trainer->zero);
    struct model_batch batch;

    for (int64_t first = 0; first < samples; first += across) {
        int64_t mine = first + (int64_t)B * part.place;
        struct comm_data data = comm_data_begin(trainer->comm);
        enum zd_status filled =
                fill_batch(trainer, mine, samples, &batch, targets);
        comm_data_end(trainer->comm, data);
        *read = *read == ZD_OK ? filled : *read;
        comm_goes_on(trainer->comm);
        ZD_TRY(zero_eval_begin(trainer->zero));
        ZD_TRY(model_evaluate(trainer->model, &batch, &hooks));
    }
    return ZD_OK;
}

static int64_t samples_to_take(const struct trainer *trainer)
{
    const struct eval_options *eval = &trainer->job->eval;
    int64_t samples = dataset_summary(trainer->eval_data).samples;
    int64_t most = eval->max_batches * eval->per_device_eval_batch_size;
    return eval->max_batches > 0 && samples > most ? most : samples;
}

/* The sums of all ranks make the loss. */
static enum zd_status merge(
        struct trainer *trainer, struct exact_sum *loss, int64_t targets,
        double *value_out)
{
    struct comm *comm = trainer->comm;
    if (!trainer_counts_loss(trainer))
        exact_sum_clear(loss);
    if (!trainer_counts_sample(trainer))
        targets = 0;
    exact_sum_carry(loss);
    ZD_TRY(comm_all_reduce_i64(comm, loss->digit, EXACT_SUM_DIGITS, COMM_SUM));
    int64_t counts[2] = {targets, loss->nonfinite};
    ZD_TRY(comm_all_reduce_i64(comm, counts, 2, COMM_SUM));
    loss->nonfinite = counts[1];
    loss->pending = comm_size(comm);
    struct objective_sums sums = {.targets = counts[0], .mine = targets};
    *value_out = counts[0] ? trainer->objective->loss(&sums, loss) : NAN;
    return ZD_OK;
}

static void note_loss(struct trainer *trainer, double value)
{
    struct train_state *state = &trainer->state;
    bool greater = trainer->job->checkpoint.greater_is_better;
    if (state->eval_step != state->step)
        save_outdated(trainer);
    state->eval_loss = value;
    state->eval_step = state->step;
    if (!isnan(value) && (isnan(state->best_eval_loss) ||
                          (greater ? value > state->best_eval_loss
                                   : value < state->best_eval_loss))) {
        state->best_eval_loss = value;
        state->best_step = state->step;
    }
}

enum zd_status trainer_evaluate(
        struct trainer *trainer, enum zd_status *read_out)
{
    struct exact_sum loss;
    int64_t targets = 0;
    double value, began = clock_seconds();
    enum zd_status read = ZD_OK;
    enum train_run_state before = trainer->run_state;

    if (!trainer->eval_data)
        return ZD_OK;
    trainer_tell_state(trainer, RUN_EVALUATING);
    ZD_TRY(run_batches(trainer, samples_to_take(trainer), &targets, &read));
    ZD_TRY(model_loss_take(trainer->model, &loss));
    read = comm_agree(trainer->comm, read);
    if (read_out)
        *read_out = read;
    if (read == ZD_OK)
        ZD_TRY(merge(trainer, &loss, targets, &value));
    rank_meter_add(trainer, PHASE_EVAL, began);
    trainer_tell_state(trainer, before);
    if (read != ZD_OK)
        return read_out && read != ZD_ERR_PEER ? ZD_OK : read;
    note_loss(trainer, value);
    return trainer_tell_eval(trainer, value);
}
