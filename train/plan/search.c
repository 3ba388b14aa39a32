/* search.c - every candidate is planned; what fits is ordered by time.
 *
 * The batch is not tried size by size. With several micro-batches a step the
 * memory grows with the micro-batch, so the largest that fits is found by
 * halves; a step of one micro-batch keeps its gradients in another type and is
 * tried first by itself. tests/train/plan/test_search.c holds this against a
 * search of everything. */
#include "train/plan/search_parts.h"

#include <stdlib.h>
#include <string.h>

static void list_sizes(struct plan_searching *state)
{
    enum { MOST = sizeof state->sizes / sizeof state->sizes[0] };
    int samples = state->samples;
    for (int B = samples; B > 0 && state->many < MOST; B--)
        if (samples % B == 0)
            state->sizes[state->many++] = B;
    for (int i = 0; i < state->many / 2; i++) {
        int last = state->many - 1 - i, B = state->sizes[i];
        state->sizes[i] = state->sizes[last];
        state->sizes[last] = B;
    }
}

/* The plan of another model: with adapters, or without again. False: they have
 * nothing to go on. */
static bool begin_model(
        struct plan_searching *state, const struct train_job *job, int adapters)
{
    const struct plan_search *search = state->search;
    if (adapters == state->adapters)
        return true;
    job_plan_fini(&state->plan);
    state->adapters = adapters;
    if (plan_begin(
                job, search->world, search->local_size, NULL, &state->plan) !=
        ZD_OK) {
        zd_error_clear();
        state->adapters = -1;
        return false;
    }
    state->plan.limits = state->limits;
    return true;
}

enum zd_status plan_search_begin(
        const struct plan_search *search, struct plan_searching *out)
{
    *out = (struct plan_searching){
            .search = search, .machine = search->machine};
    ZD_TRY(plan_begin(
            search->job, search->world, search->local_size, NULL, &out->plan));
    out->limits = plan_limits_of(search->job, search->local_size, &out->plan);
    out->plan.limits = out->limits;
    out->given = out->plan.per_device;
    out->samples = out->given * out->plan.accumulation;
    if (!out->machine)
        out->machine = plan_machine_default(out->plan.backend);
    list_sizes(out);
    return ZD_OK;
}

void plan_search_end(struct plan_searching *state)
{
    job_plan_fini(&state->plan);
    free(state->found);
}

/* --- one candidate -------------------------------------------------------- */

/* False also where there is no such plan: a window of slots that is too small,
 * an offload that the stage does not have. */
static bool fits_with(
        struct plan_searching *state, const struct train_job *job,
        struct job_choice *choice, int B)
{
    uint64_t disk = state->search->disk;
    bool fits = false;
    choice->B = B;
    choice->A = state->samples / B;
    choice->accumulate_on_host = false;
    if (plan_try_choice(job, choice, &state->limits, &state->plan, &fits) !=
        ZD_OK) {
        zd_error_clear();
        return false;
    }
    return fits && (!disk || state->plan.arena.bytes[ARENA_DISK] <= disk);
}

/* The largest size that fits; 0: none. The plan is of it then. */
static int largest_size(
        struct plan_searching *state, const struct train_job *job,
        struct job_choice *choice)
{
    int top = state->many - 1, fitting = 0;
    if (state->keeps_batch)
        return fits_with(state, job, choice, choice->B) ? choice->B : 0;
    if (fits_with(state, job, choice, state->sizes[top]))
        return state->sizes[top];
    int low = 0, high = top - 1, last = 0;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        last = state->sizes[middle];
        if (fits_with(state, job, choice, last)) {
            fitting = last;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    if (fitting && fitting != last)
        fits_with(state, job, choice, fitting);
    return fitting;
}

struct plan_found plan_found_of(
        const struct job_plan *plan, const struct plan_candidate *candidate,
        const struct job_choice *choice)
{
    return (struct plan_found){
            .candidate = *candidate,
            .choice = *choice,
            .device = plan_device_bytes(plan),
            .host = plan_host_bytes(plan),
            .pinned = plan->arena.bytes[ARENA_PINNED],
            .disk = plan->arena.bytes[ARENA_DISK],
            .snapshot = plan->snapshot_bytes,
            .cost = candidate_cost(candidate)};
}

static enum zd_status keep(
        struct plan_searching *state, const struct train_job *job,
        const struct plan_candidate *candidate, const struct job_choice *choice)
{
    struct job_plan *plan = &state->plan;
    if (state->count == state->room) {
        int room = state->room ? 2 * state->room : 64;
        struct plan_found *more =
                realloc(state->found, (size_t)room * sizeof *more);
        if (!more)
            return ZD_FAIL(
                    ZD_ERR_MEMORY, "E0602", "out of memory looking for fits");
        state->found = more;
        state->room = room;
    }
    plan->limits = state->limits;
    ZD_TRY(plan_snapshot(job, state->search->local_size, plan));
    struct plan_found found = plan_found_of(plan, candidate, choice);
    plan->snapshot_bytes = 0;
    ZD_TRY(plan_predict(plan, state->machine, &found.predicted));
    state->found[state->count++] = found;
    return ZD_OK;
}

/* Bytes of the device that a candidate takes at least, whatever its batch:
 * parameters, gradients and masters. Most candidates of a large model need not
 * be planned for it. */
static double least_device(
        const struct plan_searching *state, const struct train_job *job)
{
    const struct param_table *table = &state->plan.table;
    double width = (double)dtype_bytes(job->train.dtype);
    double all = (double)table->total, trained = (double)table->trainable;
    double world = state->search->world;
    int stage = job->zero.stage;
    bool on_host = job->offload.optimizer != OFFLOAD_NONE;
    bool has_master = job->optim.master == OPTIM_MASTER_FP32 &&
                      job->train.dtype != DTYPE_FP32;
    double bytes = 0;
    if (job->lora.quantize_base != LORA_BASE_NONE)
        return 0; /* what of it is in codes the plan says */
    if (job->offload.params == OFFLOAD_NONE)
        bytes += all * width / (stage == 3 ? world : 1);
    if (on_host)
        return bytes;
    bytes += trained * width / (stage >= 2 ? world : 1);
    if (has_master)
        bytes += trained * sizeof(float) / (stage >= 1 ? world : 1);
    return bytes;
}

/* The candidate with the largest micro-batch; *fits_out: it was kept. */
static enum zd_status try_candidate(
        struct plan_searching *state, struct plan_candidate candidate,
        bool *fits_out)
{
    const struct train_job *job = state->search->job;
    const struct train_job changed = candidate_job(job, &candidate);
    struct job_choice choice = {
            .checkpointing = job->train.gradient_checkpointing,
            .B = state->given,
            .moves_most = PLAN_MOVES_MOST};
    if (candidate.option[CHOOSE_MODE])
        choice.checkpointing = candidate_mode(&candidate);
    int B = 0;
    *fits_out = false;
    if (!begin_model(state, &changed, candidate.option[CHOOSE_ADAPTERS]))
        return ZD_OK;
    if (state->try_other)
        return state->try_other(state, &changed, &candidate, &choice);
    if (least_device(state, &changed) <= (double)state->limits.device)
        B = largest_size(state, &changed, &choice);
    /* nothing is paged: it is the candidate without */
    if (candidate.option[CHOOSE_PLACE] == PLACE_PAGED && B &&
        !job_plan_paged(&state->plan).host)
        B = 0;
    *fits_out = B > 0;
    if (!B)
        return ZD_OK;
    candidate.option[CHOOSE_BATCH] = B != state->given;
    return keep(state, &changed, &candidate, &choice);
}

/* Of a job that leaves the mode to zerod every mode is a candidate, and what
 * it leaves open none. */
static bool is_open(
        const struct train_job *job, const struct plan_candidate *candidate)
{
    return job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO &&
           !candidate->option[CHOOSE_MODE];
}

static struct plan_space space_of(const struct plan_searching *state)
{
    struct plan_space space =
            plan_space_fit(state->search->job, state->search->allow);
    space.options[CHOOSE_BATCH] = 0; /* the largest of each */
    for (int d = 0; state->keeps_job && d < CHOICES; d++)
        if (d != CHOOSE_MODE ||
            state->search->job->train.gradient_checkpointing.mode !=
                    CHECKPOINTING_AUTO)
            space.options[d] = 0;
    return space;
}

enum zd_status plan_search_all(struct plan_searching *state, bool first_only)
{
    const struct plan_space space = space_of(state);
    struct plan_candidate candidate = {{0}};
    do {
        bool fits;
        if (is_open(state->search->job, &candidate) ||
            !candidate_is_sound(
                    state->search->job, state->search->world, &candidate))
            continue;
        ZD_TRY(try_candidate(state, candidate, &fits));
        if (fits && first_only)
            break;
    } while (candidate_next(&space, &candidate));
    return ZD_OK;
}

int plan_found_settings(
        const struct plan_search *search, const struct plan_found *found,
        struct plan_setting out[PLAN_SETTINGS_MAX])
{
    return candidate_settings(
            search->job, &found->candidate, &found->choice, out);
}
