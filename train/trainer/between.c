/* between.c - work between steps: evaluations, samples, and when they and
 * checkpoints are due. Evaluation uses the same samples with any number of
 * ranks; sums are exact, so the loss does not depend on the distribution.
 * Samples come from the model in training: all ranks run it, rank 0 picks the
 * tokens. */
#include "base/clock.h"
#include "base/must.h"
#include "data/tokenize.h"
#include "train/text/decoder.h"
#include "train/trainer/trainer.h"

#include <math.h>

/* --- the evaluation ------------------------------------------------------- */

/* The order of evaluation samples over ranks, and this rank's part. */
struct eval_order {
    struct mesh_group part;
    int B;
    int64_t samples;
};

/* Rows without a sample are masked, because the rank must still take part in
 * its peers' gathers. */
static int64_t eval_sample_of(void *ctx, int64_t batch, int b)
{
    const struct eval_order *order = ctx;
    int64_t sample =
            (batch * order->part.size + order->part.place) * order->B + b;
    return sample < order->samples ? sample : -1;
}

static enum zd_status run_batches(
        struct trainer *trainer, int64_t samples, int64_t *targets,
        enum zd_status *read)
{
    int rank = comm_rank(trainer->comm);
    struct eval_order eval = {
            .part = mesh_samples(trainer->plan.mesh, rank),
            .B = trainer->plan.shape.eval_B,
            .samples = samples};
    const struct loader_order order =
            batches_order(trainer, eval_sample_of, &eval);
    int64_t across = (int64_t)eval.B * eval.part.size;
    struct model_hooks hooks = zero_hooks(trainer->zero);
    struct loader_batch loaded;

    for (int64_t batch = 0; batch * across < samples; batch++) {
        struct comm_data data = comm_data_begin(trainer->comm);
        enum zd_status filled = batch_read(
                trainer->eval_data, &order, batch, eval.B,
                trainer->plan.shape.T,
                arena_span(&trainer->arena, "train.eval_batch"), &loaded);
        comm_data_end(trainer->comm, data);
        *read = *read == ZD_OK ? filled : *read;
        *targets += loaded.target_count;
        comm_goes_on(trainer->comm);
        ZD_TRY(zero_eval_begin(trainer->zero));
        struct model_batch model = batches_of_model(&loaded, eval.B);
        ZD_TRY(model_evaluate(trainer->model, &model, &hooks));
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

/* Merges the sums of all ranks to the loss. */
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

/* --- samples -------------------------------------------------------------- */

/* *end_out: the token that ends a chat's answer, or -1. */
static enum zd_status encode(
        const struct trainer *trainer, const struct sample_request *request,
        int i, struct token_vector *ids, int32_t *end_out)
{
    const struct data_options *data = &trainer->job->data;
    const struct chat_choice choice = {
            data->chat_template, data->chat_file, trainer->ahead.date};
    *end_out = -1;
    if (!request->chat || !trainer->text.tokenizer)
        return decoder_encode(&trainer->text, request->prompts[i], ids);
    return tokenize_chat_prompt(
            trainer->text.tokenizer, request->prompts[i], &choice, ids,
            end_out);
}

static enum zd_status sample_one(
        struct trainer *trainer, const struct decoder *decoder,
        const struct sample_request *request, int i, struct decoder_text *text)
{
    const struct sample_options *options = &trainer->job->sample;
    struct text own = trainer->text;
    struct decoder to_end = *decoder;
    struct sampler sampler = {
            .temperature = options->temperature,
            .top_p = options->top_p,
            .seed = trainer->job->job.seed};
    ZD_TRY(zero_eval_begin(trainer->zero));
    ZD_TRY(encode(trainer, request, i, &text->prompt, &own.turn_end));
    to_end.text = &own;
    return decoder_run(&to_end, text, 1, request->max_new_tokens, &sampler);
}

static void tell_sample(
        struct trainer *trainer, const struct sample_request *request, int i,
        const struct decoder_text *text)
{
    json_auto_t *sample = decoder_text_json(text, request->prompts[i]);
    if (request->chat)
        json_object_set_new(sample, "chat", json_true());
    trainer_tell_sample(trainer, sample);
    if (request->told)
        json_array_append(request->told, sample);
}

enum zd_status trainer_sample_request(
        struct trainer *trainer, const struct sample_request *request)
{
    int V = trainer->plan.config.vocab_size;
    enum train_run_state before = trainer->run_state;
    float *logits = arena_span(&trainer->arena, "train.sample_logits");
    struct model_hooks hooks = zero_hooks(trainer->zero);
    struct decoder decoder = {
            .model = trainer->model,
            .config = &trainer->plan.config,
            .hooks = &hooks,
            .text = &trainer->text,
            .comm = trainer->comm,
            .logits = logits,
            .order = (int32_t *)(logits + V),
            .capacity = trainer->plan.shape.decode_capacity,
            .batch = trainer->plan.shape.decode_batch};
    trainer_tell_state(trainer, RUN_SAMPLING);
    for (int i = 0; i < request->count; i++) {
        ZD_SCOPED(decoder_text_fini)
        struct decoder_text text = {
                .stream = (uint64_t)trainer->state.step * 64 + (uint64_t)i};
        ZD_TRY(sample_one(trainer, &decoder, request, i, &text));
        tell_sample(trainer, request, i, &text);
    }
    trainer_tell_state(trainer, before);
    return ZD_OK;
}

struct sample_request trainer_sample_of_job(const struct trainer *trainer)
{
    const struct sample_options *options = &trainer->job->sample;
    bool has_room = trainer->plan.shape.decode_capacity > 0;
    return (struct sample_request){
            .prompts = options->prompts,
            .count = has_room ? options->prompt_count : 0,
            .chat = options->chat,
            .max_new_tokens = options->max_new_tokens};
}

static enum zd_status sample_of_job(struct trainer *trainer)
{
    const struct sample_request request = trainer_sample_of_job(trainer);
    return request.count ? trainer_sample_request(trainer, &request) : ZD_OK;
}

static enum zd_status check_prompt(
        const struct trainer *trainer, const struct sample_request *request,
        int i)
{
    ZD_SCOPED(token_vector_fini) struct token_vector ids = {0};
    int32_t end;
    int capacity = trainer->plan.shape.decode_capacity;
    ZD_TRY(encode(trainer, request, i, &ids, &end));
    if (ids.count >= (size_t)capacity) {
        ZD_BAD("E0463", "the prompt has %zu tokens, there is room for %d",
               ids.count, capacity);
        return zd_fail_help("a shorter prompt; memory is planned for one of so "
                            "many tokens and its continuation");
    }
    int room = capacity - (int)ids.count;
    if (!request->is_asked || request->max_new_tokens <= room)
        return ZD_OK;
    ZD_BAD("E1015",
           "%d new tokens after %zu of the prompt: there is room for %d in "
           "all",
           request->max_new_tokens, ids.count, capacity);
    return zd_fail_help("max_new_tokens of at most %d", room);
}

enum zd_status trainer_sample_check(
        struct trainer *trainer, const struct sample_request *request)
{
    enum zd_status status = ZD_OK;
    for (int i = 0; i < request->count && status == ZD_OK; i++) {
        status = check_prompt(trainer, request, i);
        if (status != ZD_OK && request->count > 1)
            zd_fail_where("prompt %d of %d", i + 1, request->count);
    }
    return status;
}

/* --- when ----------------------------------------------------------------- */

static bool is_multiple(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* Did the last step finish a pass over the data? */
static bool ends_epoch(const struct trainer *trainer)
{
    int64_t M = dataset_summary(trainer->train_data).samples;
    int64_t now = trainer->state.samples_taken;
    return M > 0 && now / M > (now - trainer->plan.global_batch) / M;
}

static bool eval_is_due(const struct trainer *trainer)
{
    const struct eval_options *eval = &trainer->job->eval;
    const struct train_state *state = &trainer->state;
    if (!trainer->eval_data || eval->eval_strategy == EVAL_NO)
        return false;
    if (state->step == state->max_steps)
        return true;
    if (eval->eval_strategy == EVAL_EPOCH)
        return ends_epoch(trainer);
    return is_multiple(state->step, live_eval_steps(trainer));
}

static bool save_is_due(const struct trainer *trainer, bool evaluated)
{
    const struct checkpoint_options *save = &trainer->job->checkpoint;
    const struct train_state *state = &trainer->state;
    switch (save->save_strategy) {
    case SAVE_NO:
    case SAVE_TIME: /* rank 0's clock decides, in a step's exchange */
        return false;
    case SAVE_STEPS:
        return is_multiple(state->step, live_save_steps(trainer));
    case SAVE_EPOCH:
        return ends_epoch(trainer);
    case SAVE_BEST:
        return evaluated && state->best_step == state->step;
    }
    return false;
}

enum zd_status between_begin(struct trainer *trainer)
{
    struct train_offload_report late = {0};
    if (trainer->between_depth++ > 0)
        return ZD_OK;
    ZD_TRY(zero_settle(trainer->zero));
    late.engine = zero_offload_report(trainer->zero);
    /* no step waited for these; the next step's row gets the rest */
    late.engine.wait_down_seconds = late.engine.wait_host_seconds = 0;
    late.engine.wait_disk_seconds = late.engine.wait_up_seconds = 0;
    train_offload_add(&trainer->offload_late, &late);
    return ZD_OK;
}

enum zd_status between_end(struct trainer *trainer)
{
    if (--trainer->between_depth > 0)
        return ZD_OK;
    zero_offload_report(trainer->zero);
    model_offload_report_take(trainer->model);
    return ZD_OK;
}

enum zd_status trainer_between(struct trainer *trainer)
{
    bool eval = eval_is_due(trainer);
    bool sample = is_multiple(trainer->state.step, trainer->job->sample.steps);
    if (!eval && !sample && !save_is_due(trainer, false))
        return ZD_OK;
    ZD_TRY(between_begin(trainer));
    if (eval)
        ZD_TRY(trainer_evaluate(trainer, NULL));
    if (sample)
        ZD_TRY(sample_of_job(trainer));
    if (save_is_due(trainer, eval))
        ZD_TRY(trainer_save(trainer, SAVE_TIMED));
    return between_end(trainer);
}
