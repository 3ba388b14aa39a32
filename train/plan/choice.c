/* choice.c - resolves "auto", in order of preference. */
#include "train/plan/fit.h"

#include "train/plan/machine.h"
#include "train/plan/predict.h"
#include "zero/snapshot.h"

#include <assert.h>
#include <math.h>

static enum zd_status try_it(struct plan_fit *fit)
{
    ZD_TRY(job_plan_try(fit->job, &fit->choice, fit->plan));
    fit->fits = plan_fits(fit->plan, &fit->limits);
    return ZD_OK;
}

/* Tries where to add up gradients of several micro-batches: offload.accumulate,
 * or with "auto" on the device if that fits, else on the host. */
static enum zd_status try_accumulations(struct plan_fit *fit)
{
    const struct offload_options *offload = &fit->job->offload;
    struct job_choice *choice = &fit->choice;
    bool several = offload->optimizer != OFFLOAD_NONE && choice->A > 1 &&
                   !choice->by_layer;
    bool can_both = fit->plan->world == 1 || fit->job->zero.stage > 0;
    choice->accumulate_on_host =
            several && offload->accumulate == OFFLOAD_ACCUMULATE_HOST;
    ZD_TRY(try_it(fit));
    if (fit->fits || !several || !can_both ||
        offload->accumulate != OFFLOAD_ACCUMULATE_AUTO)
        return ZD_OK;
    choice->accumulate_on_host = true;
    return try_it(fit);
}

/* Paged states that exceed the device's limit move to the host. */
static bool can_spill(const struct plan_fit *fit)
{
    return fit->job->optim.paged &&
           fit->job->offload.optimizer == OFFLOAD_NONE &&
           fit->limits.device < fit->limits.total;
}

static enum zd_status try_to_spill(struct plan_fit *fit, size_t bytes)
{
    fit->choice.spill_bytes = bytes;
    return try_it(fit);
}

/* Moves only as much of the states to the host as the device needs; if even all
 * are not enough, that plan remains. */
static enum zd_status try_spills(struct plan_fit *fit)
{
    ZD_TRY(try_to_spill(fit, SIZE_MAX));
    const struct arena_span *all =
            arena_plan_find(&fit->plan->arena, "zero.paged");
    uint64_t limit = fit->limits.device;
    size_t few = 0, enough = all ? all->bytes : 0;
    fit->fits = false;
    if (!all || plan_device_bytes(fit->plan) > limit)
        return ZD_OK;
    while (enough - few > 1) {
        size_t middle = few + (enough - few) / 2;
        ZD_TRY(try_to_spill(fit, middle));
        *(plan_device_bytes(fit->plan) <= limit ? &enough : &few) = middle;
    }
    return try_to_spill(fit, enough);
}

enum zd_status plan_try_choice(struct plan_fit *fit)
{
    fit->choice.spill_bytes = 0;
    ZD_TRY(try_accumulations(fit));
    uint64_t device = plan_device_bytes(fit->plan), most = fit->limits.device;
    if (fit->fits || !can_spill(fit) ||
        (fit->choice.only_fits && device > most &&
         device - most + plan_host_bytes(fit->plan) > fit->limits.host))
        return ZD_OK;
    return try_spills(fit);
}

/* --- old values ----------------------------------------------------------- */

enum zd_status plan_undo(struct plan_fit *fit)
{
    const struct offload_options *offload = &fit->job->offload;
    if (offload->optimizer == OFFLOAD_NONE ||
        offload->clipping != OFFLOAD_CLIP_UNDO ||
        offload->undo_memory != OFFLOAD_UNDO_AUTO)
        return ZD_OK;
    fit->choice.undo_bytes = plan_free_bytes(fit->plan, &fit->limits);
    ZD_TRY(try_it(fit));
    assert(fit->fits); /* arenas align to whole records */
    return ZD_OK;
}

/* --- who updates ---------------------------------------------------------- */

static const double worth_it = 0.97; /* smaller gains are within the error of
                                        predictions */

/* The share with the fastest step on this machine. Only for GPUs: on a CPU the
 * device is the same cores. */
static double best_share(struct job_plan *plan)
{
    enum { PARTS = 16 };
    struct plan_calibration here;
    double *share = &plan->zero.request.offload.device_update, best = 0, least;
    char why[400];
    const struct plan_machine *machine =
            calibration_find(DEVICE_CUDA, &here, why);
    if (!machine)
        return 0;
    least = plan_predict(plan, machine).step_seconds * worth_it;
    for (int i = 1; i <= PARTS; i++) {
        *share = (double)i / PARTS;
        double seconds = plan_predict(plan, machine).step_seconds;
        if (seconds < least) {
            least = seconds;
            best = *share;
        }
    }
    *share = 0;
    return best;
}

enum zd_status plan_divide(struct plan_fit *fit, struct comm *comm)
{
    const struct job_choice before = fit->choice;
    double share;
    if (fit->job->offload.optimizer != OFFLOAD_CPU ||
        fit->job->offload.device_update >= 0 ||
        fit->plan->backend != DEVICE_CUDA ||
        fit->job->optim.name == OPTIM_ADAM_MINI)
        return ZD_OK;
    share = best_share(fit->plan);
    if (comm)
        ZD_TRY(comm_broadcast(comm, &share, sizeof share, 0));
    if (!(share > 0))
        return ZD_OK;
    fit->choice.device_update = share;
    ZD_TRY(try_it(fit));
    if (fit->fits)
        return ZD_OK;
    fit->choice = before; /* its buffers do not fit */
    return try_it(fit);
}

/* --- pieces of the MLP ---------------------------------------------------- */

/* The maximum: shorter pieces save little and make a GPU's matmuls inefficient.
 */
static int most_pieces(const struct plan_fit *fit)
{
    enum { LEAST_TOKENS = 512 };
    int64_t tokens = (int64_t)fit->choice.B * fit->job->data.cutoff_len;
    int pieces = 1;
    while (!fit->job->train.tiled_mlp && 2 * pieces * LEAST_TOKENS <= tokens)
        pieces *= 2;
    return pieces;
}

enum zd_status plan_try_pieces(struct plan_fit *fit)
{
    bool is_host = plan_device_bytes(fit->plan) <= fit->limits.device &&
                   fit->limits.total == UINT64_MAX;
    int most = most_pieces(fit);
    fit->fits = false;
    if (is_host || most == 1) /* pieces would not help */
        return ZD_OK;
    fit->choice.mlp_pieces = most;
    ZD_TRY(plan_try_choice(fit));
    if (!fit->fits || most == 2)
        return ZD_OK;
    fit->fits = false;
    for (int pieces = 2; pieces <= most && !fit->fits; pieces *= 2) {
        fit->choice.mlp_pieces = pieces;
        ZD_TRY(plan_try_choice(fit));
    }
    return ZD_OK;
}

static enum zd_status try_whole_then_pieces(struct plan_fit *fit)
{
    fit->choice.mlp_pieces = 0;
    ZD_TRY(plan_try_choice(fit));
    return fit->fits ? ZD_OK : plan_try_pieces(fit);
}

/* --- checkpointing -------------------------------------------------------- */

/* Chooses the first mode of checkpointing that fits. "auto" prefers no
 * recomputation; of the two modes that recompute every layer once, the one with
 * smaller activations. Offloaded activations need a mode that recomputes.
 * Spills states only if recomputation is not enough. `in_pieces`: if no mode
 * fits without, as plan_try_pieces. */
static enum zd_status try_modes(struct plan_fit *fit, bool in_pieces)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_SQRT,
            CHECKPOINTING_FULL};
    struct checkpointing *mode = &fit->choice.checkpointing;
    *mode = fit->job->train.gradient_checkpointing;
    fit->choice.spill_bytes = 0;
    if (mode->mode != CHECKPOINTING_AUTO)
        return (in_pieces ? try_whole_then_pieces : plan_try_choice)(fit);
    int first = fit->job->offload.activations != OFFLOAD_NONE ? 2 : 0;
    bool can = !in_pieces && can_spill(fit);
    for (int spills = 0; spills <= can; spills++)
        for (int i = first ? first : spills; i < 4; i++) {
            *mode = (struct checkpointing){.mode = modes[i]};
            ZD_TRY((in_pieces ? try_whole_then_pieces
                    : spills  ? try_spills
                              : try_accumulations)(fit));
            if (fit->fits)
                return ZD_OK;
        }
    return ZD_OK;
}

/* --- the order of micro-batches ------------------------------------------- */

/* The order may be chosen if both have the same bits and one of them moves
 * less. At stages 2 and 3 several ranks reduce each micro-batch depth first,
 * which has other bits, so the order must not depend on memory. */
static bool order_is_open(const struct plan_fit *fit)
{
    const struct train_job *job = fit->job;
    const struct job_plan *plan = fit->plan;
    bool adds_to_head = plan->config.tied && plan->table.params[0].trainable;
    bool moves = plan->world > 1 || job->offload.optimizer != OFFLOAD_NONE;
    return job->train.accumulation_order == ORDER_AUTO && fit->choice.A > 1 &&
           moves && !adds_to_head &&
           (plan->world == 1 || job->zero.stage < 2) &&
           job->offload.accumulate != OFFLOAD_ACCUMULATE_HOST;
}

/* Uses a fixed machine, so that all ranks choose alike. */
static double seconds_of(const struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    return plan_predict(plan, plan_machine_find(on_gpu ? "h100" : "cpu"))
            .step_seconds;
}

static struct plan_needs needs_of(const struct job_plan *plan)
{
    return (struct plan_needs){plan_device_bytes(plan), plan_host_bytes(plan)};
}

/* Bytes beyond the limits. */
static uint64_t lacks(const struct plan_limits *limits, struct plan_needs needs)
{
    return plan_left(needs.device, limits->device) +
           plan_left(needs.host, limits->host) +
           plan_left(needs.device + needs.host, limits->total);
}

enum zd_status plan_try_orders(struct plan_fit *fit, bool in_pieces)
{
    fit->choice.by_layer =
            fit->job->train.accumulation_order == ORDER_BREADTH_FIRST;
    ZD_TRY(try_modes(fit, in_pieces));
    if (!order_is_open(fit))
        return ZD_OK;
    const struct job_choice first = fit->choice;
    const struct plan_needs depth = needs_of(fit->plan);
    double seconds = fit->fits ? seconds_of(fit->plan) * worth_it : INFINITY;
    fit->choice.by_layer = true;
    ZD_TRY(try_modes(fit, in_pieces));
    const struct plan_needs breadth = needs_of(fit->plan);
    fit->plan->other_order = depth;
    /* with --force, ranks might come to different orders by what they lack */
    bool lacks_less = !fit->job->run.force &&
                      lacks(&fit->limits, breadth) < lacks(&fit->limits, depth);
    if (fit->fits ? seconds_of(fit->plan) < seconds : lacks_less)
        return ZD_OK;
    fit->plan->other_order = breadth;
    fit->choice = first;
    return try_it(fit);
}

/* --- the copy that checkpoints are written from --------------------------- */

enum zd_status plan_snapshot(const struct train_job *job, struct job_plan *plan)
{
    const struct checkpoint_options *save = &job->checkpoint;
    plan->snapshot_bytes = 0;
    plan->no_snapshot = NULL;
    if (!save->async_save || save->save_strategy == SAVE_NO)
        return ZD_OK;
    if (job->offload.optimizer == OFFLOAD_NVME) {
        plan->no_snapshot = "states are on disk (offload.optimizer)";
        return ZD_OK;
    }
    struct zero_snapshot_needs needs;
    zero_snapshot_measure(&plan->zero, !save->save_only_model, &needs);
    uint64_t bytes = needs.copied + needs.on_write;
    uint64_t room = plan_free_bytes(plan, &plan->limits);
    uint64_t most = save->snapshot_bytes ? save->snapshot_bytes : room;
    bytes = bytes < most ? bytes : most;
    bytes = bytes < room ? bytes : room;
    if (save->snapshot_bytes && needs.copied > most)
        plan->no_snapshot = "checkpoint.snapshot_memory is too small";
    else if (bytes < needs.copied || bytes == 0)
        plan->no_snapshot = "not enough memory is free";
    if (plan->no_snapshot)
        return ZD_OK;
    plan->snapshot_bytes = bytes;
    return arena_plan_add(
            &plan->arena, "checkpoint.snapshot", ARENA_HOST, SPAN_BUFFERS,
            bytes);
}
