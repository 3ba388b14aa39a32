#include "base/text_buffer.h"
#include "train/plan_fit.h"

#include <inttypes.h>

/* --- what was chosen ------------------------------------------------------ */

void plan_optimizer_name(
        const struct optim_options *optim, char out[PLAN_NAME_MAX])
{
    bool is_8bit = optim->state_type == OPTIM_STATE_8BIT;
    snprintf(
            out, PLAN_NAME_MAX, "%s%s%s", optim->paged ? "paged_" : "",
            train_optimizer_name(optim->name),
            is_8bit        ? "_8bit"
            : optim->paged ? "_32bit"
                           : "");
}

static void checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX])
{
    static const char *const names[] = {
            [CHECKPOINTING_NONE] = "none",
            [CHECKPOINTING_FULL] = "full",
            [CHECKPOINTING_SQRT] = "sqrt",
            [CHECKPOINTING_AUTO] = "auto"};
    if (checkpointing.mode == CHECKPOINTING_EVERY)
        snprintf(out, PLAN_NAME_MAX, "every:%d", checkpointing.every);
    else
        snprintf(out, PLAN_NAME_MAX, "%s", names[checkpointing.mode]);
}

static const char *states_name(const struct optim_options *optim)
{
    static const char *const names[] = {"fp32", "bf16", "8-bit"};
    bool has_none = optim->name == OPTIM_SGD && optim->momentum == 0;
    return has_none ? "no" : names[optim->state_type];
}

static const char *masters_name(const struct zero_request *request)
{
    if (request->dtype == DTYPE_FP32)
        return "no master weights beside the parameters";
    return request->optim.master == OPTIM_MASTER_NONE ? "no master weights"
                                                      : "fp32 master weights";
}

static const char *transport_name(enum comm_transport transport)
{
    static const char *const names[] = {
            [COMM_TRANSPORT_HOST] = "the host",
            [COMM_TRANSPORT_STAGED] = "the host's memory and MPI",
            [COMM_TRANSPORT_NCCL] = "NCCL"};
    return names[transport];
}

static const char *backend_name(const struct job_plan *plan)
{
    return plan->backend == DEVICE_CUDA ? "cuda" : "cpu";
}

static const char *tier_place(enum offload_tier tier)
{
    static const char *const names[] = {
            "on the device", "on the host", "on disk"};
    return names[tier];
}

static const char *tier_name(enum offload_tier tier)
{
    static const char *const names[] = {"none", "cpu", "nvme"};
    return names[tier];
}

static bool moves_anything(const struct offload_options *offload)
{
    return offload->optimizer != OFFLOAD_NONE ||
           offload->params != OFFLOAD_NONE ||
           offload->activations != OFFLOAD_NONE;
}

/* --- what offload moves --------------------------------------------------- */

/* Of a step of rank 0, as offload_report counts them; unknown without an
 * offloaded optimizer, and with frozen parameters that visit the device. */
struct moves {
    bool is_known, knows_disk;
    uint64_t down, up, disk; /* bytes; as many are read as are written */
};

/* Trained elements whose states rank 0 has. */
static uint64_t elements_held(const struct zero_plan *zero)
{
    uint64_t count = 0;
    for (int s = 0; s < zero->segment_count; s++) {
        const struct zero_segment *segment = &zero->segments[s];
        struct zero_run run = {.id = -1};
        size_t end = zero->states_cut ? segment->shard_count : segment->count;
        while (segment->trainable && zero_run_next(zero, s, 0, end, &run))
            count += run.count;
    }
    return count;
}

/* Elements of a unit that visit the device, or those that stay there. */
static uint64_t unit_elements(
        const struct zero_plan *zero, int unit, bool persistent)
{
    uint64_t count = 0;
    for (int s = zero->unit_segments[unit]; s < zero->unit_segments[unit + 1];
         s++)
        if (zero->segments[s].persistent == persistent)
            count += zero->segments[s].shard_count;
    return count;
}

/* Parameters on the host: those that persist go up once a step, the others for
 * every gather of its program. */
static uint64_t elements_fetched(const struct zero_plan *zero, int unit_count)
{
    uint64_t count = 0;
    for (int unit = 0; unit < unit_count; unit++)
        count += unit_elements(zero, unit, true);
    for (int m = 0; m < zero->train_move_count; m++)
        if (zero->train_moves[m].acquire && zero->train_moves[m].gather)
            count += unit_elements(zero, zero->train_moves[m].unit, false);
    return count;
}

/* Masters and states are read and written once in a step; parameters on disk
 * are read whenever they are used. */
static void add_disk(const struct job_plan *plan, struct moves *moves)
{
    const struct offload_options *offload = &plan->zero.request.offload;
    moves->knows_disk = offload->optimizer == OFFLOAD_NVME &&
                        offload->params != OFFLOAD_NVME && plan->world == 1;
    if (moves->knows_disk)
        moves->disk = plan->arena.bytes[ARENA_DISK];
}

static struct moves moves_of(const struct job_plan *plan)
{
    const struct zero_plan *zero = &plan->zero;
    const struct zero_request *request = &zero->request;
    uint64_t held = elements_held(zero), wide = dtype_bytes(request->dtype);
    uint64_t sums = (uint64_t)plan->accumulation * sizeof(float);
    bool has_frozen = plan->table.trainable < plan->table.total;
    if (request->offload.optimizer == OFFLOAD_NONE ||
        (zero->params_on_host && has_frozen))
        return (struct moves){0};
    uint64_t used = zero->params_on_host
                            ? elements_fetched(zero, plan->table.unit_count)
                            : held;
    struct moves moves = {
            .is_known = true,
            .down = held * (request->accumulate_on_host ? sums : wide),
            .up = used * wide};
    add_disk(plan, &moves);
    return moves;
}

/* --- as JSON -------------------------------------------------------------- */

static json_t *spans_json(
        const struct arena_plan *plan, enum arena_memory memory)
{
    json_t *spans = json_array();
    for (int i = 0; i < plan->span_count; i++) {
        const struct arena_span *span = &plan->spans[i];
        if (span->memory == memory)
            json_array_append_new(
                    spans, json_pack(
                                   "{s:s, s:s, s:I}", "name", span->name,
                                   "kind", span_kind_name(span->kind), "bytes",
                                   (json_int_t)span->bytes));
    }
    return spans;
}

/* Every rank holds the same bytes: shards are padded to equal length. */
static json_t *rank_json(
        const struct arena_plan *plan, const struct arena *taken, int rank)
{
    json_t *arenas = json_array();
    for (int k = 0; k < ARENA_MEMORIES; k++) {
        json_t *arena = json_pack(
                "{s:s, s:I}", "name", arena_memory_name((enum arena_memory)k),
                "planned_bytes", (json_int_t)plan->bytes[k]);
        if (taken)
            json_object_set_new(
                    arena, "taken_bytes",
                    json_integer((json_int_t)taken->taken_bytes[k]));
        json_object_set_new(
                arena, "spans", spans_json(plan, (enum arena_memory)k));
        json_array_append_new(arenas, arena);
    }
    return json_pack("{s:i, s:o}", "rank", rank, "arenas", arenas);
}

static json_t *layout_json(const struct job_plan *plan)
{
    const struct zero_request *request = &plan->zero.request;
    char optimizer[PLAN_NAME_MAX], checkpointing[PLAN_NAME_MAX];
    plan_optimizer_name(&request->optim, optimizer);
    checkpointing_name(plan->shape.checkpointing, checkpointing);
    return json_pack(
            "{s:s, s:i, s:i, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s}}", "dtype",
            dtype_name(request->dtype), "per_device_train_batch_size",
            plan->per_device, "gradient_accumulation_steps", plan->accumulation,
            "gradient_checkpointing", checkpointing, "optimizer", optimizer,
            "states", states_name(&request->optim), "offload", "optimizer",
            tier_name(request->offload.optimizer), "params",
            tier_name(request->offload.params), "activations",
            tier_name(request->offload.activations), "accumulate",
            request->accumulate_on_host ? "host" : "device");
}

static json_t *context_json(const struct plan_context *context)
{
    return json_pack(
            "{s:I, s:b, s:I, s:I, s:I, s:I}", "driver",
            (json_int_t)context->driver, "measured", context->is_measured,
            "kernels", (json_int_t)context->kernels, "products",
            (json_int_t)context->products, "attention",
            (json_int_t)context->attention, "collectives",
            (json_int_t)context->collectives);
}

json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken)
{
    json_t *ranks = json_array();
    const struct comm_counters *wire = &plan->zero.wire;
    for (int rank = 0; rank < plan->world; rank++)
        json_array_append_new(ranks, rank_json(&plan->arena, taken, rank));
    struct moves moves = moves_of(plan);
    json_t *json = json_pack(
            "{s:i, s:i, s:o, s:o, s:{s:I, s:I, s:I}}", "world", plan->world,
            "stage", plan->zero.request.options.stage, "layout",
            layout_json(plan), "ranks", ranks, "wire_bytes_per_step",
            "reduce_scatter", (json_int_t)wire->reduce_scatter, "all_gather",
            (json_int_t)wire->all_gather, "all_reduce",
            (json_int_t)wire->all_reduce);
    json_object_set_new(
            json, "device",
            json_pack(
                    "{s:s, s:s*}", "backend", backend_name(plan), "no_gpu",
                    plan->no_gpu));
    if (plan->backend == DEVICE_CUDA)
        json_object_set_new(
                json, "collectives",
                json_pack(
                        "{s:s, s:i}", "over", transport_name(plan->transport),
                        "ranks_per_node", plan->node_size));
    if (plan->context_bytes)
        json_object_set_new(
                json, "context_bytes",
                json_integer((json_int_t)plan->context_bytes));
    if (plan->context_bytes)
        json_object_set_new(json, "context", context_json(&plan->context));
    if (plan->measured)
        json_object_set(json, "measured", plan->measured);
    json_object_set_new(
            json, "request_bytes",
            json_pack(
                    "{s:I, s:I}", "device",
                    (json_int_t)plan->request_device_bytes, "host",
                    (json_int_t)plan->request_host_bytes));
    if (moves.is_known)
        json_object_set_new(
                json, "offload_bytes_per_step",
                json_pack(
                        "{s:I, s:I}", "down", (json_int_t)moves.down, "up",
                        (json_int_t)moves.up));
    if (moves.knows_disk)
        json_object_set_new(
                json, "disk_bytes_per_step",
                json_pack(
                        "{s:I, s:I}", "read", (json_int_t)moves.disk, "written",
                        (json_int_t)moves.disk));
    return json;
}

/* --- as text -------------------------------------------------------------- */

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
            transport_name(plan->transport));
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
    fprintf(stream, "device   %s", backend_name(plan));
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
    checkpointing_name(plan->shape.checkpointing, checkpointing);
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
            states_name(&request->optim), masters_name(request));
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

static void print_moves(const struct moves *moves, FILE *stream)
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
    struct moves moves = moves_of(plan);
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
    print_moves(&moves, stream);
    fprintf(stream,
            "each rank sends per step (bytes): reduce-scatter %" PRIu64
            ", all-gather %" PRIu64 ", all-reduce %" PRIu64 "\n",
            wire->reduce_scatter, wire->all_gather, wire->all_reduce);
}
