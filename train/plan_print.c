#include "train/train.h"

#include <inttypes.h>

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

json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken)
{
    json_t *ranks = json_array();
    const struct comm_counters *wire = &plan->zero.wire;
    for (int rank = 0; rank < plan->world; rank++)
        json_array_append_new(ranks, rank_json(&plan->arena, taken, rank));
    return json_pack(
            "{s:i, s:i, s:o, s:{s:I, s:I, s:I}}", "world", plan->world, "stage",
            plan->zero.request.options.stage, "ranks", ranks,
            "wire_bytes_per_step", "reduce_scatter",
            (json_int_t)wire->reduce_scatter, "all_gather",
            (json_int_t)wire->all_gather, "all_reduce",
            (json_int_t)wire->all_reduce);
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

static void print_per_parameter(const struct job_plan *plan, FILE *stream)
{
    const struct arena_plan *arena = &plan->arena;
    double held = parameters_held(plan), total = 0;
    const char *separator = ":";
    for (int i = 0; i < PER_PARAMETER; i++) {
        const struct arena_span *span =
                arena_plan_find(arena, per_parameter[i].span);
        if (span && span->memory != ARENA_DISK)
            total += (double)span->bytes / held;
    }
    if (total == 0)
        return;
    fprintf(stream, "host bytes per trained parameter %.2f", total);
    for (int i = 0; i < PER_PARAMETER; i++) {
        const struct arena_span *span =
                arena_plan_find(arena, per_parameter[i].span);
        if (!span)
            continue;
        fprintf(stream, "%s %s %.2f%s", separator, per_parameter[i].name,
                (double)span->bytes / held,
                span->memory == ARENA_DISK ? " (on disk)" : "");
        separator = " +";
    }
    fputc('\n', stream);
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

void job_plan_print(const struct job_plan *plan, FILE *stream)
{
    const struct arena_plan *arena = &plan->arena;
    const struct comm_counters *wire = &plan->zero.wire;
    char model[160];

    model_config_describe(&plan->config, model, sizeof model);
    fprintf(stream, "model    %s, %zu parameters (%zu trained)\n", model,
            plan->table.total, plan->table.trainable);
    fprintf(stream,
            "layout   %d rank%s, ZeRO stage %d, %s, batch %d x %d x %d = "
            "%" PRId64 " sequences\n",
            plan->world, plan->world == 1 ? "" : "s",
            plan->zero.request.options.stage,
            dtype_name(plan->zero.request.dtype), plan->per_device,
            plan->accumulation, plan->world, plan->global_batch);
    fprintf(stream, "each rank holds (MiB):\n");
    for (int k = 0; k < ARENA_MEMORIES; k++) {
        if (!arena->bytes[k])
            continue;
        fprintf(stream, "  %-34s %-12s %14.3f\n",
                arena_memory_name((enum arena_memory)k), "",
                mib(arena->bytes[k]));
        for (int i = 0; i < arena->span_count; i++)
            if (arena->spans[i].memory == (enum arena_memory)k)
                fprintf(stream, "    %-32s %-12s %14.3f\n",
                        arena->spans[i].name,
                        span_kind_name(arena->spans[i].kind),
                        mib(arena->spans[i].bytes));
    }
    print_per_parameter(plan, stream);
    struct job_paged paged = job_plan_paged(plan);
    if (paged.host)
        fprintf(stream,
                "paged states (MiB): %.3f on the device, %.3f on the host, "
                "%.3f of buffers between them\n",
                mib(paged.device), mib(paged.host),
                mib(span_bytes(arena, "zero.paged.staging")));
    fprintf(stream,
            "each rank sends per step (bytes): reduce-scatter %" PRIu64
            ", all-gather %" PRIu64 ", all-reduce %" PRIu64 "\n",
            wire->reduce_scatter, wire->all_gather, wire->all_reduce);
}
