#include "train/trainer/rank_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "comm/topology.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double ask_seconds = 2;

/* --- counting --------------------------------------------------------------
 */

void rank_meter_step(
        struct rank_meter *meter, const struct train_step_report *report)
{
    train_phases_add(meter->phase_seconds, report);
    meter->last_seconds[meter->steps++ % METER_STEPS] = report->step_seconds;
}

void rank_meter_add(
        struct trainer *trainer, enum train_phase phase, double began)
{
    double now = clock_seconds();
    trainer->meter.phase_seconds[phase] += now - began;
    spans_add(
            trace_spans(trainer->trace), LANE_TRAINER, train_phase_name(phase),
            -1, began, now);
}

double rank_meter_step_seconds(const struct rank_meter *meter)
{
    double sum = 0;
    int64_t count = meter->steps < METER_STEPS ? meter->steps : METER_STEPS;
    for (int64_t i = 0; i < count; i++)
        sum += meter->last_seconds[i];
    return count ? sum / (double)count : 0;
}

/* --- this rank -------------------------------------------------------------
 */

/* VmRSS and VmHWM of the process in bytes; 0: unknown. */
static void read_resident(uint64_t *resident, uint64_t *peak)
{
    char line[256];
    unsigned long long kilobytes;
    FILE *file = fopen("/proc/self/status", "re");
    *resident = *peak = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %llu", &kilobytes) == 1)
            *resident = (uint64_t)kilobytes * 1024;
        if (sscanf(line, "VmHWM: %llu", &kilobytes) == 1)
            *peak = (uint64_t)kilobytes * 1024;
    }
    if (file)
        fclose(file);
}

static void fill_memory(
        const struct trainer *trainer, struct train_rank_report *report)
{
    const struct arena_plan *arena = &trainer->plan.arena;
    const struct plan_limits *limits = &trainer->plan.limits;
    for (int m = 0; m < ARENA_MEMORIES; m++) {
        report->planned[m] = arena->bytes[m];
        report->taken[m] = trainer->arena.taken_bytes[m];
        for (int kind = 0; kind < SPAN_KINDS; kind++)
            report->kinds[m][kind] = arena_plan_kind_bytes(
                    arena, (enum arena_memory)m, (enum span_kind)kind);
    }
    report->limit[ARENA_DEVICE] = limits->device;
    report->limit[ARENA_HOST] = report->limit[ARENA_PINNED] = limits->host;
    read_resident(&report->resident, &report->resident_peak);
}

static void fill_counters(
        const struct trainer *trainer, struct train_rank_report *report)
{
    const struct rank_meter *meter = &trainer->meter;
    const struct offload_report *engine = &trainer->offload_total.engine;
    const struct model_offload_report *acts =
            &trainer->offload_total.activations;
    memcpy(report->phase_seconds, meter->phase_seconds,
           sizeof report->phase_seconds);
    report->step_seconds = rank_meter_step_seconds(meter);
    report->slowness = trainer->stragglers.slowness;
    report->down_bytes = engine->down_bytes + acts->down_bytes;
    report->up_bytes = engine->up_bytes + acts->up_bytes;
    report->disk_read_bytes = engine->disk_read_bytes;
    report->disk_written_bytes = engine->disk_written_bytes;
    report->groups = zero_wire(trainer->zero);
    report->wire = zero_wire_sum(&report->groups);
}

static void fill(
        const struct trainer *trainer, struct train_rank_report *report)
{
    memset(report, 0, sizeof *report); /* clears padding too, because it is
                                          sent */
    report->rank = comm_rank(trainer->comm);
    report->local_rank = comm_local_rank(trainer->comm);
    report->mesh = mesh_place(trainer->plan.mesh, report->rank);
    report->pid = (int)getpid();
    report->threads = rank_device_threads(trainer->job, trainer->comm);
    ZD_PRINT(report->host, "%s", comm_host(trainer->comm));
    struct device_facts device = device_facts();
    ZD_PRINT(
            report->device, "%.63s",
            device.uuid[0] ? device.uuid : device.name);
    device_affinity_list(report->cpus, sizeof report->cpus);
    report->step = trainer->state.step;
    report->heartbeat = clock_wall_seconds();
    rank_device_measure(trainer, &report->gpu);
    fill_memory(trainer, report);
    fill_counters(trainer, report);
}

/* --- all ranks -------------------------------------------------------------
 */

bool rank_report_is_due(const struct trainer *trainer)
{
    return trainer_is_first(trainer) && trainer->observer->ranks &&
           clock_seconds() - trainer->meter.asked >= ask_seconds;
}

enum zd_status rank_report_gather(struct trainer *trainer)
{
    struct train_rank_report mine;
    int size = comm_size(trainer->comm);
    ZD_FREED void *all = NULL;
    fill(trainer, &mine);
    ZD_TRY(comm_gather_new(trainer->comm, &mine, sizeof mine, &all));
    if (trainer_is_first(trainer) && trainer->observer->ranks)
        trainer->observer->ranks(trainer->observer->ctx, all, size);
    trainer->meter.asked = clock_seconds();
    return ZD_OK;
}

enum zd_status rank_report_ask(struct trainer *trainer)
{
    int32_t wanted = trainer->observer->ranks != NULL;
    ZD_TRY(comm_broadcast(trainer->comm, &wanted, sizeof wanted, 0));
    return wanted ? rank_report_gather(trainer) : ZD_OK;
}

/* --- who is slow ---------------------------------------------------------- */

static const double SLOW = 1.5, LEAST_SECONDS = 1e-3 * STRAGGLER_STEPS;

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double stragglers_median(const double *busy, int size, double *sorted)
{
    memcpy(sorted, busy, (size_t)size * sizeof *sorted);
    qsort(sorted, (size_t)size, sizeof *sorted, compare);
    return sorted[(size - 1) / 2];
}

bool stragglers_is_one(double busy, double median)
{
    return busy > SLOW * median && busy - median > LEAST_SECONDS;
}

static void name_slow(struct trainer *trainer, int rank, double ratio)
{
    const char *host = comm_topology(trainer->comm)->ranks[rank].host;
    int64_t step = trainer->state.step;
    zd_log_warning(
            "rank %d (%s) is slow: over the last %d steps it was busy %.1f "
            "times as long as the median of all ranks, which wait for it",
            rank, host, STRAGGLER_STEPS, ratio);
    events_tell(
            trainer->events, "straggler", step,
            json_pack(
                    "{s:i, s:s, s:f}", "rank", rank, "host", host, "ratio",
                    ratio));
}

/* all: (2, size): the ranks' busy seconds, then scratch to sort them */
static void judge(struct trainer *trainer, double *all)
{
    struct stragglers *stragglers = &trainer->stragglers;
    int size = comm_size(trainer->comm);
    double median = stragglers_median(all, size, all + size);
    if (median <= 0)
        return;
    stragglers->slowness = all[comm_rank(trainer->comm)] / median;
    for (int r = 0; trainer_is_first(trainer) && r < size; r++)
        if (!stragglers->is_named[r] && stragglers_is_one(all[r], median)) {
            stragglers->is_named[r] = true;
            name_slow(trainer, r, all[r] / median);
        }
}

static enum zd_status gather_busy(struct trainer *trainer)
{
    struct stragglers *stragglers = &trainer->stragglers;
    size_t size = (size_t)comm_size(trainer->comm);
    ZD_FREED double *all = zd_array(2 * size, sizeof *all);
    if (!stragglers->is_named)
        stragglers->is_named = zd_array(size, sizeof *stragglers->is_named);
    ZD_TRY(comm_gather_all(
            trainer->comm, &stragglers->busy, sizeof stragglers->busy, all));
    judge(trainer, all);
    return ZD_OK;
}

void stragglers_begin(struct trainer *trainer)
{
    trainer->stragglers.waited_before = comm_waited(trainer->comm);
}

enum zd_status stragglers_step(struct trainer *trainer, double seconds)
{
    struct stragglers *stragglers = &trainer->stragglers;
    double waited = comm_waited(trainer->comm) - stragglers->waited_before -
                    trainer->aside.waited;
    if (comm_size(trainer->comm) == 1)
        return ZD_OK;
    if (!stragglers->has_begun) { /* skip the first step, which opens
                                     libraries */
        stragglers->has_begun = true;
        return ZD_OK;
    }
    stragglers->busy += seconds > waited ? seconds - waited : 0;
    if (++stragglers->steps < STRAGGLER_STEPS)
        return ZD_OK;
    ZD_TRY(gather_busy(trainer));
    stragglers->busy = 0;
    stragglers->steps = 0;
    return ZD_OK;
}

void stragglers_fini(struct stragglers *stragglers)
{
    free(stragglers->is_named);
    stragglers->is_named = NULL;
}
