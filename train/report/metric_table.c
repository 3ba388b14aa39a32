/* metric_table.c - the metrics of a step and of a rank (rows: metric.h). */
#include "train/report/metric.h"
#include "train/report/observer.h"

#include <math.h>
#include <string.h>

/* Wraps a function of an enum as one of int. */
#define NAMES(names, function, type)                                           \
    static const char *names(int i)                                            \
    {                                                                          \
        return function((enum type)i);                                         \
    }
NAMES(phase_name, train_phase_name, train_phase)
NAMES(memory_name, arena_memory_name, arena_memory)
NAMES(span_kind, span_kind_name, span_kind)
NAMES(group_name, zero_group_name, zero_group)
#undef NAMES

const struct metric_index metric_phases = {"phase", PHASES, phase_name};
const struct metric_index metric_memories = {
        "where", ARENA_MEMORIES, memory_name};
const struct metric_index metric_span_kinds = {"kind", SPAN_KINDS, span_kind};
const struct metric_index metric_groups = {"group", ZERO_GROUPS, group_name};
const struct metric_index metric_operations = {
        "op", COMM_COUNTERS, comm_counter_name};
_Static_assert(
        sizeof(struct zero_wire) ==
                ZERO_GROUPS * COMM_COUNTERS * sizeof(uint64_t),
        "an array of numbers, by group and operation");

/* --- a step --------------------------------------------------------------- */

double train_offload_waited(const struct train_offload_report *report)
{
    const struct offload_report *engine = &report->engine;
    return engine->wait_down_seconds + engine->wait_host_seconds +
           engine->wait_disk_seconds + engine->wait_up_seconds +
           report->activations.wait_seconds;
}

/* Values computed from a struct. */
#define OF(type, one, name, number)                                            \
    static double name(const void *from, int i)                                \
    {                                                                          \
        const struct type *one = from;                                         \
        return number;                                                         \
    }
OF(train_step_report, step, exposed_of,
   step->reduce_seconds + step->gather_seconds)
OF(train_step_report, step, waited_of, train_offload_waited(&step->offload))

#define AT(type_, field)                                                       \
    .type = METRIC_##type_, .offset = offsetof(struct train_step_report, field)
#define WHEN(field) .when = offsetof(struct train_step_report, offload.field)
#define EXPOSED(what)                                                          \
    .family = "zerod_step_exposed_seconds", .label = "what",                   \
    .label_value = (what)

/* clang-format off */
static const struct metric step_rows[] = {
{"step", AT(INT64, step), .help = "From 1."},
{"loss", AT(REAL, loss), .flags = METRIC_NAN | METRIC_STATUS, .series = "train/loss", .family = "zerod_train_loss", .help = "Mean loss over the step's target tokens, of all ranks."},
{"grad_norm", AT(REAL, grad_norm), .flags = METRIC_NAN | METRIC_STATUS, .series = "train/grad_norm", .family = "zerod_train_grad_norm", .help = "Norm of the step's gradient before clipping, of all ranks, divided by the loss scale."},
{"learning_rate", AT(REAL, learning_rate), .series = "train/learning_rate", .family = "zerod_train_learning_rate", .help = "Learning rate of the step."},
{"loss_scale", AT(REAL, loss_scale.scale), .flags = METRIC_POSITIVE, .series = "train/loss_scale", .family = "zerod_train_loss_scale", .help = "What the step's loss was multiplied by (fp16)."},
{"tokens", AT(INT64, tokens), .help = "Tokens of the step, of all ranks."},
{"tokens_per_second", AT(REAL, tokens_per_second), .series = "perf/tokens_per_second", .help = "`tokens` / `step_seconds`."},
{"step_seconds", AT(REAL, step_seconds), .series = "perf/step_seconds", .help = "From the step's first exchange to its last."},
{"skipped", AT(TEXT, skipped), .help = "Only if the step changed nothing: `\"nonfinite\"` (loss or norm), `\"overflow\"` (fp16: the norm alone), `\"no_targets\"` (every token masked)."},
{"wire_bytes.reduce_scatter", AT(UINT64, wire.bytes[COMM_REDUCE_SCATTER]), .help = "Bytes that this rank sent."},
{"wire_bytes.all_gather", AT(UINT64, wire.bytes[COMM_ALL_GATHER])},
{"wire_bytes.all_to_all", AT(UINT64, wire.bytes[COMM_ALL_TO_ALL])},
{"wire_bytes.all_reduce", AT(UINT64, wire.bytes[COMM_ALL_REDUCE])},
{"wire.*", AT(UINT64, groups), .flags = METRIC_POSITIVE, .index = &metric_groups, .inner = &metric_operations, .help = "The same by group of ranks and operation, `{\"shard\": {\"all_gather\": ..}, ..}`, as the rows `wire` of a plan; what sends nothing is left out."},
{"phase_seconds.data", AT(REAL, data_seconds), .series = "perf/data_wait", .help = "`reduce`: what is left of it after backward, and the norm; `gather`: starting it (the next step waits for each layer, in `forward`)."},
{"phase_seconds.forward", AT(REAL, forward_seconds), .series = "perf/forward"},
{"phase_seconds.backward", AT(REAL, backward_seconds), .series = "perf/backward"},
{"phase_seconds.reduce", AT(REAL, reduce_seconds), .series = "perf/reduce"},
{"phase_seconds.update", AT(REAL, update_seconds), .series = "perf/update"},
{"phase_seconds.gather", AT(REAL, gather_seconds), .series = "perf/gather"},
{"exposed_seconds.update", AT(REAL, exposed.update), EXPOSED("update"), .help = "How long the step stood still for what nothing hid: the update on the host, collectives, copies between host and device, launches of kernels (0 on a CPU, not measured on a GPU). With weights on the device the update is that of the step before."},
{"exposed_seconds.gathers", AT(REAL, exposed.gathers), EXPOSED("gathers")},
{"exposed_seconds.copies", AT(REAL, exposed.copies), EXPOSED("copies")},
{"exposed_seconds.launches", AT(REAL, exposed.launches), EXPOSED("launches")},
{NULL, .value = exposed_of, .flags = METRIC_LIVE, .series = "comm/exposed_seconds", .help = "Reduce and gather: communication that computing did not hide."},
{"offload.down_bytes", AT(UINT64, offload.engine.down_bytes), WHEN(active), .help = "Gradients that this step sent to the host; parameters that it sent or fetched to the device. With weights on the device, `up_bytes` are of the step's own update, whose last copies may run during the next step. Paged states: bytes paged out and in."},
{"offload.up_bytes", AT(UINT64, offload.engine.up_bytes), WHEN(active)},
{"offload.down_seconds", AT(REAL, offload.engine.down_seconds), WHEN(active), .help = "How long those two streams were copying."},
{"offload.up_seconds", AT(REAL, offload.engine.up_seconds), WHEN(active)},
{"offload.host_step_seconds", AT(REAL, offload.engine.host_seconds), WHEN(active), .help = "Wall time of the update; 0 with `clipping = \"undo\"` unless one was undone."},
{"offload.worker_seconds", AT(REAL, offload.engine.worker_seconds), WHEN(active), .help = "Time of all workers on chunks, summed: incoming gradients, the update, parameters on NVMe, and their waits for the disk."},
{"offload.disk.read_bytes", AT(UINT64, offload.engine.disk_read_bytes), WHEN(has_disk), .help = "`optimizer = \"nvme\"` only; `wait_seconds`: the workers' waits for the disk, summed."},
{"offload.disk.written_bytes", AT(UINT64, offload.engine.disk_written_bytes), WHEN(has_disk)},
{"offload.disk.wait_seconds", AT(REAL, offload.engine.disk_seconds), WHEN(has_disk)},
{"offload.activations.down_bytes", AT(UINT64, offload.activations.down_bytes), WHEN(has_activations), .help = "Absent if none moved."},
{"offload.activations.up_bytes", AT(UINT64, offload.activations.up_bytes), WHEN(has_activations)},
{"offload.wait_seconds.down", AT(REAL, offload.engine.wait_down_seconds), WHEN(active), .help = "How long the step stood still."},
{"offload.wait_seconds.host_step", AT(REAL, offload.engine.wait_host_seconds), WHEN(active)},
{"offload.wait_seconds.disk", AT(REAL, offload.engine.wait_disk_seconds), WHEN(active)},
{"offload.wait_seconds.up", AT(REAL, offload.engine.wait_up_seconds), WHEN(active)},
{"offload.wait_seconds.activations", AT(REAL, offload.activations.wait_seconds), WHEN(active)},
{"offload.wait_seconds", .value = waited_of, WHEN(active), .flags = METRIC_SUM, .series = "perf/offload_wait"},
{"offload.undone", AT(TRUE, offload.engine.undone), WHEN(active), .help = "`true` if `clipping = \"undo\"` undid the update."},
};
/* clang-format on */
#undef AT
#undef WHEN
#undef EXPOSED
const struct metric_table step_metrics = {
        step_rows, sizeof step_rows / sizeof step_rows[0],
        sizeof(struct train_step_report)};

void train_offload_add(
        struct train_offload_report *total,
        const struct train_offload_report *of)
{
    struct train_step_report sum = {.offload = *total}, one = {.offload = *of};
    ZD_EACH(metric, step_metrics.rows, step_metrics.count)
        if (metric->name && strncmp(metric->name, "offload.", 8) == 0 &&
            !metric->value)
            metric_add(metric, &sum, &one);
    *total = sum.offload;
    total->active |= of->active;
    total->has_activations |= of->has_activations;
    total->undone_steps += of->undone_steps;
}

void train_phases_add(double total[PHASES], const struct train_step_report *of)
{
    const struct offload_report *engine = &of->offload.engine;
    total[PHASE_DATA] += of->data_seconds;
    total[PHASE_FORWARD] += of->forward_seconds;
    total[PHASE_BACKWARD] += of->backward_seconds;
    total[PHASE_REDUCE] += of->reduce_seconds;
    total[PHASE_UPDATE] += of->update_seconds;
    total[PHASE_GATHER] += of->gather_seconds;
    total[PHASE_DOWN] += engine->wait_down_seconds;
    total[PHASE_HOST] += engine->wait_host_seconds;
    total[PHASE_UP] +=
            engine->wait_up_seconds + of->offload.activations.wait_seconds;
    total[PHASE_DISK] += engine->wait_disk_seconds;
}

bool train_step_is_logged(
        const struct train_step_report *step, const struct log_options *log)
{
    double every = step->settings[SET_LOGGING_STEPS];
    if (step->step == step->max_steps ||
        (log->logging_first_step && step->step == 1))
        return true;
    return every >= 1 && step->step % (int64_t)every == 0;
}

/* --- a rank --------------------------------------------------------------- */

/* Unknown if the rank does not have this memory. */
static double if_planned(
        const struct train_rank_report *rank, int memory, uint64_t bytes)
{
    return rank->planned[memory] ? (double)bytes : NAN;
}

OF(train_rank_report, rank, taken_of, if_planned(rank, i, rank->taken[i]))
OF(train_rank_report, rank, limit_of, if_planned(rank, i, rank->limit[i]))
OF(train_rank_report, rank, kind_of,
   if_planned(
           rank, i / SPAN_KINDS, rank->kinds[i / SPAN_KINDS][i % SPAN_KINDS]))
OF(train_rank_report, rank, resident_gib_of, (double)rank->resident / 0x1p30)
#undef OF

#define AT(type_, field)                                                       \
    .type = METRIC_##type_, .offset = offsetof(struct train_rank_report, field)
#define BYTES(field) AT(UINT64, field)
#define GPU(field)                                                             \
    BYTES(gpu.field),                                                          \
            .label = "gpu",                                                    \
            .label_offset = offsetof(struct train_rank_report, gpu.uuid),      \
            .when = offsetof(struct train_rank_report, gpu.name)
#define MOVED(path)                                                            \
    .family = "zerod_transfer_bytes", .kind = FAMILY_COUNTER, .label = "path", \
    .label_value = (path)
#define SENT(op)                                                               \
    .family = "zerod_comm_bytes", .kind = FAMILY_COUNTER, .label = "op",       \
    .label_value = (op)

/* clang-format off */
static const struct metric rank_rows[] = {
{"rank", AT(INT, rank)},
{"local_rank", AT(INT, local_rank)},
{"mesh.replicate", AT(INT, mesh.replicate)},
{"mesh.shard", AT(INT, mesh.shard)},
{"mesh.cp", AT(INT, mesh.cp)},
{"mesh.tp", AT(INT, mesh.tp)},
{"host", AT(CHARS, host)},
{"pid", AT(INT, pid)},
{"device", AT(CHARS, device)},
{"cpus", AT(CHARS, cpus)},
{"threads", AT(INT, threads)},
{"heartbeat", AT(REAL, heartbeat), .flags = METRIC_POSITIVE, .family = "zerod_rank_last_heartbeat_timestamp_seconds", .help = "When the rank was last heard, since 1970."},
{"step", AT(INT64, step), .family = "zerod_rank_step", .help = "The rank's step when it was last heard."},
{"step_seconds", AT(REAL, step_seconds)},
{"slowness", AT(REAL, slowness), .flags = METRIC_POSITIVE | METRIC_NAN, .family = "zerod_rank_slowness_ratio", .help = "The rank's busy time in 50 steps, over the median of all ranks; NaN before."},
{"phase_seconds.*", AT(REAL, phase_seconds), .index = &metric_phases},
{NULL, AT(REAL, phase_seconds[PHASE_DATA]), .family = "zerod_data_wait_seconds", .kind = FAMILY_COUNTER, .help = "Time that the rank waited for data."},
{NULL, .value = kind_of, .index = &metric_memories, .inner = &metric_span_kinds, .family = "zerod_memory_bytes", .help = "Memory that a rank holds, by what it is for; padding is not counted."},
{NULL, AT(UINT64, planned), .flags = METRIC_POSITIVE, .index = &metric_memories, .family = "zerod_memory_planned_bytes", .help = "Memory that the plan gave a rank."},
{NULL, .value = taken_of, .index = &metric_memories, .family = "zerod_memory_taken_bytes", .help = "Memory that a rank has taken: what was planned."},
{NULL, .value = limit_of, .index = &metric_memories, .flags = METRIC_POSITIVE, .family = "zerod_memory_limit_bytes", .help = "Memory that a rank may take, where there is a limit."},
{"resident", BYTES(resident), .family = "zerod_rank_resident_bytes", .help = "Memory of the rank's process (VmRSS)."},
{"resident_peak", BYTES(resident_peak), .family = "zerod_rank_resident_peak_bytes", .help = "Peak memory of the rank's process (VmHWM)."},
{NULL, .value = resident_gib_of, .series = "memory/resident_gib"},
{NULL, GPU(total), .family = "zerod_gpu_memory_total_bytes", .help = "Memory of the rank's GPU."},
{NULL, GPU(used), .family = "zerod_gpu_memory_used_bytes", .help = "Memory of the rank's GPU in use by all processes, as the driver says."},
{NULL, GPU(held), .family = "zerod_gpu_memory_held_bytes", .help = "Memory of its GPU that the rank holds, with driver and libraries."},
{NULL, GPU(planned), .family = "zerod_gpu_memory_planned_bytes", .help = "The plan for the memory that the rank holds of its GPU."},
{"down_bytes", BYTES(down_bytes), MOVED("down"), .help = "Bytes between device, host and disk: gradients down, parameters up."},
{"up_bytes", BYTES(up_bytes), MOVED("up")},
{"disk_read_bytes", BYTES(disk_read_bytes), MOVED("disk_read")},
{"disk_written_bytes", BYTES(disk_written_bytes), MOVED("disk_write")},
{"reduce_scatter_bytes", BYTES(wire.bytes[COMM_REDUCE_SCATTER]), SENT("reduce_scatter"), .help = "Bytes that the rank sent to others."},
{"all_gather_bytes", BYTES(wire.bytes[COMM_ALL_GATHER]), SENT("all_gather")},
{"all_to_all_bytes", BYTES(wire.bytes[COMM_ALL_TO_ALL]), SENT("all_to_all")},
{"all_reduce_bytes", BYTES(wire.bytes[COMM_ALL_REDUCE]), SENT("all_reduce")},
{"wire.*", BYTES(groups), .flags = METRIC_POSITIVE, .index = &metric_groups, .inner = &metric_operations, .family = "zerod_comm_group_bytes", .kind = FAMILY_COUNTER, .help = "Bytes that the rank sent to others, by group of ranks and operation."},
};
/* clang-format on */
#undef AT
#undef BYTES
#undef GPU
#undef MOVED
#undef SENT
const struct metric_table rank_metrics = {
        rank_rows, sizeof rank_rows / sizeof rank_rows[0],
        sizeof(struct train_rank_report)};
