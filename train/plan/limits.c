/* limits.c - memory limits of a rank, and a plan's use of them. */
#include "train/plan/fit.h"

void plan_limit_name(
        const struct plan_limits *limits, enum arena_memory memory,
        char out[PLAN_NAME_MAX])
{
    bool is_device = memory == ARENA_DEVICE;
    bool is_host = memory == ARENA_HOST || memory == ARENA_PINNED;
    const char *name =
            is_device && limits->limits_device ? "device.memory_limit"
            : is_device && limits->on_gpu      ? "what is free on the GPU"
            : is_host && limits->limits_host   ? "device.host_memory_limit"
            : limits->is_free ? "what is free now of a rank's machine"
                              : NULL;
    if (name || limits->local_size < 2)
        snprintf(
                out, PLAN_NAME_MAX, "%s",
                name ? name : "this machine's memory");
    else
        snprintf(
                out, PLAN_NAME_MAX,
                "this machine's memory for each of %d local ranks",
                limits->local_size);
}

int plan_local_size(const struct train_job *job, int world, int local_size)
{
    bool on_gpu = device_resolve(job->device.backend) == DEVICE_CUDA;
    int gpus = on_gpu ? device_places(&job->device) : 0;
    if (local_size > 0)
        return local_size;
    return gpus > 0 && gpus < world ? gpus : world;
}

uint64_t job_machine_memory(int local_size)
{
    uint64_t reserve = (uint64_t)1 << 30; /* for everything else */
    uint64_t memory = device_system_memory();
    return (memory > 2 * reserve ? memory - reserve : memory / 2) /
           (uint64_t)local_size;
}

uint64_t plan_machine_memory(const struct job_plan *plan)
{
    uint64_t all = job_machine_memory(plan->local_size);
    return plan->knows_free && plan->free.host < all ? plan->free.host : all;
}

uint64_t plan_device_bytes(const struct job_plan *plan)
{
    uint64_t grain = device_grain_bytes();
    uint64_t bytes = plan->arena.bytes[ARENA_DEVICE];
    if (grain)
        bytes = (bytes + grain - 1) / grain * grain;
    return bytes + plan->context_bytes;
}

uint64_t plan_host_bytes(const struct job_plan *plan)
{
    return plan->arena.bytes[ARENA_HOST] + plan->arena.bytes[ARENA_PINNED] +
           plan->tokenizer_bytes;
}

uint64_t job_plan_memory(const struct job_plan *plan)
{
    bool in_host = plan->backend == DEVICE_CPU;
    return (in_host ? plan->arena.bytes[ARENA_DEVICE] : 0) +
           plan_host_bytes(plan);
}

/* The GPU memory available to a plan: what is free, plus the driver's part,
 * which is already in use. UINT64_MAX: no GPU. */
static uint64_t gpu_bytes(const struct job_plan *plan)
{
    struct device_facts facts = device_facts();
    if (facts.backend != DEVICE_CUDA)
        return UINT64_MAX;
    uint64_t bytes = facts.free_bytes;
    if (plan->knows_free && plan->free.device < bytes)
        bytes = plan->free.device;
    return bytes + plan->context.driver;
}

static uint64_t limit_of(
        uint64_t bytes, double fraction, uint64_t all, uint64_t otherwise)
{
    if (fraction > 0)
        return (uint64_t)(fraction * (double)all);
    return bytes ? bytes : otherwise;
}

struct plan_limits plan_limits_here(const struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    uint64_t share = plan_machine_memory(plan);
    return (struct plan_limits){
            .device = on_gpu ? gpu_bytes(plan) : share,
            .host = share,
            .total = on_gpu ? UINT64_MAX : share,
            .on_gpu = on_gpu,
            .is_free = plan->knows_free && share == plan->free.host,
            .local_size = plan->local_size};
}

struct plan_limits plan_limits_of(
        const struct train_job *job, const struct job_plan *plan)
{
    const struct device_options *device = &job->device;
    struct device_facts facts = device_facts();
    struct plan_limits limits = plan_limits_here(plan);
    bool has_share = !limits.on_gpu || facts.backend == DEVICE_CUDA;
    double fraction = has_share ? device->memory_limit_fraction : 0;
    limits.limits_device = device->memory_limit || fraction > 0;
    limits.limits_host =
            device->host_memory_limit || device->host_memory_limit_fraction > 0;
    limits.device = limit_of(
            device->memory_limit, fraction,
            limits.on_gpu ? facts.total_bytes : limits.host, limits.device);
    limits.host = limit_of(
            device->host_memory_limit, device->host_memory_limit_fraction,
            limits.host, limits.host);
    if (limits.limits_device && limits.limits_host)
        limits.total = UINT64_MAX;
    return limits;
}

uint64_t plan_free_bytes(
        const struct job_plan *plan, const struct plan_limits *limits)
{
    bool here = plan->knows_free || !limits->limits_host;
    /* room to align one more span to ARENA_ALIGN */
    uint64_t host = plan_host_bytes(plan) + ARENA_ALIGN - 1;
    uint64_t within[] = {
            plan_left(limits->host, host),
            plan_left(limits->total, plan_device_bytes(plan) + host),
            plan_left(plan_machine_memory(plan), job_plan_memory(plan))};
    uint64_t least = within[0];
    for (int i = 1; i < (here ? 3 : 2); i++)
        least = within[i] < least ? within[i] : least;
    return least / ARENA_DEVICE_ALIGN * ARENA_DEVICE_ALIGN;
}

bool plan_fits(const struct job_plan *plan, const struct plan_limits *limits)
{
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    return device <= limits->device && host <= limits->host &&
           device + host <= limits->total;
}
