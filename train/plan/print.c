/* print.c - the plan as `zerod plan` prints it, and as plan.json and the
 * control API have it. */
#include "base/units.h"
#include "model/files/config.h"
#include "train/plan/fit.h"

#include <inttypes.h>
#include <string.h>

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

/* What an offloaded optimizer holds for each of this rank's parameters, on disk
 * or elsewhere; staging and other buffers are not counted. */
static void print_per_parameter(
        const struct job_plan *plan, bool on_disk, FILE *stream)
{
    static const char *const spans[] = {
            "offload.states", "offload.slots", "offload.accumulators",
            "offload.params", "offload.file"};
    double trained = (double)plan->table.trainable, total = 0;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        const struct arena_span *span = arena_plan_find(&plan->arena, spans[i]);
        if (span && (span->memory == ARENA_DISK) == on_disk)
            total += (double)span->bytes;
    }
    if (plan->zero.states_cut)
        trained /= plan->world;
    if (total > 0)
        fprintf(stream, "%s bytes per trained parameter %.2f\n",
                on_disk ? "disk" : "host", total / trained);
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
        struct zero_extent extent = {.id = -1};
        size_t end = zero->states_cut ? segment->shard_count : segment->count;
        while (segment->trainable && zero_extent_next(zero, s, 0, end, &extent))
            count += extent.count;
    }
    return count;
}

/* Parameters on the host go up for every gather of the program. */
static uint64_t elements_fetched(const struct zero_plan *zero)
{
    uint64_t count = 0;
    for (int m = 0; m < zero->train_move_count; m++) {
        const struct zero_move *move = &zero->train_moves[m];
        for (int s = zero->unit_segments[move->unit];
             move->gather && s < zero->unit_segments[move->unit + 1]; s++)
            count += zero->segments[s].shard_count;
    }
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
    uint64_t used = zero->params_on_host ? elements_fetched(zero) : held;
    struct moves moves = {
            .is_known = true,
            .down = held * (request->accumulate_on_host ? sums : wide),
            .up = used * wide};
    add_disk(plan, &moves);
    return moves;
}

/* --- figures, as text and as JSON ----------------------------------------- */

enum { GROUPS = 7, ROWS_MAX = 5 };

/* An object of the JSON, and a line of the text. */
struct figures {
    const char *key, *text; /* key NULL: text alone */
    int decimals;           /* of MiB; -1: bytes */
    bool in_text, in_json;
    struct {
        const char *key, *text;
        uint64_t bytes;
    } rows[ROWS_MAX];
};

/* clang-format off */
static void figures_of(const struct job_plan *plan, struct figures out[GROUPS])
{
    const struct plan_context *context = &plan->context;
    const struct job_paged paged = job_plan_paged(plan);
    const struct moves moves = moves_of(plan);
    const struct comm_counters wire = zero_wire_sum(&plan->zero.wire);
    const uint64_t device = plan->request_device_bytes, host = plan->request_host_bytes;
    bool has_context = plan->context_bytes > 0;
    const struct figures groups[GROUPS] = {
        {"context", "driver and libraries (MiB):", 0, has_context, has_context,
         {{"driver", context->is_measured ? "context (measured)" : "context (estimated)", context->driver},
          {"kernels", "kernels", context->kernels},
          {"products", "cuBLASLt", context->products},
          {"attention", "cuDNN", context->attention},
          {"collectives", "NCCL", context->collectives}}},
        {NULL, "paged states (MiB):", 3, paged.host > 0, false,
         {{NULL, "device", paged.device}, {NULL, "host", paged.host},
          {NULL, "buffers", span_bytes(&plan->arena, "zero.paged.staging")}}},
        {"tokenizer_bytes", "for tokenizing while it trains (MiB, beside the spans):", 3, plan->tokenizer_bytes > 0, plan->tokenizer_bytes > 0,
         {{"host", "host", plan->tokenizer_bytes}}},
        {"request_bytes", "for evaluations and samples on request (MiB, of the above):", 3, device + host > 0, true,
         {{"device", "device", device}, {"host", "host", host}}},
        {"offload_bytes_per_step", "rank 0 moves per step (bytes):", -1, moves.is_known, moves.is_known,
         {{"down", "gradients down", moves.down}, {"up", "parameters up", moves.up}}},
        {"disk_bytes_per_step", "rank 0's disk per step (bytes):", -1, moves.knows_disk, moves.knows_disk,
         {{"read", "read", moves.disk}, {"written", "written", moves.disk}}},
        {"wire_bytes_per_step", "each rank sends per step (bytes):", -1, true, true,
         {{"reduce_scatter", "reduce-scatter", wire.reduce_scatter},
          {"all_gather", "all-gather", wire.all_gather},
          {"all_reduce", "all-reduce", wire.all_reduce}}},
    };
    memcpy(out, groups, sizeof groups);
}
/* clang-format on */

static void figures_print(const struct figures *figures, FILE *stream)
{
    fputs(figures->text, stream);
    for (int i = 0; i < ROWS_MAX && figures->rows[i].text; i++) {
        uint64_t bytes = figures->rows[i].bytes;
        fprintf(stream, "%s %s ", i ? "," : "", figures->rows[i].text);
        if (figures->decimals < 0)
            fprintf(stream, "%" PRIu64, bytes);
        else
            fprintf(stream, "%.*f", figures->decimals, units_mib(bytes));
    }
    fputc('\n', stream);
}

static void figures_json(const struct figures *figures, json_t *json)
{
    json_t *object = json_object();
    for (int i = 0; i < ROWS_MAX && figures->rows[i].key; i++)
        json_object_set_new(
                object, figures->rows[i].key,
                json_integer((json_int_t)figures->rows[i].bytes));
    json_object_set_new(json, figures->key, object);
}

/* --- as text -------------------------------------------------------------- */

static void print_collectives(const struct job_plan *plan, FILE *stream)
{
    fprintf(stream, "         collectives over %s",
            plan_transport_name(plan->transport));
    int node = plan->node_sizes[ZERO_WORLD];
    if (node < plan->world)
        fprintf(stream, ", in two levels: %d nodes of %d ranks",
                plan->world / node, node);
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
    if (plan->shape.mlp_pieces > 1)
        fprintf(stream, ", MLP in %d pieces%s", plan->shape.mlp_pieces,
                plan->chose_pieces ? " (by auto)" : "");
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
            units_mib(arena->bytes[memory]));
    if (has_limit && memory != ARENA_DEVICE &&
        plan_host_bytes(plan) > arena->bytes[memory])
        fprintf(stream, ", with pinned%s %.3f",
                plan->tokenizer_bytes ? " and the tokenizer" : "",
                units_mib(plan_host_bytes(plan)));
    uint64_t limit =
            memory == ARENA_DEVICE ? plan->limits.device : plan->limits.host;
    if (memory == ARENA_DEVICE && plan->context_bytes)
        fprintf(stream, ", with driver and libraries %.3f",
                units_mib(plan_device_bytes(plan)));
    if (has_limit && limit < UINT64_MAX) {
        plan_limit_name(&plan->limits, memory, source);
        fprintf(stream, " of %.3f (%s)", units_mib(limit), source);
    }
    fputc('\n', stream);
    for (int i = 0; i < arena->span_count; i++)
        if (arena->spans[i].memory == memory)
            fprintf(stream, "    %-32s %-12s %14.3f\n", arena->spans[i].name,
                    span_kind_name(arena->spans[i].kind),
                    units_mib(arena->spans[i].bytes));
}

void job_plan_print(const struct job_plan *plan, FILE *stream)
{
    const struct arena_plan *arena = &plan->arena;
    struct figures figures[GROUPS];
    char model[160];
    figures_of(plan, figures);
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
    print_per_parameter(plan, false, stream);
    print_per_parameter(plan, true, stream);
    for (int i = 0; i < GROUPS; i++)
        if (figures[i].in_text)
            figures_print(&figures[i], stream);
    fprintf(stream, "gradients are reduced in %s\n",
            dtype_name(plan->zero.grad_dtype));
    if (plan->no_snapshot)
        fprintf(stream, "checkpoints are written while training waits: %s\n",
                plan->no_snapshot);
    if (plan->tokenizer_waits)
        fprintf(stream, "all text is tokenized before step 1: %s\n",
                plan->tokenizer_waits);
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

static json_t *arenas_json(
        const struct arena_plan *plan, const struct arena *taken)
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
    return arenas;
}

/* Every rank holds the same bytes: shards are padded to equal length. So all
 * have one object. */
static json_t *ranks_json(
        const struct job_plan *plan, const struct arena *taken)
{
    json_t *ranks = json_array();
    json_t *arenas = arenas_json(&plan->arena, taken);
    for (int rank = 0; rank < plan->world; rank++)
        json_array_append_new(
                ranks, json_pack("{s:i, s:O}", "rank", rank, "arenas", arenas));
    json_decref(arenas);
    return ranks;
}

static json_t *layout_json(const struct job_plan *plan)
{
    const struct zero_request *request = &plan->zero.request;
    char optimizer[PLAN_NAME_MAX], checkpointing[PLAN_NAME_MAX];
    plan_optimizer_name(&request->optim, optimizer);
    plan_checkpointing_name(plan->shape.checkpointing, checkpointing);
    return json_pack(
            "{s:s, s:i, s:i, s:s, s:i, s:s, s:s, s:{s:s, s:s, s:s, s:s}}",
            "dtype", dtype_name(request->dtype), "per_device_train_batch_size",
            plan->per_device, "gradient_accumulation_steps", plan->accumulation,
            "gradient_checkpointing", checkpointing, "tiled_mlp",
            plan->shape.mlp_pieces, "optimizer", optimizer, "states",
            plan_states_name(&request->optim), "offload", "optimizer",
            plan_tier_name(request->offload.optimizer), "params",
            plan_tier_name(request->offload.params), "activations",
            plan_tier_name(request->offload.activations), "accumulate",
            request->accumulate_on_host ? "host" : "device");
}

json_t *job_plan_parameters(const struct job_plan *plan)
{
    const struct peft_config *adapter = &plan->adapter;
    json_t *json = json_pack(
            "{s:I, s:I}", "trainable_parameters",
            (json_int_t)plan->table.trainable, "all_parameters",
            (json_int_t)plan->table.total);
    if (param_has_base(&plan->table))
        json_object_set_new(
                json, "base_format", json_string(job_plan_base_format(plan)));
    if (!plan->table.adapters)
        return json;
    json_object_set_new(
            json, "adapters",
            json_pack(
                    "{s:i, s:f, s:O, s:b, s:b}", "r", adapter->r, "lora_alpha",
                    adapter->lora_alpha, "target_modules",
                    json_object_get(adapter->json, "target_modules"),
                    "use_rslora", adapter->use_rslora, "use_dora",
                    adapter->use_dora));
    return json;
}

/* The limits of the plan, and by how much it exceeds them. */
static json_t *limits_json(const struct job_plan *plan)
{
    static const char *const names[] = {"device", "host", "total"};
    const struct plan_limits *limits = &plan->limits;
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    const uint64_t most[] = {limits->device, limits->host, limits->total};
    const uint64_t takes[] = {device, host, device + host};
    json_t *json = json_object();
    for (int i = 0; i < 3; i++)
        if (most[i] != UINT64_MAX)
            json_object_set_new(
                    json, names[i],
                    json_pack(
                            "{s:I, s:I}", "bytes", (json_int_t)most[i], "over",
                            (json_int_t)(takes[i] > most[i] ? takes[i] - most[i] : 0)));
    return json;
}

json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken)
{
    struct figures figures[GROUPS];
    json_t *json = json_pack(
            "{s:i, s:i, s:o, s:o, s:s, s:{s:s, s:s*}, s:o, s:o, s:{s:I, s:s?}}",
            "world", plan->world, "stage", plan->zero.request.options.stage,
            "layout", layout_json(plan), "ranks", ranks_json(plan, taken),
            "reduce_dtype", dtype_name(plan->zero.grad_dtype), "device",
            "backend", plan_backend_name(plan), "no_gpu", plan->no_gpu,
            "parameters", job_plan_parameters(plan), "limits",
            limits_json(plan), "snapshot", "bytes",
            (json_int_t)plan->snapshot_bytes, "why_none", plan->no_snapshot);
    figures_of(plan, figures);
    for (int i = 0; i < GROUPS; i++)
        if (figures[i].in_json)
            figures_json(&figures[i], json);
    bool on_gpu = plan->backend == DEVICE_CUDA, holds = plan->context_bytes;
    json_t *more = json_pack(
            "{s:o*, s:o*, s:o*, s:O*, s:O*}", "collectives",
            on_gpu ? json_pack(
                             "{s:s, s:i}", "over",
                             plan_transport_name(plan->transport),
                             "ranks_per_node", plan->node_sizes[ZERO_WORLD])
                   : NULL,
            "context_bytes",
            holds ? json_integer((json_int_t)plan->context_bytes) : NULL,
            "forced", plan->is_forced ? json_true() : NULL, "measured",
            plan->measured, "predicted", plan->predicted);
    json_object_update(json, more);
    json_decref(more);
    if (holds)
        json_object_set_new(
                json_object_get(json, "context"), "measured",
                json_boolean(plan->context.is_measured));
    return json;
}
