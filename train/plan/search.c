/* search.c - the loop over candidates.
 *
 * The batch is not tried size by size. With several micro-batches a step the
 * memory grows with the micro-batch, so the largest that fits is found by
 * halves; a step of one micro-batch keeps its gradients in another type and is
 * tried first by itself. tests/train/plan/test_search.c compares this with a
 * search of everything. */
#include "train/plan/search_parts.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

/* The plan of another model: with adapters, or without again. False: they have
 * nothing to go on. */
static bool begin_model(
        struct plan_searching *state, const struct train_job *job, int adapters)
{
    const struct plan_search *search = state->search;
    if (adapters == state->adapters)
        return true;
    job_plan_fini(state->plan);
    state->adapters = adapters;
    if (plan_begin(job, search->world, search->local_size, NULL, state->plan) !=
        ZD_OK) {
        zd_error_clear();
        state->adapters = -1;
        return false;
    }
    state->plan->limits = state->limits;
    return true;
}

enum zd_status plan_search_begin(
        const struct plan_search *search, struct job_plan *plan,
        struct plan_searching *out)
{
    *out = (struct plan_searching){.search = search};
    out->plan = plan ? plan : &out->own;
    if (!plan) {
        ZD_TRY(plan_begin(
                search->job, search->world, search->local_size, NULL,
                out->plan));
        out->plan->limits = plan_limits_of(search->job, out->plan);
    }
    out->limits = out->plan->limits;
    out->given = out->plan->per_device;
    out->samples = out->given * out->plan->accumulation;
    out->machine = search->machine ? search->machine
                                   : plan_machine_default(out->plan->backend);
    return ZD_OK;
}

void plan_search_end(struct plan_searching *state)
{
    if (state->plan == &state->own)
        job_plan_fini(&state->own);
    free(state->found);
}

/* --- micro-batches -------------------------------------------------------- */

/* Ascending; those that divide a step. */
static int list_sizes(
        const struct plan_searching *state, const struct plan_query *query,
        const struct plan_candidate *candidate, int out[PLAN_SIZES_MAX])
{
    enum { ACCUMULATION_MAX = 4096 }; /* no one waits for more */
    bool is_other = candidate->option[CHOOSE_BATCH];
    int samples = state->samples, many = 0;
    if (query->keeps_batch && !is_other) {
        out[0] = state->given;
        return 1;
    }
    for (int A = samples; A > 0; A--)
        if (samples % A == 0 && many < PLAN_SIZES_MAX &&
            !(is_other &&
              (samples / A == state->given || A > ACCUMULATION_MAX)))
            out[many++] = samples / A;
    return many;
}

/* False also where there is no such plan: a window of slots that is too small,
 * an offload that the stage does not have. Of the job itself that is an error.
 */
static bool fits_with(
        struct plan_searching *state, const struct train_job *job,
        struct job_choice *choice, int B)
{
    uint64_t disk = state->search->disk;
    bool fits = false;
    choice->B = B;
    choice->A = state->samples / B;
    choice->accumulate_on_host = false;
    enum zd_status status =
            plan_try_choice(job, choice, &state->limits, state->plan, &fits);
    if (status != ZD_OK && state->is_job)
        state->failed = status;
    else if (status != ZD_OK)
        zd_error_clear();
    return status == ZD_OK && fits &&
           (!disk || state->plan->arena.bytes[ARENA_DISK] <= disk);
}

/* The largest size that fits; 0: none. The plan is of it then. */
static int largest_size(
        struct plan_searching *state, const struct train_job *job,
        struct job_choice *choice, const int *sizes, int many)
{
    int low = 0, high = many - 2, fitting = 0, last = 0;
    if (many && fits_with(state, job, choice, sizes[many - 1]))
        return sizes[many - 1];
    while (low <= high) {
        int middle = low + (high - low) / 2;
        last = sizes[middle];
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

/* --- a candidate ---------------------------------------------------------- */

struct plan_found plan_found_of(
        const struct plan_searching *state,
        const struct plan_candidate *candidate, const struct job_choice *choice)
{
    const struct job_plan *plan = state->plan;
    struct plan_found found = {
            .candidate = *candidate,
            .choice = *choice,
            .world = plan->world,
            .device = plan_device_bytes(plan),
            .host = plan_host_bytes(plan),
            .pinned = plan->arena.bytes[ARENA_PINNED],
            .disk = plan->arena.bytes[ARENA_DISK],
            .snapshot = plan->snapshot_bytes};
    found.candidate.option[CHOOSE_BATCH] = choice->B != state->given;
    found.cost = candidate_cost(&found.candidate);
    found.setting_count = candidate_settings(
            state->search->job, &found.candidate, choice, found.settings);
    return found;
}

static enum zd_status keep(
        struct plan_searching *state, const struct plan_query *query,
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice)
{
    struct job_plan *plan = state->plan;
    plan->limits = state->limits;
    if (query->score == PLAN_BY_TIME)
        ZD_TRY(plan_snapshot(job, plan));
    struct plan_found found = plan_found_of(state, candidate, choice);
    plan->snapshot_bytes = 0;
    if (query->score == PLAN_BY_TIME)
        found.predicted = plan_predict(plan, state->machine);
    state->found = zd_must(realloc(
            state->found, (size_t)(state->count + 1) * sizeof *state->found));
    state->found[state->count++] = found;
    return ZD_OK;
}

/* Bytes of the device that a candidate takes at least, whatever its batch:
 * parameters, gradients and masters. Most candidates of a large model need not
 * be planned for it. */
static double least_device(
        const struct plan_searching *state, const struct train_job *job)
{
    const struct param_table *table = &state->plan->table;
    double width = (double)dtype_bytes(job->train.dtype);
    double trained = (double)table->trainable, world = state->search->world;
    int stage = job->zero.stage;
    bool has_master = job->optim.master == OPTIM_MASTER_FP32 &&
                      job->train.dtype != DTYPE_FP32;
    double bytes = 0;
    if (job->lora.quantize_base != LORA_BASE_NONE)
        return 0; /* the plan says which of it is quantized */
    if (job->offload.params == OFFLOAD_NONE)
        bytes += (double)table->total * width / (stage == 3 ? world : 1);
    if (job->offload.optimizer != OFFLOAD_NONE)
        return bytes;
    bytes += trained * width / (stage >= 2 ? world : 1);
    if (has_master)
        bytes += trained * sizeof(float) / (stage >= 1 ? world : 1);
    return bytes;
}

static enum zd_status try_candidate(
        struct plan_searching *state, const struct plan_query *query,
        const struct plan_candidate *candidate)
{
    const struct train_job job = candidate_job(state->search->job, candidate);
    struct job_choice choice = {
            .checkpointing = job.train.gradient_checkpointing,
            .moves_most = PLAN_MOVES_MOST};
    int sizes[PLAN_SIZES_MAX];
    if (!begin_model(state, &job, candidate->option[CHOOSE_ADAPTERS]))
        return ZD_OK;
    if (query->try) {
        query->try(state, query, &job, candidate, &choice);
        return ZD_OK;
    }
    int many = list_sizes(state, query, candidate, sizes);
    state->is_job = query->is_job;
    if (least_device(state, &job) > (double)state->limits.device ||
        !largest_size(state, &job, &choice, sizes, many))
        return state->failed;
    /* nothing is paged: it is the candidate without */
    if (candidate->option[CHOOSE_PLACE] == PLACE_PAGED &&
        !job_plan_paged(state->plan).host)
        return ZD_OK;
    return keep(state, query, &job, candidate, &choice);
}

/* --- the loop ------------------------------------------------------------- */

static bool is_tried(
        const struct plan_searching *state, const struct plan_query *query,
        const struct plan_candidate *candidate, int cost)
{
    const struct train_job *job = state->search->job;
    int changes = 0;
    for (int d = 0; d < CHOICES; d++)
        changes += candidate->option[d] != 0;
    if (query->changes_most && changes > query->changes_most)
        return false;
    /* a job that leaves the mode open is none of its candidates */
    if (job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO &&
        !candidate->option[CHOOSE_MODE])
        return false;
    if (query->score == PLAN_BY_COST && candidate_cost(candidate) != cost)
        return false;
    for (int i = 0; query->score == PLAN_BY_COST && i < state->count; i++)
        if (candidate_holds(candidate, &state->found[i].candidate))
            return false;
    return candidate_is_sound(job, state->search->world, candidate);
}

enum zd_status plan_search_run(
        struct plan_searching *state, const struct plan_query *query)
{
    enum { COST_MAX = 5 };
    int costs = query->score == PLAN_BY_COST ? COST_MAX : 1;
    for (int cost = 1; cost <= costs; cost++) {
        struct plan_candidate candidate = {{0}};
        do {
            if (is_tried(state, query, &candidate, cost))
                ZD_TRY(try_candidate(state, query, &candidate));
            if (query->most && state->count == query->most)
                return ZD_OK;
        } while (candidate_next(&query->space, &candidate));
    }
    return ZD_OK;
}

/* --- queries -------------------------------------------------------------- */

int plan_found_order(const void *a, const void *b)
{
    const struct plan_found *x = a, *y = b;
    double tx = x->predicted.step_seconds, ty = y->predicted.step_seconds;
    if (tx != ty)
        return tx < ty ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return memcmp(&x->candidate, &y->candidate, sizeof x->candidate);
}

struct plan_query plan_query_fit(const struct plan_search *search)
{
    struct plan_query query = {
            .space = plan_space_fit(search->job, search->allow)};
    query.space.options[CHOOSE_BATCH] = 0;
    return query;
}

struct plan_query plan_query_job(const struct plan_search *search)
{
    return (struct plan_query){
            .space = plan_space_job(search->job),
            .keeps_batch = true,
            .is_job = true};
}
