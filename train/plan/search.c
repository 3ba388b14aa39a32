/* search.c - every candidate is planned; what fits is ordered by time.
 *
 * The batch is not tried size by size. With several micro-batches a step the
 * memory grows with the micro-batch, so the largest that fits is found by
 * halves; a step of one micro-batch keeps its gradients in another type and is
 * tried first by itself. tests/train/plan/test_search.c holds this against a
 * search of everything. */
#include "train/plan/search.h"
#include "train/plan/models.h"

#include <stdlib.h>
#include <string.h>

struct state {
    const struct plan_search *search;
    const struct plan_machine *machine;
    struct job_plan plan; /* begun; the last that was tried */
    struct plan_limits limits;
    struct plan_found *found; /* owned */
    int count, room;
    int given, samples;  /* of a rank: in a micro-batch as the job has it, and
                            in a step */
    int sizes[64], many; /* micro-batches that divide them, ascending */
    bool keeps_batch;    /* the job's own alone */
    int adapters;        /* option that the plan was begun with; -1: there is
                            no such model */
};

static void list_sizes(struct state *state)
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
        struct state *state, const struct train_job *job, int adapters)
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

static enum zd_status begin(const struct plan_search *search, struct state *out)
{
    *out = (struct state){.search = search, .machine = search->machine};
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

static void end(struct state *state)
{
    job_plan_fini(&state->plan);
    free(state->found);
}

/* --- one candidate -------------------------------------------------------- */

/* False also where there is no such plan: a window of slots that is too small,
 * an offload that the stage does not have. */
static bool fits_with(
        struct state *state, const struct train_job *job,
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
        struct state *state, const struct train_job *job,
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

static enum zd_status keep(
        struct state *state, const struct plan_candidate *candidate,
        const struct job_choice *choice)
{
    const struct job_plan *plan = &state->plan;
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
    struct plan_found found = {
            .candidate = *candidate,
            .choice = *choice,
            .device = plan_device_bytes(plan),
            .host = plan_host_bytes(plan),
            .pinned = plan->arena.bytes[ARENA_PINNED],
            .disk = plan->arena.bytes[ARENA_DISK],
            .cost = candidate_cost(candidate)};
    ZD_TRY(plan_predict(plan, state->machine, &found.predicted));
    state->found[state->count++] = found;
    return ZD_OK;
}

/* Bytes of the device that a candidate takes at least, whatever its batch:
 * parameters, gradients and masters. Most candidates of a large model need not
 * be planned for it. */
static double least_device(
        const struct state *state, const struct train_job *job)
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
        struct state *state, struct plan_candidate candidate, bool *fits_out)
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
    return keep(state, &candidate, &choice);
}

/* Of a job that leaves the mode to zerod every mode is a candidate, and what
 * it leaves open none. */
static bool is_open(
        const struct train_job *job, const struct plan_candidate *candidate)
{
    return job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO &&
           !candidate->option[CHOOSE_MODE];
}

static struct plan_space space_of(const struct state *state)
{
    struct plan_space space =
            plan_space_fit(state->search->job, state->search->allow);
    space.options[CHOOSE_BATCH] = 0; /* the largest of each */
    return space;
}

static enum zd_status try_all(struct state *state, bool first_only)
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

/* --- nothing fits --------------------------------------------------------- */

static void human(char out[32], uint64_t bytes)
{
    double gib = (double)bytes / (1 << 30);
    snprintf(out, 32, gib < 10 ? "%.2f GiB" : "%.1f GiB", gib);
}

/* Of all candidates without limits, that with the least of the device. */
static enum zd_status fail_naming_smallest(struct state *state)
{
    struct plan_found *least = NULL;
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    char device[32], host[32], has_device[32], has_host[32], words[600] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    const struct plan_limits limits = state->limits;
    state->limits.device = state->limits.host = state->limits.total =
            UINT64_MAX;
    if (!state->keeps_batch) {
        state->many = 1; /* the smallest of each */
        state->sizes[0] = 1;
    }
    ZD_TRY(try_all(state, false));
    for (int i = 0; i < state->count; i++)
        if (!least || state->found[i].device < least->device)
            least = &state->found[i];
    human(has_device, limits.device);
    human(has_host, limits.host);
    ZD_FAIL(ZD_ERR_UNFIT, "E0607",
            "nothing that may be changed makes the job fit %s of device "
            "memory and %s of host memory on each of %d rank%s",
            limits.device == UINT64_MAX ? "any amount" : has_device,
            limits.host == UINT64_MAX ? "any amount" : has_host,
            state->search->world, state->search->world == 1 ? "" : "s");
    if (least) {
        int count = plan_found_settings(state->search, least, settings);
        settings_print(settings, count, &text);
        human(device, least->device);
        human(host, least->host);
        zd_fail_help(
                "the smallest machine that would do has, for each rank, %s of "
                "device memory and %s of host memory, with %s",
                device, host, count ? words : "the job as it is");
    }
    return ZD_ERR_UNFIT;
}

/* --- searches ------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct plan_found *x = a, *y = b;
    double tx = x->predicted.step_seconds, ty = y->predicted.step_seconds;
    if (tx != ty)
        return tx < ty ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return memcmp(&x->candidate, &y->candidate, sizeof x->candidate);
}

enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out)
{
    struct state state;
    ZD_TRY(begin(search, &state));
    enum zd_status status = try_all(&state, false);
    if (status == ZD_OK && !state.count)
        status = fail_naming_smallest(&state);
    if (status == ZD_OK) {
        qsort(state.found, (size_t)state.count, sizeof *state.found, by_time);
        *found_out = state.found;
        *count_out = state.count;
        state.found = NULL;
    }
    end(&state);
    return status;
}

int plan_found_settings(
        const struct plan_search *search, const struct plan_found *found,
        struct plan_setting out[PLAN_SETTINGS_MAX])
{
    return candidate_settings(
            search->job, &found->candidate, &found->choice, out);
}

/* Whether the job fits, or with `any` one of its candidates, its batch and the
 * samples of its step as they are. */
static enum zd_status is_fit(
        const struct plan_search *search, bool any, bool *out)
{
    struct state state;
    *out = false;
    ZD_TRY(begin(search, &state));
    state.keeps_batch = true;
    enum zd_status status;
    if (any) {
        status = try_all(&state, true);
        *out = state.count > 0;
    } else {
        status = plan_try_modes(
                search->job, state.plan.per_device, state.plan.accumulation,
                &state.limits, &state.plan, out);
        if (*out && search->disk)
            *out = state.plan.arena.bytes[ARENA_DISK] <= search->disk;
    }
    end(&state);
    return status;
}

/* The job with so much of it. */
static struct train_job job_with(
        const struct plan_search *search, enum plan_most what, int value,
        int accumulation)
{
    struct train_job job = *search->job;
    if (what == PLAN_MOST_SEQ) {
        job.data.cutoff_len = value;
    } else {
        job.train.per_device_train_batch_size = value;
        job.train.gradient_accumulation_steps = accumulation;
        job.train.global_batch_size = 0;
    }
    return job;
}

static enum zd_status fits_value(
        const struct plan_search *search, enum plan_most what, bool any,
        int value, int accumulation, bool *out)
{
    const struct train_job job = job_with(search, what, value, accumulation);
    struct plan_search changed = *search;
    changed.job = &job;
    return is_fit(&changed, any, out);
}

static enum zd_status fail_least(const char *what)
{
    return ZD_FAIL(
            ZD_ERR_UNFIT, "E0607", "the job does not fit, not even with %s",
            what);
}

/* Doubled until it is too much, then by halves. */
static enum zd_status count_up(
        const struct plan_search *search, enum plan_most what, bool any,
        int most, int accumulation, int *out)
{
    int low = 0, high = 1;
    while (low < most) {
        bool ok;
        ZD_TRY(fits_value(search, what, any, high, accumulation, &ok));
        if (!ok)
            break;
        low = high;
        high = high > most / 2 ? most : 2 * high;
    }
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        bool ok;
        ZD_TRY(fits_value(search, what, any, middle, accumulation, &ok));
        *(ok ? &low : &high) = middle;
    }
    *out = low;
    return ZD_OK;
}

/* The largest of the known models; the job's own is not looked at. */
static enum zd_status largest_model(
        const struct plan_search *search, bool any, struct plan_most_found *out)
{
    const struct plan_model *model;
    for (int i = 0; (model = plan_model_at(i)); i++) {
        struct train_job job = *search->job;
        struct plan_search changed = *search;
        bool ok = false;
        changed.job = &job;
        job.model.path = NULL;
        job.model.config = plan_model_config(model);
        if (is_fit(&changed, any, &ok) != ZD_OK)
            zd_error_clear(); /* its positions are too few, say */
        json_decref(job.model.config);
        if (!ok)
            continue;
        *out = (struct plan_most_found){
                .value = model->parameters, .name = model->name};
        return ZD_OK;
    }
    return fail_least("the smallest of the known models");
}

enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out)
{
    enum { BATCH_MOST = 1 << 20 };
    struct state state;
    int value;
    if (what == PLAN_MOST_MODEL)
        return largest_model(search, fits, out);
    ZD_TRY(begin(search, &state));
    int accumulation = state.plan.accumulation;
    int most = what == PLAN_MOST_SEQ ? state.plan.config.max_positions
                                     : BATCH_MOST / accumulation;
    end(&state);
    ZD_TRY(count_up(search, what, fits, most, accumulation, &value));
    if (!value)
        return fail_least(
                what == PLAN_MOST_SEQ ? "data.cutoff_len = 1"
                                      : "train.per_device_train_batch_size "
                                        "= 1");
    *out = (struct plan_most_found){.value = value};
    return ZD_OK;
}

/* A batch that so many ranks cannot share, and a unit that they cannot cut, is
 * no fit. */
static bool fits_world(const struct plan_search *search, bool any, int world)
{
    struct plan_search changed = *search;
    bool ok = false;
    changed.world = world;
    if (search->local_size > world)
        changed.local_size = world;
    if (is_fit(&changed, any, &ok) != ZD_OK)
        zd_error_clear();
    return ok;
}

enum zd_status plan_search_world(
        const struct plan_search *search, bool fits, int *world_out)
{
    enum { WORLD_MOST = 8192 };
    int node = search->local_size > 0 ? search->local_size : 8;
    int least = 0, world = 1;
    while (world <= WORLD_MOST && !fits_world(search, fits, world)) {
        least = world;
        world = world >= node ? 2 * world : 2 * world < node ? 2 * world : node;
    }
    if (world > WORLD_MOST)
        return fail_least("8192 ranks");
    int grain = world > node ? node : 1;
    while (world - least > grain) {
        int middle = least + (world - least) / grain / 2 * grain;
        *(fits_world(search, fits, middle) ? &world : &least) = middle;
    }
    *world_out = world;
    return ZD_OK;
}
