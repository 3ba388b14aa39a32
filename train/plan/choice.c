/* choice.c - what "auto" leaves open, in the order of its preference. */
#include "base/log.h"
#include "base/units.h"
#include "train/plan/calibration.h"
#include "train/plan/fit.h"
#include "train/plan/predict.h"

#include <math.h>

#include <assert.h>

/* Where gradients of several micro-batches are added up: offload.accumulate, or
 * with "auto" on the device if that fits, else on the host. */
static enum zd_status try_accumulations(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    enum offload_accumulate asked = job->offload.accumulate;
    bool several = job->offload.optimizer != OFFLOAD_NONE && choice->A > 1 &&
                   !choice->by_layer;
    bool can_both = plan->world == 1 || job->zero.stage > 0;
    choice->accumulate_on_host = several && asked == OFFLOAD_ACCUMULATE_HOST;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = plan_fits(plan, limits);
    if (*fits_out || !several || !can_both || asked != OFFLOAD_ACCUMULATE_AUTO)
        return ZD_OK;
    choice->accumulate_on_host = true;
    ZD_TRY(job_plan_try(job, choice, plan));
    *fits_out = plan_fits(plan, limits);
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
        *(plan_device_bytes(plan) <= limits->device ? &enough : &few) = middle;
    }
    ZD_TRY(try_to_spill(job, choice, enough, plan));
    *fits_out = plan_fits(plan, limits);
    return ZD_OK;
}

enum zd_status plan_try_choice(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    choice->spill_bytes = 0;
    ZD_TRY(try_accumulations(job, choice, limits, plan, fits_out));
    uint64_t device = plan_device_bytes(plan), host = plan_host_bytes(plan);
    if (*fits_out || !can_spill(job, limits) ||
        (choice->only_fits && device > limits->device &&
         device - limits->device + host > limits->host))
        return ZD_OK;
    return try_spills(job, choice, limits, plan, fits_out);
}

/* --- old values ----------------------------------------------------------- */

enum zd_status plan_undo(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan)
{
    if (job->offload.optimizer == OFFLOAD_NONE ||
        job->offload.clipping != OFFLOAD_CLIP_UNDO ||
        job->offload.undo_memory != OFFLOAD_UNDO_AUTO)
        return ZD_OK;
    choice->undo_bytes = plan_free_bytes(plan, limits);
    ZD_TRY(job_plan_try(job, choice, plan));
    assert(plan_fits(plan, limits)); /* whole records, as arenas align them */
    return ZD_OK;
}

/* --- who updates ---------------------------------------------------------- */

static const double worth_it = 0.97; /* a prediction errs by more */

/* The share with which a step is fastest on this machine. On a CPU the device
 * would be the same cores. */
static double best_share(struct job_plan *plan)
{
    enum { PARTS = 16 };
    struct plan_calibration here;
    double *share = &plan->zero.request.offload.device_update, best = 0, least;
    char why[400];
    if (!calibration_find(DEVICE_CUDA, &here, why))
        return 0;
    const struct plan_machine *machine = calibration_use(&here);
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

enum zd_status plan_divide(
        const struct train_job *job, struct job_choice *choice,
        struct comm *comm, const struct plan_limits *limits,
        struct job_plan *plan)
{
    struct job_choice with = *choice;
    if (job->offload.optimizer != OFFLOAD_CPU ||
        job->offload.device_update >= 0 || plan->backend != DEVICE_CUDA ||
        job->optim.name == OPTIM_ADAM_MINI)
        return ZD_OK;
    with.device_update = best_share(plan);
    if (comm)
        ZD_TRY(comm_broadcast(
                comm, &with.device_update, sizeof with.device_update, 0));
    if (!(with.device_update > 0))
        return ZD_OK;
    ZD_TRY(job_plan_try(job, &with, plan));
    if (!plan_fits(plan, limits)) /* there is no room for its buffers */
        return job_plan_try(job, choice, plan);
    *choice = with;
    return ZD_OK;
}

void plan_warn_of_undo(const struct job_plan *plan)
{
    const struct zero_plan *zero = &plan->zero;
    const struct offload_options *offload = &zero->request.offload;
    if (!zero->states_on_host || offload->clipping != OFFLOAD_CLIP_UNDO ||
        zero->undo_segments || !offload->undo_memory)
        return;
    zd_log_warning(
            "offload.undo_memory of %.3f MiB has room for no layer (one needs "
            "%.3f MiB): all wait for the norm",
            units_mib(offload->undo_memory), units_mib(zero_undo_least(zero)));
}

/* --- pieces of the MLP ---------------------------------------------------- */

/* The most: shorter pieces free little, and keep a GPU's matmuls short. */
static int most_pieces(
        const struct train_job *job, const struct job_choice *choice)
{
    enum { LEAST_TOKENS = 512 };
    int64_t tokens = (int64_t)choice->B * job->data.cutoff_len;
    int pieces = 1;
    while (!job->train.tiled_mlp && 2 * pieces * LEAST_TOKENS <= tokens)
        pieces *= 2;
    return pieces;
}

enum zd_status plan_try_pieces(
        const struct train_job *job, struct job_choice *choice,
        const struct plan_limits *limits, struct job_plan *plan, bool *fits_out)
{
    bool is_host = plan_device_bytes(plan) <= limits->device &&
                   limits->total == UINT64_MAX;
    int most = most_pieces(job, choice);
    *fits_out = false;
    if (is_host || most == 1) /* what is short is not the MLP's */
        return ZD_OK;
    choice->mlp_pieces = most;
    ZD_TRY(plan_try_choice(job, choice, limits, plan, fits_out));
    if (!*fits_out || most == 2)
        return ZD_OK;
    *fits_out = false;
    for (int pieces = 2; pieces <= most && !*fits_out; pieces *= 2) {
        choice->mlp_pieces = pieces;
        ZD_TRY(plan_try_choice(job, choice, limits, plan, fits_out));
    }
    return ZD_OK;
}

/* --- checkpointing -------------------------------------------------------- */

enum zd_status plan_try_modes(
        const struct train_job *job, struct job_choice *choice, bool in_pieces,
        struct job_plan *plan, bool *fits_out)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_SQRT,
            CHECKPOINTING_FULL};
    const struct plan_limits *limits = &plan->limits;
    choice->checkpointing = job->train.gradient_checkpointing;
    choice->spill_bytes = 0;
    if (choice->checkpointing.mode != CHECKPOINTING_AUTO)
        return (in_pieces ? plan_try_pieces : plan_try_choice)(
                job, choice, limits, plan, fits_out);
    int first = job->offload.activations != OFFLOAD_NONE ? 2 : 0;
    bool can = !in_pieces && can_spill(job, limits);
    for (int spills = 0; spills <= can; spills++)
        for (int i = first ? first : spills; i < 4; i++) {
            choice->checkpointing = (struct checkpointing){.mode = modes[i]};
            ZD_TRY((in_pieces ? plan_try_pieces
                    : spills  ? try_spills
                              : try_accumulations)(
                    job, choice, limits, plan, fits_out));
            if (*fits_out)
                return ZD_OK;
        }
    return ZD_OK;
}

/* --- the order of micro-batches ------------------------------------------- */

/* Both orders have the same bits, and something is moved that one of them could
 * move less often. At stages 2 and 3 several ranks reduce each micro-batch
 * depth first; which order they take must not follow from what fits. */
static bool order_is_open(
        const struct train_job *job, const struct job_choice *choice,
        const struct job_plan *plan)
{
    bool adds_to_head = plan->config.tied && plan->table.params[0].trainable;
    bool moves = plan->world > 1 || job->offload.optimizer != OFFLOAD_NONE;
    return job->train.accumulation_order == ORDER_AUTO && choice->A > 1 &&
           moves && !adds_to_head &&
           (plan->world == 1 || job->zero.stage < 2) &&
           job->offload.accumulate != OFFLOAD_ACCUMULATE_HOST;
}

/* All ranks choose by one machine, whatever each of them runs on. */
static double seconds_of(const struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    return plan_predict(plan, plan_machine_find(on_gpu ? "h100" : "cpu"))
            .step_seconds;
}

enum zd_status plan_try_orders(
        const struct train_job *job, struct job_choice *choice, bool in_pieces,
        struct job_plan *plan, bool *fits_out)
{
    choice->by_layer = job->train.accumulation_order == ORDER_BREADTH_FIRST;
    ZD_TRY(plan_try_modes(job, choice, in_pieces, plan, fits_out));
    if (!order_is_open(job, choice, plan) || choice->accumulate_on_host)
        return ZD_OK;
    const struct job_choice first = *choice;
    double seconds = *fits_out ? seconds_of(plan) * worth_it : INFINITY;
    bool fits;
    choice->by_layer = true;
    ZD_TRY(plan_try_modes(job, choice, in_pieces, plan, &fits));
    if (fits && seconds_of(plan) < seconds) {
        *fits_out = true;
        return ZD_OK;
    }
    *choice = first;
    return job_plan_try(job, choice, plan);
}
