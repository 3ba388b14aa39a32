/* print.c - the plan as JSON, for `zerod plan`, plan.json and the control API;
 * names of its choices and predictions. */
#include "base/log.h"
#include "model/files/config.h"
#include "optim/optimizers.h"
#include "train/plan/fit.h"
#include "train/plan/predict.h"

/* --- names ---------------------------------------------------------------- */

const char *const plan_resource_names[PLAN_RESOURCES] = {
        "compute", "wire",      "replicas", "places",
        "to host", "to device", "host",     "disk"};
const char *const plan_resource_words[PLAN_RESOURCES] = {
        "compute",
        "the wire between shards",
        "the wire between replicas",
        "the wire of tensor parallelism",
        "copying to the host",
        "copying to the device",
        "updating on the host",
        "the disk"};
const char *const plan_part_names[PLAN_PARTS] = {
        "forward", "backward", "reduce", "update", "gather"};
const char *const plan_exposed_names[PLAN_EXPOSED] = {
        "update", "gathers", "copies", "launches"};

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

void plan_checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX])
{
    static const char *const names[] = {
            [CHECKPOINTING_NONE] = "none",
            [CHECKPOINTING_SELECTIVE] = "selective",
            [CHECKPOINTING_FULL] = "full",
            [CHECKPOINTING_SQRT] = "sqrt",
            [CHECKPOINTING_AUTO] = "auto"};
    if (checkpointing.mode == CHECKPOINTING_EVERY)
        snprintf(out, PLAN_NAME_MAX, "every:%d", checkpointing.every);
    else
        snprintf(out, PLAN_NAME_MAX, "%s", names[checkpointing.mode]);
}

const char *plan_order_name(bool by_layer)
{
    return by_layer ? "breadth_first" : "depth_first";
}

static const char *states_name(const struct optim_options *optim)
{
    static const char *const names[] = {"fp32", "bf16", "8-bit"};
    return optimizer_has_states(optim) ? names[optim->state_type] : "no";
}

const char *plan_masters_name(enum dtype dtype, enum optim_master master)
{
    bool has_masters = dtype != DTYPE_FP32 && master == OPTIM_MASTER_FP32;
    return has_masters ? "fp32 master weights" : "no master weights";
}

const char *const plan_tier_names[] = {"none", "cpu", "nvme"};
static const char *const transports[] = {
        [COMM_TRANSPORT_HOST] = "the host",
        [COMM_TRANSPORT_STAGED] = "the host's memory and MPI",
        [COMM_TRANSPORT_NCCL] = "NCCL"};

const char *job_plan_base_format(const struct job_plan *plan)
{
    static const char *const nested[] = {
            [QUANT_NF4] = "nf4, scales in 8 bits",
            [QUANT_FP4] = "fp4, scales in 8 bits"};
    const struct param_table *table = &plan->table;
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id))
            return table->codes[id].nested_block
                           ? nested[table->codes[id].format]
                           : param_codes_name(table);
    return param_has_base(table) ? dtype_name(plan->zero.request.dtype) : NULL;
}

const char *job_plan_cp_comm(const struct job_plan *plan)
{
    if (plan->mesh.cp == 1)
        return NULL;
    return cp_by_heads(&plan->shape) ? "a2a" : "allgather";
}

const char *plan_backend_name(enum device_backend backend)
{
    return backend == DEVICE_CUDA ? "cuda" : "cpu";
}

/* --- bytes ---------------------------------------------------------------- */

/* Bytes of an offloaded optimizer per parameter of this rank, on disk and
 * elsewhere, without staging and other buffers. */
static json_t *per_parameter_json(const struct job_plan *plan)
{
    static const char *const spans[] = {
            "offload.states", "offload.slots", "offload.accumulators",
            "offload.params", "offload.file"};
    double trained = (double)plan_slice_table(plan)->trainable, bytes[2] = {0};
    json_t *json = json_object();
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        const struct arena_span *span = arena_plan_find(&plan->arena, spans[i]);
        if (span)
            bytes[span->memory == ARENA_DISK] += (double)span->bytes;
    }
    if (plan->zero.states_cut)
        trained /= mesh_parts(plan->mesh);
    for (int i = 0; i < 2; i++)
        if (bytes[i] > 0)
            json_object_set_new(
                    json, i ? "disk" : "host", json_real(bytes[i] / trained));
    return json;
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

/* Parameters on the host are copied up for every gather of the program. */
static uint64_t bytes_fetched(const struct zero_plan *zero)
{
    uint64_t bytes = 0;
    ZD_EACH(move, zero->train_moves, zero->train_move_count)
        for (int s = zero->unit_segments[move->unit];
             move->gather && s < zero->unit_segments[move->unit + 1]; s++)
            bytes += zero_segment_bytes(
                    &zero->segments[s], zero->segments[s].part_count);
    return bytes;
}

/* Bytes that rank 0 moves per step, counted as in offload_report. */
static void count_moves(
        const struct job_plan *plan, uint64_t *down_out, uint64_t *up_out)
{
    const struct zero_plan *zero = &plan->zero;
    const struct zero_request *request = &zero->request;
    struct offload_visits visits = zero_visits(zero);
    uint64_t held = visits.held, wide = dtype_bytes(request->dtype);
    uint64_t sums = (uint64_t)plan->accumulation * sizeof(float);
    *down_out =
            held * (request->accumulate_on_host ? sums : wide) + visits.down;
    *up_out = (zero->params_on_host ? bytes_fetched(zero) : held * wide) +
              visits.up - visits.home;
}

/* The same number goes down and up. */
static uint64_t bytes_of_activations(const struct job_plan *plan)
{
    return !plan->shape.offload_activations
                   ? 0
                   : model_residual_bytes(
                             plan_slice_config(plan), plan_slice_table(plan),
                             &plan->shape) *
                             (uint64_t)(plan->by_layer ? 1 : plan->accumulation);
}

/* --- objects of figures --------------------------------------------------- */

enum { GROUPS = 7, ROWS_MAX = 6 };

struct figures {
    const char *key;
    bool is_known; /* false: omitted */
    struct {
        const char *key;
        uint64_t bytes;
    } rows[ROWS_MAX];
};

/* clang-format off */
static void set_figures(const struct job_plan *plan, json_t *json)
{
    const struct plan_context *context = &plan->context;
    const struct job_paged paged = job_plan_paged(plan);
    const struct offload_options *offload = &plan->zero.request.offload;
    const bool offloads = offload->optimizer != OFFLOAD_NONE;
    /* masters and states are read and written once, parameters on disk at each
     * use */
    const bool knows_disk = offload->optimizer == OFFLOAD_NVME && offload->params != OFFLOAD_NVME && mesh_parts(plan->mesh) == 1;
    const uint64_t disk = plan->arena.bytes[ARENA_DISK], activations = bytes_of_activations(plan);
    uint64_t down, up;
    count_moves(plan, &down, &up);
    const struct comm_counters wire = zero_wire_sum(&plan->zero.wire);
    const uint64_t device = plan->request_device_bytes, host = plan->request_host_bytes;
    const struct figures groups[GROUPS] = {
        {"context", plan->context_bytes > 0,
         {{"driver", context->driver},
          {"kernels", context->kernels},
          {"products", context->products},
          {"attention", context->attention},
          {"collectives", context->collectives},
          {"tables", context->tables}}},
        {"paged_bytes", paged.host > 0,
         {{"device", paged.device}, {"host", paged.host},
          {"buffers", span_bytes(&plan->arena, "zero.paged.staging")}}},
        {"tokenizer_bytes", plan->tokenizer_bytes > 0, {{"host", plan->tokenizer_bytes}}},
        {"request_bytes", device + host > 0, {{"device", device}, {"host", host}}},
        {"offload_bytes_per_step", offloads, {{"down", down}, {"up", up}}},
        {"disk_bytes_per_step", knows_disk, {{"read", disk}, {"written", disk}}},
        {"wire_bytes_per_step", true,
         {{"reduce_scatter", wire.bytes[COMM_REDUCE_SCATTER]},
          {"all_gather", wire.bytes[COMM_ALL_GATHER]},
          {"all_to_all", wire.bytes[COMM_ALL_TO_ALL]},
          {"all_reduce", wire.bytes[COMM_ALL_REDUCE]}}},
    };
    /* clang-format on */
    for (int g = 0; g < GROUPS; g++) {
        json_t *object = json_object();
        for (int i = 0; i < ROWS_MAX && groups[g].rows[i].key; i++)
            json_object_set_new(
                    object, groups[g].rows[i].key,
                    json_integer((json_int_t)groups[g].rows[i].bytes));
        if (groups[g].is_known)
            json_object_set(json, groups[g].key, object);
        json_decref(object);
    }
    if (!offloads && !activations)
        return;
    json_t *moves = json_object_get(json, "offload_bytes_per_step");
    moves = moves ? json_incref(moves) : json_object();
    json_object_set_new(
            moves, "activations",
            json_pack(
                    "{s:I, s:I}", "down", (json_int_t)activations, "up",
                    (json_int_t)activations));
    json_object_set_new(json, "offload_bytes_per_step", moves);
}

/* --- the plan ------------------------------------------------------------- */

static json_t *spans_json(
        const struct arena_plan *plan, enum arena_memory memory)
{
    json_t *spans = json_array();
    ZD_EACH(span, plan->spans, plan->span_count)
        if (span->memory == memory)
            json_array_append_new(
                    spans, json_pack(
                                   "{s:s, s:s, s:I}", "name", span->name,
                                   "kind", span_kind_name(span->kind), "bytes",
                                   (json_int_t)span->bytes));
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

/* A rank's traffic per step. */
static json_t *wire_json(const struct job_plan *plan)
{
    json_t *rows = json_array();
    for (enum zero_group g = ZERO_SHARD; g < ZERO_GROUPS; g++) {
        struct comm_counters sent = plan->zero.wire.group[g];
        for (int i = 0; i < COMM_COUNTERS; i++) {
            uint64_t bytes = sent.bytes[i];
            if (bytes)
                json_array_append_new(
                        rows, json_pack(
                                      "{s:s, s:s, s:I, s:s}", "group",
                                      zero_group_name(g), "operation",
                                      comm_counter_name(i), "bytes_per_step",
                                      (json_int_t)bytes, "level",
                                      plan->is_within[g] ? "node" : "between"));
        }
    }
    return rows;
}

/* Parts are padded to equal length, so every rank holds and sends the same
 * bytes, and one object describes all. */
static json_t *ranks_json(
        const struct job_plan *plan, const struct arena *taken)
{
    json_t *ranks = json_array();
    json_t *arenas = arenas_json(&plan->arena, taken), *wire = wire_json(plan);
    for (int rank = 0; rank < plan->world; rank++)
        json_array_append_new(
                ranks, json_pack(
                               "{s:i, s:O, s:O}", "rank", rank, "arenas",
                               arenas, "wire", wire));
    json_decref(arenas);
    json_decref(wire);
    return ranks;
}

json_t *job_mesh_json(struct mesh mesh)
{
    return json_pack(
            "{s:i, s:i, s:i, s:i}", "replicate", mesh.replicate, "shard",
            mesh.shard, "cp", mesh.cp, "tp", mesh.tp);
}

/* The part of the update before the norm is known, and the memory for its old
 * values; NULL: not requested. */
static json_t *undo_json(const struct zero_plan *zero)
{
    if (!zero->states_on_host ||
        zero->request.offload.clipping != OFFLOAD_CLIP_UNDO)
        return NULL;
    return json_pack(
            "{s:I, s:f}", "bytes",
            (json_int_t)zero->needs.offload[OFFLOAD_UNDO], "share",
            zero_undo_share(zero));
}

static json_t *layout_json(const struct job_plan *plan)
{
    const struct zero_request *request = &plan->zero.request;
    const struct offload_options *offload = &request->offload;
    char optimizer[PLAN_NAME_MAX], checkpointing[PLAN_NAME_MAX];
    bool chose_place = offload->optimizer != OFFLOAD_NONE &&
                       offload->accumulate == OFFLOAD_ACCUMULATE_AUTO;
    plan_optimizer_name(&request->optim, optimizer);
    plan_checkpointing_name(plan->shape.checkpointing, checkpointing);
    return json_pack(
            "{s:s, s:i, s:i, s:s, s:i, s:i, s:I, s:s, s:i, s:s, s:s, s:s, "
            "s:o*, "
            "s:{s:s, "
            "s:s, s:s, s:s, s:o*, s:o*}, s:{s:b, s:b, s:b, s:b}}",
            "dtype", dtype_name(request->dtype), "per_device_train_batch_size",
            plan->per_device, "gradient_accumulation_steps", plan->accumulation,
            "accumulation_order", plan_order_name(plan->by_layer),
            "data_parallel_size", mesh_samples(plan->mesh, 0).size,
            "ranks_per_group", plan->mesh.cp * plan->mesh.tp, "global_batch",
            (json_int_t)plan->global_batch, "gradient_checkpointing",
            checkpointing, "tiled_mlp", plan->shape.mlp_pieces, "optimizer",
            optimizer, "states", states_name(&request->optim), "masters",
            plan_masters_name(request->dtype, request->optim.master), "fp8",
            plan_fp8_json(plan), "offload", "optimizer",
            plan_tier_names[offload->optimizer], "params",
            plan_tier_names[offload->params], "activations",
            plan_tier_names[offload->activations], "accumulate",
            request->accumulate_on_host ? "host" : "device", "undo",
            undo_json(&plan->zero), "device_update",
            offload->device_update > 0 ? json_real(offload->device_update)
                                       : NULL,
            "by_auto", "gradient_checkpointing", plan->chose_checkpointing,
            "tiled_mlp", plan->chose_pieces, "accumulation_order",
            plan->chose_order, "accumulate",
            chose_place && plan->accumulation > 1);
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

/* The plan's limits, its use of each, the excess, and the need, which does not
 * include the copy for saves: that only uses free memory. */
static json_t *limits_json(const struct job_plan *plan)
{
    const struct plan_limits *limits = &plan->limits;
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    const struct {
        const char *name;
        enum arena_memory memory;
        uint64_t most, takes, spare;
    } rows[] = {
            {"device", ARENA_DEVICE, limits->device, device, 0},
            {"host", ARENA_HOST, limits->host, host, plan->snapshot_bytes},
            {"total", ARENA_MEMORIES, limits->total, device + host,
             plan->snapshot_bytes}};
    char source[PLAN_NAME_MAX];
    json_t *json = json_object();
    for (int i = 0; i < 3; i++) {
        uint64_t most = rows[i].most, takes = rows[i].takes;
        if (most == UINT64_MAX)
            continue;
        plan_limit_name(limits, rows[i].memory, source);
        json_object_set_new(
                json, rows[i].name,
                json_pack(
                        "{s:I, s:I, s:I, s:I, s:s}", "bytes", (json_int_t)most,
                        "takes", (json_int_t)takes, "needs",
                        (json_int_t)(takes - rows[i].spare), "over",
                        (json_int_t)plan_left(takes, most), "source", source));
    }
    return json;
}

/* NULL: none, or only in memory. */
static json_t *collectives_json(const struct job_plan *plan)
{
    int node = plan->node_sizes[ZERO_WORLD];
    if (plan->backend != DEVICE_CUDA || plan->world == 1)
        return NULL;
    return json_pack(
            "{s:s, s:i, s:i, s:s*}", "over", transports[plan->transport],
            "nodes", plan->world / node, "ranks_per_node", node, "lacks",
            plan->lacks_nccl
                    ? "this zerod was built without NCCL; for one that has it "
                      "add --set comm.backend=nccl"
                    : NULL);
}

json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken)
{
    const struct device_facts facts = device_facts();
    bool on_gpu = plan->backend == DEVICE_CUDA, holds = plan->context_bytes;
    bool has_gpu = on_gpu && facts.backend == DEVICE_CUDA;
    char model[160];
    model_config_describe(&plan->config, model, sizeof model);
    json_t *json = json_pack(
            "{s:s, s:i, s:o, s:i, s:o, s:o, s:s, s:{s:s, s:s*, s:s*}, s:o, "
            "s:o, s:{s:I, s:s?}, s:o, s:s*}",
            "model", model, "world", plan->world, "mesh",
            job_mesh_json(plan->mesh), "stage",
            plan->zero.request.options.stage, "layout", layout_json(plan),
            "ranks", ranks_json(plan, taken), "reduce_dtype",
            dtype_name(plan->zero.grad_dtype), "device", "backend",
            plan_backend_name(plan->backend), "no_gpu", plan->no_gpu, "name",
            has_gpu ? facts.name : NULL, "parameters",
            job_plan_parameters(plan), "limits", limits_json(plan), "snapshot",
            "bytes", (json_int_t)plan->snapshot_bytes, "why_none",
            plan->no_snapshot, "bytes_per_parameter", per_parameter_json(plan),
            "tokenizer_waits", plan->tokenizer_waits);
    set_figures(plan, json);
    json_t *more = json_pack(
            "{s:s*, s:o*, s:o*, s:o*, s:O*, s:O*}", "cp_comm_type",
            job_plan_cp_comm(plan), "collectives", collectives_json(plan),
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

/* --- a prediction --------------------------------------------------------- */

static json_t *numbers(
        const char *const names[], const double values[], int count)
{
    json_t *json = json_object();
    for (int i = 0; i < count; i++)
        json_object_set_new(json, names[i], json_real(values[i]));
    return json;
}

json_t *plan_prediction_json(
        const struct plan_prediction *predicted,
        const struct plan_machine *machine)
{
    return json_pack(
            "{s:f, s:f, s:s, s:o, s:o, s:o, s:s*, s:o*}", "step_seconds",
            predicted->step_seconds, "tokens_per_second",
            predicted->tokens_per_second, "binds",
            plan_resource_names[predicted->binds], "phases",
            numbers(plan_part_names, predicted->parts, PLAN_PARTS), "busy",
            numbers(plan_resource_names, predicted->busy, PLAN_RESOURCES),
            "exposed",
            numbers(plan_exposed_names, predicted->exposed, PLAN_EXPOSED),
            "machine", machine ? machine->name : NULL, "calibrated",
            machine ? json_boolean(machine->is_measured) : NULL);
}

void plan_warn(
        const struct job_plan *plan, const struct plan_prediction *predicted)
{
    const struct zero_plan *zero = &plan->zero;
    const struct offload_options *offload = &zero->request.offload;
    if (plan->mesh.tp > 1 && !plan->is_within[ZERO_TP])
        zd_log_warning(
                "parallel.tp_size = %d crosses hosts of %d ranks: its "
                "collectives take %.3g s of a step of %.3g s, by prediction",
                plan->mesh.tp, plan->local_size, predicted->busy[PLAN_PLACES],
                predicted->step_seconds);
    if (zero->states_on_host && offload->clipping == OFFLOAD_CLIP_UNDO &&
        zero->undo_first == zero->segment_count && offload->undo_memory)
        zd_log_warning(
                "offload.undo_memory of %.3f MiB has room for no layer (one "
                "needs %.3f MiB): all wait for the norm",
                units_mib(offload->undo_memory),
                units_mib(zero_undo_least(zero)));
}
