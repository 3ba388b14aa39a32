/* json.c - the plan as plan.json and the control API have it. */
#include "train/plan/fit.h"
#include "train/plan/print.h"

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
            "{s:s, s:i, s:i, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s}}", "dtype",
            dtype_name(request->dtype), "per_device_train_batch_size",
            plan->per_device, "gradient_accumulation_steps", plan->accumulation,
            "gradient_checkpointing", checkpointing, "optimizer", optimizer,
            "states", plan_states_name(&request->optim), "offload", "optimizer",
            plan_tier_name(request->offload.optimizer), "params",
            plan_tier_name(request->offload.params), "activations",
            plan_tier_name(request->offload.activations), "accumulate",
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

/* What the plan was held against, and by how much it is over. */
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
    const struct comm_counters *wire = &plan->zero.wire;
    struct plan_moves moves = plan_moves_of(plan);
    json_t *json = json_pack(
            "{s:i, s:i, s:o, s:o, s:s, s:{s:I, s:I, s:I}}", "world",
            plan->world, "stage", plan->zero.request.options.stage, "layout",
            layout_json(plan), "ranks", ranks_json(plan, taken), "reduce_dtype",
            dtype_name(plan->zero.grad_dtype), "wire_bytes_per_step",
            "reduce_scatter", (json_int_t)wire->reduce_scatter, "all_gather",
            (json_int_t)wire->all_gather, "all_reduce",
            (json_int_t)wire->all_reduce);
    json_object_set_new(
            json, "device",
            json_pack(
                    "{s:s, s:s*}", "backend", plan_backend_name(plan), "no_gpu",
                    plan->no_gpu));
    json_object_set_new(json, "parameters", job_plan_parameters(plan));
    if (plan->backend == DEVICE_CUDA)
        json_object_set_new(
                json, "collectives",
                json_pack(
                        "{s:s, s:i}", "over",
                        plan_transport_name(plan->transport), "ranks_per_node",
                        plan->node_size));
    if (plan->context_bytes) {
        json_object_set_new(
                json, "context_bytes",
                json_integer((json_int_t)plan->context_bytes));
        json_object_set_new(json, "context", context_json(&plan->context));
    }
    json_object_set_new(json, "limits", limits_json(plan));
    if (plan->is_forced)
        json_object_set_new(json, "forced", json_true());
    if (plan->measured)
        json_object_set(json, "measured", plan->measured);
    if (plan->predicted)
        json_object_set(json, "predicted", plan->predicted);
    json_object_set_new(
            json, "request_bytes",
            json_pack(
                    "{s:I, s:I}", "device",
                    (json_int_t)plan->request_device_bytes, "host",
                    (json_int_t)plan->request_host_bytes));
    json_object_set_new(
            json, "snapshot",
            json_pack(
                    "{s:I, s:s?}", "bytes", (json_int_t)plan->snapshot_bytes,
                    "why_none", plan->no_snapshot));
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
