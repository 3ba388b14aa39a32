/* try.c - what a rank holds and sends for one choice; pure. */
#include "base/device/device_memory.h"
#include "train/plan/fit.h"

#include <string.h>

/* Positions of the key/value cache of the samples: a token is at least a byte
 * of the prompt, and a post-processor puts a few in front. */
static int sample_capacity(const struct train_job *job, int max_positions)
{
    enum { PREFIX_MAX = 8 };
    size_t longest = 0;
    if (job->sample.steps <= 0 || job->sample.prompt_count == 0)
        return 0;
    for (int i = 0; i < job->sample.prompt_count; i++) {
        size_t bytes = strlen(job->sample.prompts[i]);
        longest = bytes > longest ? bytes : longest;
    }
    size_t capacity = longest + PREFIX_MAX + (size_t)job->sample.max_new_tokens;
    return capacity < (size_t)max_positions ? (int)capacity : max_positions;
}

static bool has_eval_data(const struct train_job *job)
{
    return job->data.eval_count > 0 || job->data.val_split > 0;
}

/* What the job itself evaluates and samples. */
static struct model_shape own_shape(
        const struct train_job *job, const struct model_config *config, int B)
{
    bool evaluates = job->eval.eval_strategy != EVAL_NO && has_eval_data(job);
    return (struct model_shape){
            .B = B,
            .T = job->data.cutoff_len,
            .eval_B = evaluates ? job->eval.per_device_eval_batch_size : 0,
            .checkpointing = job->train.gradient_checkpointing,
            .dtype = job->train.dtype,
            .backend = device_resolve(job->device.backend),
            .decode_capacity = sample_capacity(job, config->max_positions),
            .train = true,
            .offload_activations = job->offload.activations != OFFLOAD_NONE,
    };
}

/* The loader keeps a whole step (its targets are counted before its first
 * forward) while the next and a few more are read ahead. */
int job_plan_batches(const struct train_job *job, int accumulation)
{
    int ahead = job->data.prefetch > 1 ? job->data.prefetch : 1;
    return 2 * (accumulation + ahead);
}

/* The largest shard of any collective, and of those that add to what is there.
 */
static enum zd_status plan_comm(
        const struct train_job *job, struct job_plan *plan)
{
    const struct zero_plan *zero = &plan->zero;
    struct comm_needs needs = {
            .transport = plan->transport,
            .world = plan->world,
            .node_size = plan->node_size,
            .is_ordered = job->comm.reduce == COMM_REDUCE_ORDERED};
    size_t grad = dtype_bytes(zero->grad_dtype);
    bool adds = zero->grads_cut && !zero->grads_pass &&
                zero->grad_dtype == DTYPE_FP32;
    for (int s = 0; s < zero->segment_count; s++) {
        const struct zero_segment *segment = &zero->segments[s];
        size_t sent = zero_segment_bytes(segment, segment->shard_count);
        if (segment->trainable && segment->shard_count * grad > sent)
            sent = segment->shard_count * grad;
        if (sent > needs.shard_bytes)
            needs.shard_bytes = sent;
        if (segment->trainable &&
            segment->shard_count * grad > needs.reduce_bytes)
            needs.reduce_bytes = segment->shard_count * grad;
        if (adds && segment->trainable &&
            segment->shard_count * grad > needs.accumulate_bytes)
            needs.accumulate_bytes = segment->shard_count * grad;
    }
    return comm_plan_needs(&plan->arena, &needs);
}

static enum zd_status plan_spans(
        const struct train_job *job, struct job_plan *plan)
{
    struct arena_plan *arena = &plan->arena;
    int T = job->data.cutoff_len;

    ZD_TRY(zero_plan_spans(&plan->zero, arena));
    ZD_TRY(plan_comm(job, plan));
    if (plan->backend == DEVICE_CUDA)
        ZD_TRY(arena_plan_add(
                arena, "device.staging", ARENA_PINNED, SPAN_BUFFERS,
                DEVICE_STAGING_BYTES));
    ZD_TRY(model_plan(&plan->config, &plan->table, &plan->shape, arena));
    ZD_TRY(arena_plan_add(
            arena, "train.batches", ARENA_HOST, SPAN_BUFFERS,
            loader_bytes(
                    job_plan_batches(job, plan->accumulation), plan->per_device,
                    T)));
    if (plan->shape.eval_B)
        ZD_TRY(arena_plan_add(
                arena, "train.eval_batch", ARENA_HOST, SPAN_BUFFERS,
                plan_eval_batch_bytes(&plan->shape)));
    if (plan->shape.decode_capacity)
        ZD_TRY(arena_plan_add(
                arena, "train.sample_logits", ARENA_HOST, SPAN_BUFFERS,
                plan_logits_bytes(plan->config.vocab_size)));
    return ZD_OK;
}

enum zd_status job_plan_try(
        const struct train_job *job, const struct job_choice *choice,
        struct job_plan *plan)
{
    zero_plan_fini(&plan->zero);
    arena_plan_fini(&plan->arena);
    plan->per_device = choice->B;
    plan->accumulation = choice->A;
    plan->shape = own_shape(job, &plan->config, choice->B);
    plan->shape.checkpointing = choice->checkpointing;
    plan->shape.dropout = plan->adapter.lora_dropout;
    plan->shape.seed = job->job.seed;
    int micros = choice->A;
    if (choice->moves_most && micros > choice->moves_most)
        micros = choice->moves_most;
    struct zero_request request = {
            .config = &plan->config,
            .table = &plan->table,
            .world = plan->world,
            .options = job->zero,
            .dtype = job->train.dtype,
            .accumulation = micros,
            .checkpointing = choice->checkpointing,
            .train = true,
            .optim = job->optim,
            .offload = job->offload,
            .accumulate_on_host = choice->accumulate_on_host,
            .spill_bytes = choice->spill_bytes,
            .memo = &plan->memo,
            .reduce_fp32 =
                    comm_reduces_fp32(&job->comm, plan->transport, plan->world),
    };
    ZD_TRY(zero_plan_build(&request, &plan->zero));
    if (plan->backend == DEVICE_CUDA)
        plan->shape.joined = zero_joined(&plan->zero);
    ZD_TRY(plan_on_request(job, plan));
    return plan_spans(job, plan);
}
