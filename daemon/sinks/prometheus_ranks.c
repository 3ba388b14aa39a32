/* prometheus_ranks.c - what is known of each rank: life, memory, bytes moved.
 */
#include "daemon/sinks/prometheus_ranks.h"

#include <math.h>

/* A heartbeat that is so old, of a job that makes steps, is none. */
enum { HEARTBEAT_SECONDS = 60, HEARTBEAT_STEPS = 10 };

/* --- ranks --- */

typedef double rank_value(
        const struct run_state *state, const struct train_rank_report *rank);

static const char *rank_name(const struct train_rank_report *rank, char *text)
{
    snprintf(text, 16, "%d", rank->rank);
    return text;
}

/* One sample of each rank. */
static void put_ranks(
        struct exposition *to, const struct run_state *state,
        const struct family *family, rank_value *value)
{
    char number[16];
    if (state->rank_count == 0)
        return;
    family_open(to, family);
    for (int r = 0; r < state->rank_count; r++)
        family_sample(
                to, value(state, &state->ranks[r]), "rank",
                rank_name(&state->ranks[r], number), NULL);
}

static double slowness_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return rank->slowness > 0 ? rank->slowness : NAN;
}

static double heartbeat_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return rank->heartbeat;
}

static double step_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->step;
}

static double resident_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->resident;
}

static double peak_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return (double)rank->resident_peak;
}

static double data_wait_of(
        const struct run_state *state, const struct train_rank_report *rank)
{
    return rank->phase_seconds[PHASE_DATA];
}

/* Ranks are asked between steps: while the run evaluates, saves or is paused,
 * an old heartbeat says nothing. */
static bool is_up(
        const struct run_state *state, const struct train_rank_report *rank)
{
    double limit =
            fmax(HEARTBEAT_SECONDS, HEARTBEAT_STEPS * state->mean_step_seconds);
    double since = fmax(rank->heartbeat, state->state_since);
    if (state->state >= RUN_DONE)
        return false;
    bool is_asked = state->state == RUN_RUNNING || state->state == RUN_STALLED;
    return !is_asked || run_state_now() - since < limit;
}

void prometheus_put_life(struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(
                to, &(struct family){
                            "zerod_rank_up", FAMILY_GAUGE, NULL,
                            "1 while the rank answers; 0 when it was not heard "
                            "for a minute and ten steps, and after the end."});
    for (int r = 0; r < state->rank_count; r++)
        family_sample(
                to, is_up(state, &state->ranks[r]), "rank",
                rank_name(&state->ranks[r], number), "host",
                state->ranks[r].host, NULL);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_last_heartbeat_timestamp_seconds", FAMILY_GAUGE,
                    "seconds", "When the rank was last heard, since 1970."},
            heartbeat_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_step", FAMILY_GAUGE, NULL,
                    "The rank's step when it was last heard."},
            step_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_slowness_ratio", FAMILY_GAUGE, "ratio",
                    "The rank's busy time in 50 steps, over the median of all "
                    "ranks; NaN before."},
            slowness_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_data_wait_seconds", FAMILY_COUNTER, "seconds",
                    "Time that the rank waited for data."},
            data_wait_of);
}

/* --- memory --- */

typedef uint64_t memory_value(
        const struct train_rank_report *rank, enum arena_memory where);

static uint64_t planned_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->planned[where];
}

static uint64_t taken_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->taken[where];
}

static uint64_t limit_of(
        const struct train_rank_report *rank, enum arena_memory where)
{
    return rank->limit[where];
}

/* One sample of each rank and memory; memories that it does not have, or that
 * have no limit, are left out. */
static void put_memory(
        struct exposition *to, const struct run_state *state, const char *name,
        const char *help, memory_value *value)
{
    struct family family = {name, FAMILY_GAUGE, "bytes", help};
    bool is_open = false;
    char number[16];
    for (int r = 0; r < state->rank_count; r++)
        for (int i = 0; i < ARENA_MEMORIES; i++) {
            enum arena_memory where = (enum arena_memory)i;
            const struct train_rank_report *rank = &state->ranks[r];
            if (rank->planned[i] == 0 ||
                (value == limit_of && !limit_of(rank, where)))
                continue;
            if (!is_open)
                family_open(to, &family);
            is_open = true;
            family_sample(
                    to, (double)value(rank, where), "rank",
                    rank_name(rank, number), "where", arena_memory_name(where),
                    NULL);
        }
}

static void put_memory_kinds(
        struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(
                to, &(struct family){
                            "zerod_memory_bytes", FAMILY_GAUGE, "bytes",
                            "Memory that a rank holds, by what it is "
                            "for; padding is not counted."});
    for (int r = 0; r < state->rank_count; r++)
        for (int i = 0; i < ARENA_MEMORIES; i++)
            for (int kind = 0; kind < SPAN_KINDS; kind++) {
                const struct train_rank_report *rank = &state->ranks[r];
                if (rank->planned[i] == 0)
                    continue;
                family_sample(
                        to, (double)rank->kinds[i][kind], "rank",
                        rank_name(rank, number), "where",
                        arena_memory_name((enum arena_memory)i), "kind",
                        span_kind_name((enum span_kind)kind), NULL);
            }
}

static uint64_t gpu_total_of(const struct train_gpu_report *gpu)
{
    return gpu->total;
}

static uint64_t gpu_used_of(const struct train_gpu_report *gpu)
{
    return gpu->used;
}

static uint64_t gpu_held_of(const struct train_gpu_report *gpu)
{
    return gpu->held;
}

static uint64_t gpu_planned_of(const struct train_gpu_report *gpu)
{
    return gpu->planned;
}

/* Labelled by the GPU's UUID, as dcgm-exporter's series are. */
static void put_gpu(
        struct exposition *to, const struct run_state *state, const char *name,
        const char *help, uint64_t (*value)(const struct train_gpu_report *))
{
    struct family family = {name, FAMILY_GAUGE, "bytes", help};
    char number[16];
    family_open(to, &family);
    for (int r = 0; r < state->rank_count; r++)
        family_sample(
                to, (double)value(&state->ranks[r].gpu), "rank",
                rank_name(&state->ranks[r], number), "gpu",
                state->ranks[r].gpu.uuid, NULL);
}

/* All ranks have a GPU, or none has. */
static void put_gpus(struct exposition *to, const struct run_state *state)
{
    char number[16];
    if (state->rank_count == 0 || !state->ranks[0].gpu.name[0])
        return;
    family_open(
            to, &(struct family){
                        "zerod_gpu", FAMILY_INFO, NULL, "The GPU of a rank."});
    for (int r = 0; r < state->rank_count; r++) {
        const struct train_gpu_report *gpu = &state->ranks[r].gpu;
        family_sample(
                to, 1, "rank", rank_name(&state->ranks[r], number), "gpu",
                gpu->uuid, "name", gpu->name, "pci", gpu->pci, NULL);
    }
    put_gpu(to, state, "zerod_gpu_memory_total_bytes",
            "Memory of the rank's GPU.", gpu_total_of);
    put_gpu(to, state, "zerod_gpu_memory_used_bytes",
            "What of it is in use, by everybody, as the driver says.",
            gpu_used_of);
    put_gpu(to, state, "zerod_gpu_memory_held_bytes",
            "What of it the rank holds, with what driver and libraries take.",
            gpu_held_of);
    put_gpu(to, state, "zerod_gpu_memory_planned_bytes",
            "What of it the rank was planned to hold, with that.",
            gpu_planned_of);
}

void prometheus_put_memories(
        struct exposition *to, const struct run_state *state)
{
    put_memory_kinds(to, state);
    put_memory(
            to, state, "zerod_memory_planned_bytes",
            "Memory that the plan gave a rank.", planned_of);
    put_memory(
            to, state, "zerod_memory_taken_bytes",
            "Memory that a rank has taken.", taken_of);
    put_memory(
            to, state, "zerod_memory_limit_bytes",
            "Memory that a rank may take, where there is a limit.", limit_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_resident_bytes", FAMILY_GAUGE, "bytes",
                    "Memory of the rank's process (VmRSS)."},
            resident_of);
    put_ranks(
            to, state,
            &(struct family){
                    "zerod_rank_resident_peak_bytes", FAMILY_GAUGE, "bytes",
                    "The most that it had (VmHWM)."},
            peak_of);
    put_gpus(to, state);
}

/* --- bytes that moved --- */

struct moved {
    const char *name;
    size_t offset; /* in train_rank_report */
};
#define MOVED(name, member)                                                    \
    {                                                                          \
        name, offsetof(struct train_rank_report, member)                       \
    }
static const struct moved paths[] = {
        MOVED("down", down_bytes),
        MOVED("up", up_bytes),
        MOVED("disk_read", disk_read_bytes),
        MOVED("disk_write", disk_written_bytes),
        {0}};
static const struct moved ops[] = {
        MOVED("reduce_scatter", reduce_scatter_bytes),
        MOVED("all_gather", all_gather_bytes),
        MOVED("all_reduce", all_reduce_bytes),
        {0}};
#undef MOVED

static void put_moved(
        struct exposition *to, const struct run_state *state, const char *name,
        const char *help, const char *label, const struct moved *moved)
{
    char number[16];
    if (state->rank_count > 0)
        family_open(to, &(struct family){name, FAMILY_COUNTER, "bytes", help});
    for (int r = 0; r < state->rank_count; r++)
        for (const struct moved *each = moved; each->name; each++) {
            const char *rank = (const char *)&state->ranks[r];
            family_sample(
                    to, (double)*(const uint64_t *)(rank + each->offset),
                    "rank", rank_name(&state->ranks[r], number), label,
                    each->name, NULL);
        }
}

void prometheus_put_transfers(
        struct exposition *to, const struct run_state *state)
{
    put_moved(
            to, state, "zerod_transfer_bytes",
            "Bytes between device, host and disk: gradients down, parameters "
            "up.",
            "path", paths);
    put_moved(
            to, state, "zerod_comm_bytes",
            "Bytes that the rank sent to others.", "op", ops);
}
