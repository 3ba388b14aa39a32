#include "train/plan/fit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t limit_of(uint64_t bytes, double fraction, uint64_t share)
{
    if (fraction > 0)
        return (uint64_t)(fraction * (double)share);
    return bytes ? bytes : share;
}

void plan_limit_name(
        const struct plan_limits *limits, enum arena_memory memory,
        char out[PLAN_NAME_MAX])
{
    bool is_device = memory == ARENA_DEVICE;
    bool is_host = memory == ARENA_HOST || memory == ARENA_PINNED;
    if (is_device && !limits->limits_device && limits->on_gpu)
        snprintf(out, PLAN_NAME_MAX, "what is free on the GPU");
    else if (is_device && limits->limits_device)
        snprintf(out, PLAN_NAME_MAX, "device.memory_limit");
    else if (is_host && limits->limits_host)
        snprintf(out, PLAN_NAME_MAX, "device.host_memory_limit");
    else if (limits->local_size > 1)
        snprintf(
                out, PLAN_NAME_MAX,
                "this machine's memory for each of %d local ranks",
                limits->local_size);
    else
        snprintf(out, PLAN_NAME_MAX, "this machine's memory");
}

uint64_t job_machine_memory(int local_size)
{
    uint64_t reserve = (uint64_t)1 << 30; /* for everything else */
    uint64_t memory = device_system_memory();
    return (memory > 2 * reserve ? memory - reserve : memory / 2) /
           (uint64_t)(local_size > 0 ? local_size : 1);
}

uint64_t plan_device_bytes(const struct job_plan *plan)
{
    uint64_t grain = device_facts().grain_bytes;
    uint64_t bytes = plan->arena.bytes[ARENA_DEVICE];
    if (grain)
        bytes = (bytes + grain - 1) / grain * grain;
    return bytes + plan->context_bytes;
}

/* What a plan may take of the thread's GPU: what is free, and the driver's
 * part, which is taken already. */
static uint64_t gpu_bytes(const struct job_plan *plan)
{
    struct device_facts facts = device_facts();
    if (facts.backend != DEVICE_CUDA)
        return UINT64_MAX;
    return facts.free_bytes + plan->context.driver;
}

static struct plan_limits gpu_limits(
        const struct device_options *device, int local_size,
        const struct job_plan *plan)
{
    struct device_facts facts = device_facts();
    bool is_here = facts.backend == DEVICE_CUDA;
    uint64_t share = job_machine_memory(local_size), bytes = gpu_bytes(plan);
    if (device->memory_limit_fraction > 0 && is_here)
        bytes = (uint64_t)(device->memory_limit_fraction * (double)facts.total_bytes);
    else if (device->memory_limit)
        bytes = device->memory_limit;
    return (struct plan_limits){
            .device = bytes,
            .host = limit_of(
                    device->host_memory_limit,
                    device->host_memory_limit_fraction, share),
            .total = UINT64_MAX,
            .on_gpu = true,
            .limits_device = device->memory_limit ||
                             (device->memory_limit_fraction > 0 && is_here),
            .limits_host = device->host_memory_limit ||
                           device->host_memory_limit_fraction > 0,
            .local_size = local_size,
    };
}

static struct plan_limits limits_of(
        const struct train_job *job, int local_size,
        const struct job_plan *plan)
{
    const struct device_options *device = &job->device;
    if (device_resolve(device->backend) == DEVICE_CUDA)
        return gpu_limits(device, local_size, plan);
    uint64_t share = job_machine_memory(local_size);
    bool limits_device =
            device->memory_limit || device->memory_limit_fraction > 0;
    bool limits_host =
            device->host_memory_limit || device->host_memory_limit_fraction > 0;
    return (struct plan_limits){
            .device = limit_of(
                    device->memory_limit, device->memory_limit_fraction, share),
            .host = limit_of(
                    device->host_memory_limit,
                    device->host_memory_limit_fraction, share),
            .total = limits_device && limits_host ? UINT64_MAX : share,
            .limits_device = limits_device,
            .limits_host = limits_host,
            .local_size = local_size,
    };
}

static bool fits(const struct job_plan *plan, const struct plan_limits *limits)
{
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    return device <= limits->device && host <= limits->host &&
           device + host <= limits->total;
}

/* Where gradients of several micro-batches are added up: offload.accumulate, or
 * with "auto" on the device if that fits, else on the host. */
static enum zd_status try_accumulations(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    enum offload_accumulate asked = job->offload.accumulate;
    bool several = job->offload.optimizer != OFFLOAD_NONE && choice->A > 1;
    bool can_both = plan->world == 1 || job->zero.stage > 0;
    choice->accumulate_on_host = several && asked == OFFLOAD_ACCUMULATE_HOST;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = fits(plan, limits);
    if (*fits_out || !several || !can_both || asked != OFFLOAD_ACCUMULATE_AUTO)
        return ZD_OK;
    choice->accumulate_on_host = true;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = fits(plan, limits);
    return ZD_OK;
}

/* Paged states that do not fit the device's limit go to the host's. */
static bool can_spill(
        const struct train_job *job, const struct plan_limits *limits)
{
    return job->optim.paged && job->offload.optimizer == OFFLOAD_NONE &&
           limits->device < limits->total;
}

static enum zd_status try_to_spill(
        const struct train_job *job, struct job_choice *choice, size_t bytes,
        struct job_plan *plan)
{
    choice->spill_bytes = bytes;
    return job_plan_try(job, choice, plan);
}

/* As much of the states on the host as the device needs, not more; when all of
 * them there are not enough that is the plan left. */
static enum zd_status try_spills(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    ZD_TRY(try_to_spill(job, choice, SIZE_MAX, plan));
    const struct arena_span *all = arena_plan_find(&plan->arena, "zero.paged");
    size_t few = 0, enough = all ? all->bytes : 0;
    *fits_out = false;
    if (!all || plan_device_bytes(plan) > limits->device)
        return ZD_OK;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        ZD_TRY(try_to_spill(job, choice, middle, plan));
        if (plan_device_bytes(plan) <= limits->device)
            enough = middle;
        else
            few = middle;
    }
    ZD_TRY(try_to_spill(job, choice, enough, plan));
    *fits_out = fits(plan, limits);
    return ZD_OK;
}

enum zd_status plan_try_choice(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    choice->spill_bytes = 0;
    ZD_TRY(try_accumulations(job, choice, limits, plan, fits_out));
    if (*fits_out || !can_spill(job, limits))
        return ZD_OK;
    return try_spills(job, choice, limits, plan, fits_out);
}

/* "auto" takes the first that fits: nothing recomputed, then the mode with the
 * smaller activations of the two that recompute every layer once. Activations
 * that are offloaded are inputs of what is recomputed. States are spilled only
 * where recomputing does not do. */
static enum zd_status try_modes(
        const struct train_job *job, int B, int A,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    struct checkpointing asked = job->train.gradient_checkpointing;
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SQRT, CHECKPOINTING_FULL};
    struct job_choice choice = {.checkpointing = asked, .B = B, .A = A};
    if (asked.mode != CHECKPOINTING_AUTO)
        return plan_try_choice(job, &choice, limits, plan, fits_out);
    bool recompute = job->offload.activations != OFFLOAD_NONE;
    for (size_t i = recompute; i < sizeof modes / sizeof modes[0]; i++) {
        choice.checkpointing = (struct checkpointing){.mode = modes[i]};
        ZD_TRY(try_accumulations(job, &choice, limits, plan, fits_out));
        if (*fits_out)
            return ZD_OK;
    }
    for (size_t i = 1; i < sizeof modes / sizeof modes[0]; i++) {
        if (!can_spill(job, limits))
            break;
        choice.checkpointing = (struct checkpointing){.mode = modes[i]};
        ZD_TRY(try_spills(job, &choice, limits, plan, fits_out));
        if (*fits_out)
            return ZD_OK;
    }
    return ZD_OK;
}

enum zd_status plan_fit(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    const struct plan_limits limits = limits_of(job, local_size, plan);
    int B = plan->per_device, A = plan->accumulation;
    bool fit = false;

    plan->limits = limits;
    plan->chose_checkpointing =
            job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO;
    for (;;) {
        ZD_TRY(try_modes(job, B, A, &limits, plan, &fit));
        if (fit || !job->train.auto_find_batch_size || B % 2)
            break;
        B /= 2; /* the same samples in more, smaller micro-batches */
        A *= 2;
    }
    return fit ? ZD_OK : plan_refuse(job, plan, &limits);
}

enum zd_status plan_check_machine(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    uint64_t memory = job_machine_memory(local_size);
    const struct plan_limits limits = {
            .device = on_gpu ? gpu_bytes(plan) : UINT64_MAX,
            .host = on_gpu ? memory : UINT64_MAX,
            .total = on_gpu ? UINT64_MAX : memory,
            .on_gpu = on_gpu,
            .local_size = local_size};
    return fits(plan, &limits) ? ZD_OK : plan_refuse(job, plan, &limits);
}
