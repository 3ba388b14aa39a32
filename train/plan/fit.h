/* fit.h - chooses what "auto" leaves open so that the job fits, or reports why
 * it does not fit and what would. Internal to train. */
#pragma once

#include "base/units.h"
#include "train/plan/plan.h"

/* plan.c: all of job_plan_build before anything is fitted: model, world,
 * transport, batch. job_plan_fini even when nothing is tried. */
enum zd_status plan_begin(
        const struct train_job *job, int world, int local_size,
        const struct comm *comm, struct job_plan *plan);

/* Parts of it, of plan->config: the tables of the whole model, with [lora] of
 * the adapted one, and those of the slice of a place. */
enum zd_status plan_tables(const struct train_job *job, struct job_plan *plan);
enum zd_status plan_slice(
        const struct train_job *job, struct tp tp, struct job_plan *plan);

/* One choice of the open settings. */
struct job_choice {
    struct checkpointing checkpointing;
    int B, A;
    int mlp_pieces; /* 0: what the job says, of "auto" 1 */
    bool by_layer;  /* breadth first */
    bool accumulate_on_host;
    size_t spill_bytes;   /* paged states on the host */
    uint64_t undo_bytes;  /* of offload.undo_memory = "auto": what is left */
    double device_update; /* of "auto" */
    int moves_most; /* micro-batches that stage 3 lays out: memory and time
                       follow from a few; 0: all of them, to be run */
    bool only_fits; /* stop at whether it fits; plan no more */
};
enum { PLAN_MOVES_MOST = 4 }; /* the second is like all that follow but one */
/* try.c: everything for one choice; pure. Replaces what the plan held. */
enum zd_status job_plan_try(
        const struct train_job *job, const struct job_choice *choice,
        struct job_plan *plan);
/* print.c: as the job file has them ("paged_adamw_8bit"), or as a sentence
 * needs them. */
enum { PLAN_NAME_MAX = 64 };
void plan_optimizer_name(
        const struct optim_options *optim, char out[PLAN_NAME_MAX]);
void plan_checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX]);
const char *plan_order_name(bool by_layer);
extern const char *const plan_tier_names[]; /* by enum offload_tier */
/* "no master weights", also where parameters are fp32 themselves. */
const char *plan_masters_name(enum dtype dtype, enum optim_master master);
/* The limits of a rank, from this machine and the job. */
struct plan_limits plan_limits_here(const struct job_plan *plan);
struct plan_limits plan_limits_of(
        const struct train_job *job, const struct job_plan *plan);
bool plan_fits(const struct job_plan *plan, const struct plan_limits *limits);
/* How much of `bytes` is beyond `taken`. */
static inline uint64_t plan_left(uint64_t bytes, uint64_t taken)
{
    return bytes > taken ? bytes - taken : 0;
}
/* Bytes of the host that are left within the limits, and in this machine: for a
 * run, and where no limit of the host speaks of another. */
uint64_t plan_free_bytes(
        const struct job_plan *plan, const struct plan_limits *limits);
/* A job that is fitted. */
struct plan_fit {
    const struct train_job *job;
    struct plan_limits limits;
    struct job_plan *plan; /* the last that was tried */
    struct job_choice choice;
    bool fits; /* it is within the limits */
};
/* offload.undo_memory = "auto" of a plan that fits: as much of the update may
 * be undone as there is memory left for. */
enum zd_status plan_undo(struct plan_fit *fit);
/* offload.device_update = "auto", then: the share with which a step is fastest
 * by the calibration of the first rank's machine; without one 0. All ranks
 * call; NULL: there are none yet. */
enum zd_status plan_divide(struct plan_fit *fit, struct comm *comm);
/* What sets the limit of a memory (ARENA_MEMORIES: of all together): a key of
 * [device], or this machine. */
void plan_limit_name(
        const struct plan_limits *limits, enum arena_memory memory,
        char out[PLAN_NAME_MAX]);
/* Bytes of the device, with those that the driver takes, and in whole grains
 * where the thread's device has some. */
uint64_t plan_device_bytes(const struct job_plan *plan);
/* Bytes of the host's memory, pinned or not. */
uint64_t plan_host_bytes(const struct job_plan *plan);
/* The job with checkpointing and batch settled: where gradients of several
 * micro-batches are added up, and what of paged states lies on the host, as the
 * limits ask. */
enum zd_status plan_try_choice(struct plan_fit *fit);
/* If that does not fit and train.tiled_mlp is "auto": the smallest power of two
 * of pieces that fits; if none fits, the largest. */
enum zd_status plan_try_pieces(struct plan_fit *fit);
/* choice.c: what "auto" leaves open of checkpointing and order. Of the modes of
 * checkpointing the first that fits; of orders depth first, or, where the bits
 * are the same, the faster that fits; if neither fits, the one that lacks less.
 * Bits are the same on one rank and at stages 0 and 1, but of a tied table that
 * trains, and of sums on the host. `in_pieces`: as plan_try_pieces, where no
 * mode fits without. */
enum zd_status plan_try_orders(struct plan_fit *fit, bool in_pieces);
/* ZD_ERR_UNFIT with what is short, the largest spans, and the
 * cheapest changes that would fit. The plan is overwritten. */
enum zd_status plan_refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_limits *limits);
/* Collective: the minimum over ranks of what is free now on the machine and the
 * GPU. */
enum zd_status plan_ask_free(
        struct comm *comm, int local_size, struct plan_free *out);
/* limits.c: a rank's share of this machine's memory, or what is free of it
 * where that is known. */
uint64_t plan_machine_memory(const struct job_plan *plan);
/* Before a run takes its memory: checks that this machine has it, whatever the
 * job's limits. Else as plan_refuse. */
enum zd_status plan_check_machine(
        const struct train_job *job, struct job_plan *plan);
/* Plans the copy for background saves, from memory that nothing else needs;
 * without room for it, training waits during saves. */
enum zd_status plan_snapshot(
        const struct train_job *job, struct job_plan *plan);
/* slices.c: ZD_ERR_CONFIG where a slice of tensor parallelism would split what
 * must stay together, naming sizes that do not. */
enum zd_status plan_check_slices(
        const struct train_job *job, const struct job_plan *plan);
/* What plan->shape.cp exchanges, as the job says; "auto" takes what
 * sends less. ZD_ERR_CONFIG where heads do not divide. */
enum zd_status plan_choose_heads(
        const struct train_job *job, struct job_plan *plan);
/* fp8.c: ZD_ERR_CONFIG where train.fp8 cannot be computed on this GPU, or over
 * the model's base. */
enum zd_status plan_check_fp8(
        const struct train_job *job, const struct job_plan *plan);
/* {"mode", "bf16": modules of a layer that stay}; NULL: none is in FP8. New
 * reference. */
json_t *plan_fp8_json(const struct job_plan *plan);
/* Batches that the loader has room for. */
int job_plan_batches(const struct train_job *job, int accumulation);
