/* most.c - the most of one thing that fits: --max and --min. */
#include "train/plan/models.h"
#include "train/plan/search_parts.h"

#include <string.h>

/* What is kept of the batch: all of it, or the samples of a step alone. */
enum batch_kept { KEEPS_STEP, KEEPS_BATCH };

/* Whether the job fits, or with `any` one of its candidates. */
static enum zd_status is_fit(
        const struct plan_search *search, bool any, enum batch_kept kept,
        bool *out)
{
    struct plan_searching state;
    *out = false;
    ZD_TRY(plan_search_begin(search, &state));
    state.keeps_batch = kept == KEEPS_BATCH;
    enum zd_status status;
    if (any) {
        status = plan_search_all(&state, true);
        *out = state.count > 0;
    } else {
        status = plan_try_modes(
                search->job, state.plan.per_device, state.plan.accumulation,
                &state.limits, &state.plan, out);
        if (*out && search->disk)
            *out = state.plan.arena.bytes[ARENA_DISK] <= search->disk;
    }
    plan_search_end(&state);
    return status;
}

/* The fastest candidate of a job of which one fits. */
static enum zd_status note_best(
        const struct plan_search *search, enum batch_kept kept,
        struct plan_most_found *out)
{
    struct plan_searching state;
    ZD_TRY(plan_search_begin(search, &state));
    state.keeps_batch = kept == KEEPS_BATCH;
    enum zd_status status = plan_search_all(&state, false);
    for (int i = 0; status == ZD_OK && i < state.count; i++)
        if (i == 0 || plan_found_order(&state.found[i], &out->best) < 0)
            out->best = state.found[i];
    if (status == ZD_OK && state.count)
        out->setting_count =
                plan_found_settings(search, &out->best, out->settings);
    plan_search_end(&state);
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
    return is_fit(
            &changed, any, what == PLAN_MOST_BATCH ? KEEPS_BATCH : KEEPS_STEP,
            out);
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
    struct train_job job = *search->job;
    struct plan_search changed = *search;
    changed.job = &job;
    job.model.path = NULL;
    for (int i = 0; (model = plan_model_at(i)); i++) {
        bool ok = false;
        job.model.config = plan_model_config(model);
        if (is_fit(&changed, any, KEEPS_STEP, &ok) != ZD_OK)
            zd_error_clear(); /* its positions are too few, say */
        bool is_last = !plan_model_at(i + 1);
        if (!ok && is_last)
            plan_fail_least(
                    &changed, any, false, "the smallest of the known models");
        *out = (struct plan_most_found){
                .value = model->parameters, .name = model->name};
        enum zd_status status =
                ok && any ? note_best(&changed, KEEPS_STEP, out) : ZD_OK;
        json_decref(job.model.config);
        if (ok || status != ZD_OK)
            return status;
    }
    return ZD_ERR_UNFIT;
}

/* One of it is too much. */
static enum zd_status fail_most(
        const struct plan_search *search, enum plan_most what, bool any,
        int accumulation)
{
    const struct train_job job = job_with(search, what, 1, accumulation);
    struct plan_search changed = *search;
    changed.job = &job;
    return plan_fail_least(
            &changed, any, what == PLAN_MOST_BATCH,
            what == PLAN_MOST_SEQ ? "data.cutoff_len = 1"
                                  : "train.per_device_train_batch_size = 1");
}

enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out)
{
    enum { BATCH_MOST = 1 << 20 };
    struct plan_searching state;
    int value;
    if (what == PLAN_MOST_MODEL)
        return largest_model(search, fits, out);
    ZD_TRY(plan_search_begin(search, &state));
    int accumulation = state.plan.accumulation;
    int most = what == PLAN_MOST_SEQ ? state.plan.config.max_positions
                                     : BATCH_MOST / accumulation;
    plan_search_end(&state);
    ZD_TRY(count_up(search, what, fits, most, accumulation, &value));
    if (!value)
        return fail_most(search, what, fits, accumulation);
    *out = (struct plan_most_found){.value = value};
    if (!fits)
        return ZD_OK;
    const struct train_job job = job_with(search, what, value, accumulation);
    struct plan_search changed = *search;
    changed.job = &job;
    return note_best(
            &changed, what == PLAN_MOST_BATCH ? KEEPS_BATCH : KEEPS_STEP, out);
}

static struct plan_search search_with(
        const struct plan_search *search, int world)
{
    struct plan_search changed = *search;
    changed.world = world;
    if (search->local_size > world)
        changed.local_size = world;
    return changed;
}

struct worlds {
    int most;      /* ranks of which there is a plan */
    int beyond;    /* ranks above of which there is none, .. */
    char why[200]; /* .. and why: they cannot share the batch, or cut a unit */
};

static bool fits_world(
        const struct plan_search *search, bool any, int world,
        struct worlds *worlds)
{
    const struct plan_search changed = search_with(search, world);
    bool ok = false;
    if (is_fit(&changed, any, KEEPS_STEP, &ok) != ZD_OK) {
        if (worlds->beyond <= worlds->most) {
            worlds->beyond = world;
            snprintf(
                    worlds->why, sizeof worlds->why, "%.199s",
                    zd_error_get()->what);
        }
        zd_error_clear();
    } else if (world > worlds->most) {
        worlds->most = world;
    }
    return ok;
}

/* Nor do the most; if there is no plan at all, the error of one rank's. */
static enum zd_status fail_world(
        const struct plan_search *search, bool any, const struct worlds *worlds)
{
    char least[300];
    bool ok;
    int most = worlds->most;
    const struct plan_search changed = search_with(search, most ? most : 1);
    if (!most)
        return is_fit(&changed, any, KEEPS_STEP, &ok);
    snprintf(
            least, sizeof least, "%d rank%s", most, most == 1 ? "" : "s");
    size_t used = strlen(least);
    if (worlds->beyond > most)
        snprintf(
                least + used, sizeof least - used, " (with %d: %s)",
                worlds->beyond, worlds->why);
    return plan_fail_least(&changed, any, false, least);
}

enum zd_status plan_search_world(
        const struct plan_search *search, bool fits,
        struct plan_most_found *out)
{
    enum { WORLD_MOST = 8192 };
    int node = search->local_size > 0 ? search->local_size : 8;
    int least = 0, world = 1;
    struct worlds worlds = {0};
    while (world <= WORLD_MOST && !fits_world(search, fits, world, &worlds)) {
        least = world;
        world = world < node ? world + 1 : 2 * world;
    }
    if (world > WORLD_MOST)
        return fail_world(search, fits, &worlds);
    while (world - least > node) {
        int middle = least + (world - least) / node / 2 * node;
        *(fits_world(search, fits, middle, &worlds) ? &world : &least) = middle;
    }
    *out = (struct plan_most_found){.value = world};
    const struct plan_search changed = search_with(search, world);
    return fits ? note_best(&changed, KEEPS_STEP, out) : ZD_OK;
}
