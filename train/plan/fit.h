/* fit.h - chooses what "auto" leaves open so that the job fits, or reports why
 * it does not fit and what would. Internal to train. */
#pragma once

#include "base/units.h"
#include "train/plan/plan.h"

/* plan.c: the first part of job_plan_build: model, world, transport, batch. The
 * caller must call job_plan_fini in any case. */
enum zd_status plan_begin(
        const struct train_job *job, int world, int local_size,
        const struct comm *comm, struct job_plan *plan);

/* Parts of it, from plan->config: the table of the whole model, with [lora]
 * adapted, and that of a place's slice. */
enum zd_status plan_tables(const struct train_job *job, struct job_plan *plan);
enum zd_status plan_slice(
        const struct train_job *job, struct tp tp, struct job_plan *plan);

/* One choice of the open settings. */
struct job_choice {
    struct checkpointing checkpointing;
    int B, A;
    int mlp_pieces; /* 0: the job's; for "auto" 1 */
    bool by_layer;  /* breadth first */
    bool accumulate_on_host;
    size_t spill_bytes;   /* paged states on the host */
    uint64_t undo_bytes;  /* for offload.undo_memory = "auto" */
    double device_update; /* for "auto" */
    int moves_most; /* micro-batches in stage 3's program: a few suffice for
                       memory and time; 0: all, for a run */
    bool only_fits; /* only decide whether it fits */
};
enum { PLAN_MOVES_MOST = 4 }; /* later ones but the last equal the second */
/* try.c: plans one choice; pure. Replaces the plan's contents. */
enum zd_status job_plan_try(
        const struct train_job *job, const struct job_choice *choice,
        struct job_plan *plan);
/* print.c: names as in the job file ("paged_adamw_8bit"), or for sentences. */
enum { PLAN_NAME_MAX = 64 };
void plan_optimizer_name(
        const struct optim_options *optim, char out[PLAN_NAME_MAX]);
void plan_checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX]);
const char *plan_order_name(bool by_layer);
extern const char *const plan_tier_names[]; /* by enum offload_tier */
/* "no master weights" also if parameters themselves are fp32. */
const char *plan_masters_name(enum dtype dtype, enum optim_master master);
/* The limits of a rank, from this machine and the job. */
struct plan_limits plan_limits_here(const struct job_plan *plan);
struct plan_limits plan_limits_of(
        const struct train_job *job, const struct job_plan *plan);
bool plan_fits(const struct job_plan *plan, const struct plan_limits *limits);
/* bytes - taken, at least 0. */
static inline uint64_t plan_left(uint64_t bytes, uint64_t taken)
{
    return bytes > taken ? bytes - taken : 0;
}
/* Bytes of the host left within the limits, and for a run, or without a limit
 * for another machine, also within this machine. */
uint64_t plan_free_bytes(
        const struct job_plan *plan, const struct plan_limits *limits);
/* A job during fitting. */
struct plan_fit {
    const struct train_job *job;
    struct plan_limits limits;
    struct job_plan *plan; /* the last one tried */
    struct job_choice choice;
    bool fits; /* the plan is within the limits */
};
/* Resolves offload.undo_memory = "auto" for a plan that fits: uses the memory
 * that is left. */
enum zd_status plan_undo(struct plan_fit *fit);
/* Then resolves offload.device_update = "auto": the share with the fastest step
 * by the calibration of rank 0's machine; without one 0. Collective; comm NULL:
 * no ranks yet. */
enum zd_status plan_divide(struct plan_fit *fit, struct comm *comm);
/* What limits a memory (ARENA_MEMORIES: all together): a key of [device], or
 * this machine. */
void plan_limit_name(
        const struct plan_limits *limits, enum arena_memory memory,
        char out[PLAN_NAME_MAX]);
/* Bytes of the device, including the driver's, rounded to the allocation
 * granularity of the thread's device. */
uint64_t plan_device_bytes(const struct job_plan *plan);
/* Bytes of the host's memory, pinned or not. */
uint64_t plan_host_bytes(const struct job_plan *plan);
/* With checkpointing and batch fixed, chooses where gradients of several
 * micro-batches are added up, and how much of paged states is on the host. */
enum zd_status plan_try_choice(struct plan_fit *fit);
/* If that does not fit and train.tiled_mlp is "auto": the smallest power of two
 * of pieces that fits; if none fits, the largest. */
enum zd_status plan_try_pieces(struct plan_fit *fit);
/* choice.c: resolves "auto" of checkpointing and order: the first mode of
 * checkpointing that fits; depth first, or if both orders have the same bits,
 * the faster one that fits; if neither fits, the one that lacks less. Bits are
 * the same on one rank and at stages 0 and 1, except with a trained tied table
 * or sums on the host. `in_pieces`: if no mode fits without, as
 * plan_try_pieces. */
enum zd_status plan_try_orders(struct plan_fit *fit, bool in_pieces);
/* Reports ZD_ERR_UNFIT with what is short, the largest spans, and the cheapest
 * changes that would fit. Overwrites the plan. */
enum zd_status plan_refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_limits *limits);
/* Collective: the minimum over ranks of what is free now on the machine and the
 * GPU. */
enum zd_status plan_ask_free(
        struct comm *comm, int local_size, struct plan_free *out);
/* limits.c: a rank's share of this machine's memory, or its free memory if
 * known. */
uint64_t plan_machine_memory(const struct job_plan *plan);
/* Before a run takes its memory: checks that this machine has it, whatever the
 * job's limits. Else as plan_refuse. */
enum zd_status plan_check_machine(
        const struct train_job *job, struct job_plan *plan);
/* Plans the copy for background saves, from memory that nothing else needs;
 * without room for it, training waits during saves. */
enum zd_status plan_snapshot(
        const struct train_job *job, struct job_plan *plan);
/* slices.c: ZD_ERR_CONFIG if tensor parallelism would split what must stay
 * together; names sizes that do not. */
enum zd_status plan_check_slices(
        const struct train_job *job, const struct job_plan *plan);
/* Sets what plan->shape.cp exchanges; "auto" chooses the one that sends less.
 * ZD_ERR_CONFIG if heads do not divide. */
enum zd_status plan_choose_heads(
        const struct train_job *job, struct job_plan *plan);
/* fp8.c: ZD_ERR_CONFIG if this GPU or the model's base does not support
 * train.fp8. */
enum zd_status plan_check_fp8(
        const struct train_job *job, const struct job_plan *plan);
/* {"mode", "bf16": modules of a layer that stay in bf16}; NULL: no FP8. New
 * reference. */
json_t *plan_fp8_json(const struct job_plan *plan);
/* Batches that the loader has room for. */
int job_plan_batches(const struct train_job *job, int accumulation);
