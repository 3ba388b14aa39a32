/* request.c - room for what a running job may be asked for: an evaluation
 * where eval.eval_strategy is "no", samples where none are due.
 *
 * Their activations lie where those of a step lie, which is as large as the
 * step needs; so the batch and the positions that are planned for are the most
 * that fit there, and hardly anything is added. */
#include "train/plan/fit.h"

enum { DECODE_BATCH = 64, PROMPT_TOKENS = 1024, LEAST_POSITIONS = 16 };

static void set_decode_batch(struct model_shape *shape)
{
    int capacity = shape->decode_capacity;
    shape->decode_batch = capacity < DECODE_BATCH ? capacity : DECODE_BATCH;
}

/* Device bytes of a shape: of activations alone, and all in all. */
struct shape_bytes {
    size_t activations, all;
};

static enum zd_status measure(
        const struct job_plan *plan, struct model_shape shape,
        struct shape_bytes *out)
{
    struct arena_plan arena = {0};
    set_decode_batch(&shape);
    enum zd_status status =
            model_plan(&plan->config, &plan->table, &shape, &arena);
    if (status == ZD_OK) {
        out->activations = arena_plan_find(&arena, "model.activations")->bytes;
        out->all = arena.bytes[ARENA_DEVICE];
    }
    arena_plan_fini(&arena);
    return status;
}

static bool is_asked(const struct train_job *job)
{
    return job->control.socket != CONTROL_NONE || job->run.replay;
}

/* The most rows of an evaluation batch, or positions of a cache, whose
 * activations lie within `room`: halved down to `least`; 0: not even those. */
static enum zd_status fit_most(
        const struct job_plan *plan, bool is_eval, int most, int least,
        size_t room, int *out)
{
    struct model_shape shape = plan->shape;
    struct shape_bytes bytes;
    shape.train = false;
    *out = 0;
    for (int value = most; value >= least && !*out; value /= 2) {
        shape.eval_B = is_eval ? value : 0;
        shape.decode_capacity = is_eval ? 0 : value;
        ZD_TRY(measure(plan, shape, &bytes));
        if (bytes.activations <= room)
            *out = value;
    }
    return ZD_OK;
}

static int most_positions(const struct train_job *job, int max_positions)
{
    int wanted = PROMPT_TOKENS + job->sample.max_new_tokens;
    return wanted < max_positions ? wanted : max_positions;
}

static enum zd_status fit_requests(
        const struct train_job *job, struct job_plan *plan, size_t room)
{
    struct model_shape *shape = &plan->shape;
    bool has_data = job->data.eval_count > 0 || job->data.val_split > 0;
    int positions = 0;
    if (has_data && !shape->eval_B) {
        ZD_TRY(fit_most(
                plan, true, job->eval.per_device_eval_batch_size, 1, room,
                &shape->eval_B));
        shape->eval_B = shape->eval_B ? shape->eval_B : 1;
    }
    /* hardly any where a step's own activations are on the host: none */
    ZD_TRY(fit_most(
            plan, false, most_positions(job, plan->config.max_positions),
            LEAST_POSITIONS, room, &positions));
    if (positions > shape->decode_capacity)
        shape->decode_capacity = positions;
    return ZD_OK;
}

enum zd_status plan_on_request(
        const struct train_job *job, struct job_plan *plan)
{
    struct shape_bytes own, asked;
    struct model_shape before = plan->shape;
    plan->request_device_bytes = plan->request_host_bytes = 0;
    set_decode_batch(&plan->shape);
    if (!is_asked(job))
        return ZD_OK;
    ZD_TRY(measure(plan, before, &own));
    ZD_TRY(fit_requests(job, plan, own.activations));
    set_decode_batch(&plan->shape);
    ZD_TRY(measure(plan, plan->shape, &asked));
    plan->request_device_bytes = asked.all - own.all;
    if (!before.eval_B)
        plan->request_host_bytes += plan_eval_batch_bytes(&plan->shape);
    if (!before.decode_capacity && plan->shape.decode_capacity)
        plan->request_host_bytes += plan_logits_bytes(plan->config.vocab_size);
    return ZD_OK;
}
