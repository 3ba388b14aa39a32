/* print.c - the plan as `zerod plan` prints it. */
#include "train/plan/print.h"
#include "base/text_buffer.h"
#include "model/files/config.h"

#include <inttypes.h>

static const char *tier_place(enum offload_tier tier)
{
    static const char *const names[] = {
            "on the device", "on the host", "on disk"};
    return names[tier];
}

static bool moves_anything(const struct offload_options *offload)
{
    return offload->optimizer != OFFLOAD_NONE ||
           offload->params != OFFLOAD_NONE ||
           offload->activations != OFFLOAD_NONE;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* What an offloaded optimizer holds for each of this rank's parameters, span by
 * span; staging and other buffers are not counted. */
static const struct {
    const char *span, *name;
} per_parameter[] = {
        {"offload.master", "master"},
        {"offload.states.8bit", "8-bit states"},
        {"offload.states.scales", "scales"},
        {"offload.states.bf16", "bf16 states"},
        {"offload.states.32bit", "32-bit states"},
        {"offload.slots", "slots"},
        {"offload.accumulators", "accumulators"},
        {"offload.params", "parameters"},
        {"offload.file", "file"}};

enum { PER_PARAMETER = sizeof per_parameter / sizeof per_parameter[0] };

/* Parameters whose state this rank holds: a shard, or at stage 0 all. */
static double parameters_held(const struct job_plan *plan)
{
    double trained = (double)plan->table.trainable;
    return plan->zero.states_cut ? trained / plan->world : trained;
}

/* The parts that lie on disk, or those that do not, as a sentence. */
static void print_per_parameter(
        const struct job_plan *plan, bool on_disk, FILE *stream)
{
    double held = parameters_held(plan), total = 0;
    char line[400];
    struct text_buffer parts = {.out = line, .bytes = sizeof line};
    for (int i = 0; i < PER_PARAMETER; i++) {
        const struct arena_span *span =
                arena_plan_find(&plan->arena, per_parameter[i].span);
        if (!span || (span->memory == ARENA_DISK) != on_disk)
            continue;
        total += (double)span->bytes / held;
        text_buffer_add(
                &parts, "%s %s %.2f", parts.used ? " +" : "",
                per_parameter[i].name, (double)span->bytes / held);
    }
    if (parts.used)
        fprintf(stream, "%s bytes per trained parameter %.2f:%s\n",
                on_disk ? "disk" : "host", total, line);
}

static size_t span_bytes(const struct arena_plan *arena, const char *name)
{
    const struct arena_span *span = arena_plan_find(arena, name);
    return span ? span->bytes : 0;
}

struct job_paged job_plan_paged(const struct job_plan *plan)
{
    const struct arena_plan *arena = &plan->arena;
    struct job_paged paged = {.host = span_bytes(arena, "zero.paged")};
    if (paged.host)
        paged.device =
                arena_plan_kind_bytes(arena, ARENA_DEVICE, SPAN_OPTIMIZER) -
                span_bytes(arena, "zero.master") -
                span_bytes(arena, "zero.blocks");
    return paged;
}

static void print_collectives(const struct job_plan *plan, FILE *stream)
{
    fprintf(stream, "         collectives over %s",
            plan_transport_name(plan->transport));
    if (plan->node_size < plan->world)
        fprintf(stream, ", in two levels: %d nodes of %d ranks",
                plan->world / plan->node_size, plan->node_size);
    if (plan->lacks_nccl)
        fputs(": this zerod was built without NCCL; for one that has it add "
              "--set comm.backend=nccl",
              stream);
    fputc('\n', stream);
}

static void print_device(const struct job_plan *plan, FILE *stream)
{
    struct device_facts facts = device_facts();
    fprintf(stream, "device   %s", plan_backend_name(plan));
    if (plan->no_gpu && plan->backend == DEVICE_CUDA)
        fprintf(stream, ", of another machine: %s", plan->no_gpu);
    else if (plan->no_gpu)
        fprintf(stream,
                ": %s; for a machine with GPUs add --set device.backend=cuda",
                plan->no_gpu);
    else if (facts.backend == DEVICE_CUDA)
        fprintf(stream, ": %s", facts.name);
    fputc('\n', stream);
}

static void print_layout(const struct job_plan *plan, FILE *stream)
{
    const struct zero_request *request = &plan->zero.request;
    const struct offload_options *offload = &request->offload;
    char optimizer[PLAN_NAME_MAX], checkpointing[PLAN_NAME_MAX];
    bool chose_place = offload->optimizer != OFFLOAD_NONE &&
                       offload->accumulate == OFFLOAD_ACCUMULATE_AUTO;
    plan_optimizer_name(&request->optim, optimizer);
    plan_checkpointing_name(plan->shape.checkpointing, checkpointing);
    fprintf(stream,
            "layout   %d rank%s, ZeRO stage %d, %s, batch %d x %d x %d = "
            "%" PRId64 " sequences\n",
            plan->world, plan->world == 1 ? "" : "s", request->options.stage,
            dtype_name(request->dtype), plan->per_device, plan->accumulation,
            plan->world, plan->global_batch);
    fprintf(stream, "         gradient checkpointing %s%s", checkpointing,
            plan->chose_checkpointing ? " (by auto)" : "");
    if (plan->accumulation > 1)
        fprintf(stream, ", gradients of %d micro-batches added up on the %s%s",
                plan->accumulation,
                request->accumulate_on_host ? "host" : "device",
                chose_place ? " (by auto)" : "");
    fprintf(stream, "\n         optimizer %s, %s states, %s\n", optimizer,
            plan_states_name(&request->optim),
            plan_masters_name(request->dtype, request->optim.master));
    if (param_has_base(&plan->table))
        fprintf(stream, "         base in %s\n", job_plan_base_format(plan));
    if (plan->world > 1 && plan->backend == DEVICE_CUDA)
        print_collectives(plan, stream);
    if (moves_anything(offload))
        fprintf(stream,
                "         optimizer states %s, parameters %s, residual streams "
                "%s\n",
                tier_place(offload->optimizer), tier_place(offload->params),
                tier_place(offload->activations));
}

/* Pinned memory counts against the host's limit, which stands at the first of
 * the two. */
static void print_memory(
        const struct job_plan *plan, enum arena_memory memory, bool has_limit,
        FILE *stream)
{
    const struct arena_plan *arena = &plan->arena;
    char source[PLAN_NAME_MAX];
    fprintf(stream, "  %-34s %-12s %14.3f", arena_memory_name(memory), "",
            mib(arena->bytes[memory]));
    if (has_limit && memory != ARENA_DEVICE && arena->bytes[ARENA_PINNED])
        fprintf(stream, ", with pinned %.3f", mib(plan_host_bytes(plan)));
    uint64_t limit =
            memory == ARENA_DEVICE ? plan->limits.device : plan->limits.host;
    if (memory == ARENA_DEVICE && plan->context_bytes)
        fprintf(stream, ", with driver and libraries %.3f",
                mib(plan_device_bytes(plan)));
    if (has_limit && limit < UINT64_MAX) {
        plan_limit_name(&plan->limits, memory, source);
        fprintf(stream, " of %.3f (%s)", mib(limit), source);
    }
    fputc('\n', stream);
    for (int i = 0; i < arena->span_count; i++)
        if (arena->spans[i].memory == memory)
            fprintf(stream, "    %-32s %-12s %14.3f\n", arena->spans[i].name,
                    span_kind_name(arena->spans[i].kind),
                    mib(arena->spans[i].bytes));
}

/* The rest of it is allowed for, by what is known of CUDA 13. */
static void print_context(const struct plan_context *context, FILE *stream)
{
    fprintf(stream,
            "driver and libraries (MiB): context %.0f (%s), kernels %.0f, "
            "cuBLASLt %.0f, cuDNN %.0f, NCCL %.0f\n",
            mib(context->driver),
            context->is_measured ? "measured" : "estimated",
            mib(context->kernels), mib(context->products),
            mib(context->attention), mib(context->collectives));
}

static void print_moves(const struct plan_moves *moves, FILE *stream)
{
    if (!moves->is_known)
        return;
    fprintf(stream,
            "rank 0 moves per step (bytes): gradients down %" PRIu64
            ", parameters up %" PRIu64,
            moves->down, moves->up);
    if (moves->knows_disk)
        fprintf(stream, ", disk read %" PRIu64 ", disk written %" PRIu64,
                moves->disk, moves->disk);
    fputc('\n', stream);
}

void job_plan_print(const struct job_plan *plan, FILE *stream)
{
    const struct arena_plan *arena = &plan->arena;
    const struct comm_counters *wire = &plan->zero.wire;
    struct job_paged paged = job_plan_paged(plan);
    struct plan_moves moves = plan_moves_of(plan);
    char model[160];

    model_config_describe(&plan->config, model, sizeof model);
    fprintf(stream, "model    %s, %zu parameters (%zu trained)\n", model,
            plan->table.total, plan->table.trainable);
    print_device(plan, stream);
    print_layout(plan, stream);
    fprintf(stream, "each rank holds (MiB):\n");
    for (int k = 0; k < ARENA_MEMORIES; k++) {
        bool is_second = k == ARENA_PINNED && arena->bytes[ARENA_HOST];
        if (arena->bytes[k])
            print_memory(
                    plan, (enum arena_memory)k, k != ARENA_DISK && !is_second,
                    stream);
    }
    if (plan->context_bytes)
        print_context(&plan->context, stream);
    print_per_parameter(plan, false, stream);
    print_per_parameter(plan, true, stream);
    if (paged.host)
        fprintf(stream,
                "paged states (MiB): %.3f on the device, %.3f on the host, "
                "%.3f of buffers between them\n",
                mib(paged.device), mib(paged.host),
                mib(span_bytes(arena, "zero.paged.staging")));
    if (plan->request_device_bytes + plan->request_host_bytes > 0)
        fprintf(stream,
                "for evaluations and samples on request (MiB, of the above): "
                "%.3f on the device, %.3f on the host\n",
                mib(plan->request_device_bytes), mib(plan->request_host_bytes));
    if (plan->no_snapshot)
        fprintf(stream, "checkpoints are written while training waits: %s\n",
                plan->no_snapshot);
    print_moves(&moves, stream);
    fprintf(stream,
            "each rank sends per step (bytes): reduce-scatter %" PRIu64
            ", all-gather %" PRIu64 ", all-reduce %" PRIu64
            "; gradients in %s\n",
            wire->reduce_scatter, wire->all_gather, wire->all_reduce,
            dtype_name(plan->zero.grad_dtype));
}
