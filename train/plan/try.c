/* try.c - plans a rank's memory and traffic for one choice; pure. */
#include "base/device/device_memory.h"
#include "base/must.h"
#include "train/plan/fit.h"

#include <string.h>

/* Positions of the key/value cache for samples: a prompt has at most one token
 * per byte; a post-processor may prepend a few, and a chat template its system
 * message. */
static int sample_capacity(const struct train_job *job, int max_positions)
{
    enum { PREFIX_MAX = 8, TEMPLATE_MAX = 512 };
    size_t longest = 0;
    if (job->sample.steps <= 0 || job->sample.prompt_count == 0)
        return 0;
    for (int i = 0; i < job->sample.prompt_count; i++) {
        size_t bytes = strlen(job->sample.prompts[i]);
        longest = bytes > longest ? bytes : longest;
    }
    size_t capacity = longest + PREFIX_MAX + (size_t)job->sample.max_new_tokens;
    if (job->sample.chat)
        capacity += TEMPLATE_MAX;
    return capacity < (size_t)max_positions ? (int)capacity : max_positions;
}

static bool has_eval_data(const struct train_job *job)
{
    return job->data.eval_count > 0 || job->data.val_split > 0;
}

/* The shape including the job's own evaluations and samples. */
static struct model_shape own_shape(
        const struct train_job *job, const struct job_choice *choice,
        const struct job_plan *plan)
{
    bool evaluates = job->eval.eval_strategy != EVAL_NO && has_eval_data(job);
    return (struct model_shape){
            .B = choice->B,
            .T = job->data.cutoff_len,
            .eval_B = evaluates ? job->eval.per_device_eval_batch_size : 0,
            .checkpointing = choice->checkpointing,
            .mlp_pieces = choice->mlp_pieces     ? choice->mlp_pieces
                          : job->train.tiled_mlp ? job->train.tiled_mlp
                                                 : 1,
            .dtype = job->train.dtype,
            .fp8 = job->train.fp8,
            .backend = plan->backend,
            .decode_capacity = sample_capacity(job, plan->config.max_positions),
            .train = true,
            .offload_activations = job->offload.activations != OFFLOAD_NONE,
            .cp = plan->cp,
            .dropout = plan->adapter.lora_dropout,
            .seed = job->job.seed,
            .micros = plan->by_layer ? choice->A : 1,
    };
}

/* --- what a running job may be asked for ---------------------------------- *
 *
 * An evaluation where eval.eval_strategy is "no", samples where none are due.
 * Their activations lie where those of a step lie, which is as large as the
 * step needs; so the batch and the positions that are planned for are the most
 * that fit there, and hardly anything is added. */

static size_t eval_batch_bytes(const struct model_shape *shape)
{
    return 3 * sizeof(int32_t) * (size_t)shape->eval_B * (size_t)shape->T;
}

static size_t logits_bytes(int V)
{
    return (sizeof(float) + sizeof(int32_t)) * (size_t)V;
}

enum { DECODE_BATCH = 64, PROMPT_TOKENS = 1024, LEAST_POSITIONS = 16 };

/* Must be divisible by tp. */
static void set_decode_batch(struct model_shape *shape, int tp)
{
    int capacity = shape->decode_capacity;
    int batch = capacity < DECODE_BATCH ? capacity : DECODE_BATCH;
    shape->decode_batch = (batch + tp - 1) / tp * tp;
}

/* Plans the spans of a shape. */
static enum zd_status measure(
        const struct job_plan *plan, struct model_shape shape,
        struct arena_plan *out)
{
    set_decode_batch(&shape, plan->mesh.tp);
    return model_plan(
            plan_slice_config(plan), plan_slice_table(plan), &shape, out);
}

static size_t activations_of(const struct arena_plan *arena)
{
    return arena_plan_find(arena, "model.activations")->bytes;
}

/* The most rows of an evaluation batch, or positions of a cache, whose
 * activations fit in `room`, by halving down to `least`; 0: not even `least`.
 */
static enum zd_status fit_most(
        const struct job_plan *plan, bool is_eval, int most, int least,
        size_t room, int *out)
{
    struct model_shape shape = plan->shape;
    shape.train = false;
    *out = 0;
    for (int value = most; value >= least && !*out; value /= 2) {
        ZD_SCOPED(arena_plan_fini) struct arena_plan arena = {0};
        shape.eval_B = is_eval ? value : 0;
        shape.decode_capacity = is_eval ? 0 : value;
        ZD_TRY(measure(plan, shape, &arena));
        if (activations_of(&arena) <= room)
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
    int positions = 0;
    if (has_eval_data(job) && !shape->eval_B) {
        ZD_TRY(fit_most(
                plan, true, job->eval.per_device_eval_batch_size, 1, room,
                &shape->eval_B));
        shape->eval_B = shape->eval_B ? shape->eval_B : 1;
    }
    /* too few, because a step's own activations are on the host: none */
    ZD_TRY(fit_most(
            plan, false, most_positions(job, plan->config.max_positions),
            LEAST_POSITIONS, room, &positions));
    if (positions > shape->decode_capacity)
        shape->decode_capacity = positions;
    return ZD_OK;
}

/* Adds evaluations and samples on request to plan->shape, and their memory to
 * the plan. */
static enum zd_status plan_on_request(
        const struct train_job *job, struct job_plan *plan,
        struct arena_plan *model)
{
    struct model_shape before = plan->shape;
    plan->request_device_bytes = plan->request_host_bytes = 0;
    set_decode_batch(&plan->shape, plan->mesh.tp);
    ZD_TRY(measure(plan, before, model));
    if (job->control.socket == CONTROL_NONE)
        return ZD_OK;
    size_t own = model->bytes[ARENA_DEVICE];
    ZD_TRY(fit_requests(job, plan, activations_of(model)));
    set_decode_batch(&plan->shape, plan->mesh.tp);
    arena_plan_fini(model);
    ZD_TRY(measure(plan, plan->shape, model));
    plan->request_device_bytes = model->bytes[ARENA_DEVICE] - own;
    if (!before.eval_B)
        plan->request_host_bytes += eval_batch_bytes(&plan->shape);
    if (!before.decode_capacity && plan->shape.decode_capacity)
        plan->request_host_bytes += logits_bytes(plan->config.vocab_size);
    return ZD_OK;
}

/* --- spans ---------------------------------------------------------------- */

/* The loader keeps a whole step, because targets are counted before its first
 * forward, and reads the next batch and a few more ahead. */
int job_plan_batches(const struct train_job *job, int accumulation)
{
    int ahead = job->data.prefetch > 1 ? job->data.prefetch : 1;
    return 2 * (accumulation + ahead);
}

static enum zd_status plan_comm(
        const struct train_job *job, struct job_plan *plan)
{
    struct comm_needs needs = {
            .transport = plan->transport,
            .is_ordered = job->comm.reduce == COMM_REDUCE_ORDERED};
    for (enum zero_group g = ZERO_SHARD; g < ZERO_GROUPS; g++) {
        needs.node_size = plan->node_sizes[g];
        if (zero_comm_needs(&plan->zero, g, &needs))
            ZD_TRY(comm_plan_needs(&plan->arena, &needs));
    }
    return ZD_OK;
}

/* Plans all spans, including the model's. */
static enum zd_status plan_spans(
        const struct train_job *job, const struct arena_plan *model,
        struct job_plan *plan)
{
    struct arena_plan *arena = &plan->arena;
    int T = job->data.cutoff_len;

    ZD_TRY(zero_plan_spans(&plan->zero, arena));
    ZD_TRY(plan_comm(job, plan));
    if (plan->backend == DEVICE_CUDA)
        ZD_TRY(arena_plan_add(
                arena, "device.staging", ARENA_PINNED, SPAN_BUFFERS,
                DEVICE_STAGING_BYTES));
    ZD_EACH(span, model->spans, model->span_count)
        ZD_TRY(arena_plan_add(
                arena, span->name, span->memory, span->kind, span->bytes));
    ZD_TRY(arena_plan_add(
            arena, "train.batches", ARENA_HOST, SPAN_BUFFERS,
            loader_bytes(
                    job_plan_batches(job, plan->accumulation), plan->per_device,
                    T)));
    if (plan->shape.eval_B)
        ZD_TRY(arena_plan_add(
                arena, "train.eval_batch", ARENA_HOST, SPAN_BUFFERS,
                eval_batch_bytes(&plan->shape)));
    if (plan->shape.decode_capacity)
        ZD_TRY(arena_plan_add(
                arena, "train.sample_logits", ARENA_HOST, SPAN_BUFFERS,
                logits_bytes(plan->config.vocab_size)));
    return ZD_OK;
}

static struct model_exchange exchange_of(const struct job_plan *plan)
{
    return model_exchange(
            plan_slice_config(plan), plan_slice_table(plan), &plan->shape);
}

static void sum_context(struct job_plan *plan)
{
    enum { PAGE = 4096, ENTRY = 8 };
    struct plan_context *context = &plan->context;
    if (plan->backend == DEVICE_CUDA)
        context->tables = plan->arena.bytes[ARENA_PINNED] / PAGE * ENTRY;
    plan->context_bytes = context->driver + context->kernels +
                          context->products + context->attention +
                          context->collectives + context->tables;
}

enum zd_status job_plan_try(
        const struct train_job *job, const struct job_choice *choice,
        struct job_plan *plan)
{
    zero_plan_fini(&plan->zero);
    arena_plan_fini(&plan->arena);
    plan->per_device = choice->B;
    plan->accumulation = choice->A;
    plan->by_layer = choice->by_layer && choice->A > 1;
    ZD_TRY(plan_check_slices(job, plan));
    ZD_TRY(plan_check_fp8(job, plan));
    plan->shape = own_shape(job, choice, plan);
    ZD_TRY(plan_choose_heads(job, plan));
    int micros = plan->by_layer ? 1 : choice->A;
    int shards = mesh_group(plan->mesh, MESH_SHARD, 0).size;
    int adders = shards > plan->mesh.replicate
                         ? shards
                         : plan->mesh.replicate; /* of one sum */
    if (choice->moves_most && micros > choice->moves_most)
        micros = choice->moves_most;
    struct zero_request request; /* compared as bytes */
    memset(&request, 0, sizeof request);
    request.exchange = exchange_of(plan);
    request.config = plan_slice_config(plan);
    request.table = plan_slice_table(plan);
    request.mesh = plan->mesh;
    request.options = job->zero;
    request.dtype = job->train.dtype;
    request.accumulation = micros;
    request.by_layer = plan->by_layer ? choice->A : 0;
    request.checkpointing = choice->checkpointing;
    request.mlp_pieces = plan->shape.mlp_pieces;
    request.train = true;
    request.optim = job->optim;
    request.offload = job->offload;
    request.accumulate_on_host = choice->accumulate_on_host;
    request.spill_bytes = choice->spill_bytes;
    request.reduce_fp32 =
            comm_reduces_fp32(&job->comm, plan->transport, adders);
    request.measures = &plan->measures;
    ZD_SCOPED(arena_plan_fini) struct arena_plan model = {0};
    if (request.offload.undo_memory == OFFLOAD_UNDO_AUTO)
        request.offload.undo_memory = choice->undo_bytes;
    if (request.offload.device_update < 0)
        request.offload.device_update = choice->device_update;
    ZD_TRY(zero_plan_build(&request, &plan->zero));
    if (plan->backend == DEVICE_CUDA && !plan_multiplies_codes(plan))
        plan->shape.joined = zero_joined(&plan->zero);
    ZD_TRY(plan_on_request(job, plan, &model));
    plan->zero.request.exchange = exchange_of(plan); /* evaluates and decodes */
    ZD_TRY(plan_spans(job, &model, plan));
    sum_context(plan);
    return ZD_OK;
}
