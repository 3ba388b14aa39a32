/* most.c - the most of one thing that fits (--max), and the fewest ranks
 * (--min): a query for each amount that is tried. */
#include "train/plan/models.h"
#include "train/plan/search_parts.h"

#include <string.h>

/* The search with so much of it. */
struct amount {
    struct plan_search search;
    struct train_job job;
    struct plan_query query;
};

struct asked {
    const struct plan_search *search;
    enum plan_most what;
    bool fits;
    int accumulation, positions; /* of the job, and of its model */
    /* WORLD: the most ranks that can be planned for, and of more those that
     * cannot, and why: they cannot share the batch, or cut a unit */
    int most, beyond;
    char why[200];
};

static int node_of(const struct asked *asked)
{
    return asked->search->local_size > 0 ? asked->search->local_size : 8;
}

static void amount_init(
        const struct asked *asked, int value, struct amount *out)
{
    struct train_job *job = &out->job;
    int node = node_of(asked);
    out->search = *asked->search;
    *job = *asked->search->job;
    out->search.job = job;
    switch (asked->what) {
    case PLAN_MOST_BATCH:
        job->train.per_device_train_batch_size = value;
        job->train.gradient_accumulation_steps = asked->accumulation;
        job->train.global_batch_size = 0;
        break;
    case PLAN_MOST_SEQ:
        job->data.cutoff_len = value;
        break;
    case PLAN_MOST_MODEL:
        job->model.path = NULL;
        job->model.config = plan_model_config(plan_model_at(value));
        break;
    case PLAN_MOST_WORLD:
        out->search.world = value;
        out->search.local_size = value < node ? value : node;
    }
    out->query = asked->fits ? plan_query_fit(&out->search)
                             : plan_query_job(&out->search);
    out->query.keeps_batch |= asked->what == PLAN_MOST_BATCH;
}

static void amount_fini(const struct asked *asked, struct amount *amount)
{
    if (asked->what == PLAN_MOST_MODEL)
        json_decref(amount->job.model.config);
}

/* How many candidates were found; *best (NULL: the first will do) is the
 * fastest of them. */
static enum zd_status query(
        const struct asked *asked, int value, int *count_out,
        struct plan_found *best)
{
    struct amount amount;
    struct plan_searching state;
    amount_init(asked, value, &amount);
    amount.query.score = best ? PLAN_BY_TIME : PLAN_UNSCORED;
    amount.query.most = best ? 0 : 1;
    enum zd_status status = plan_search_begin(&amount.search, NULL, &state);
    if (status == ZD_OK) {
        status = plan_search_run(&state, &amount.query);
        *count_out = state.count;
        for (int i = 0; best && i < state.count; i++)
            if (i == 0 || plan_found_order(&state.found[i], best) < 0)
                *best = state.found[i];
        plan_search_end(&state);
    }
    amount_fini(asked, &amount);
    return status;
}

static enum zd_status fits(const struct asked *asked, int value, bool *out)
{
    int count = 0;
    ZD_TRY(query(asked, value, &count, NULL));
    *out = count > 0;
    return ZD_OK;
}

/* --- of how much ---------------------------------------------------------- */

/* Doubled until it is too much, then by halves; 0: one is. */
static enum zd_status count_up(const struct asked *asked, int most, int *out)
{
    int low = 0, high = 1;
    bool ok = true;
    while (low < most && ok) {
        ZD_TRY(fits(asked, high, &ok));
        if (!ok)
            break;
        low = high;
        high = high > most / 2 ? most : 2 * high;
    }
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        ZD_TRY(fits(asked, middle, &ok));
        *(ok ? &low : &high) = middle;
    }
    *out = low;
    return ZD_OK;
}

/* The first of the known models, the largest first; their number: none. */
static int find_model(const struct asked *asked)
{
    int i = 0;
    for (bool ok = false; plan_model_at(i); i++) {
        if (fits(asked, i, &ok) != ZD_OK)
            zd_error_clear(); /* its positions are too few, say */
        else if (ok)
            break;
    }
    return i;
}

static bool fits_world(struct asked *asked, int world)
{
    bool ok = false;
    if (fits(asked, world, &ok) == ZD_OK) {
        asked->most = world > asked->most ? world : asked->most;
        return ok;
    }
    if (asked->beyond <= asked->most) {
        asked->beyond = world;
        snprintf(asked->why, sizeof asked->why, "%.199s", zd_error_get()->what);
    }
    zd_error_clear();
    return false;
}

enum { WORLD_MOST = 8192 };

static int next_world(const struct asked *asked, int world)
{
    return world < node_of(asked) ? world + 1 : 2 * world;
}

/* More than WORLD_MOST: none. */
static int find_world(struct asked *asked)
{
    int node = node_of(asked), least = 0, world = 1;
    while (world <= WORLD_MOST && !fits_world(asked, world)) {
        least = world;
        world = next_world(asked, world);
    }
    while (world <= WORLD_MOST && world - least > node) {
        int middle = least + (world - least) / node / 2 * node;
        *(fits_world(asked, middle) ? &world : &least) = middle;
    }
    return world;
}

/* --- not even the least --------------------------------------------------- */

/* Adds what is least with so much. */
static enum zd_status add_smallest(
        const struct asked *asked, int value, struct plan_smallest *out)
{
    struct amount amount;
    amount_init(asked, value, &amount);
    enum zd_status status = plan_smallest_of(&amount.search, amount.query, out);
    amount_fini(asked, &amount);
    return status;
}

/* Memory of a rank is not always least on the most ranks: what some transports
 * need grows with them. */
static enum zd_status smallest_world(
        const struct asked *asked, struct plan_smallest *out)
{
    for (int world = 1; world <= asked->most; world = next_world(asked, world))
        if (add_smallest(asked, world, out) != ZD_OK)
            zd_error_clear();
    return ZD_OK;
}

static enum zd_status fail(
        const struct asked *asked, int value, const char *least)
{
    struct plan_smallest smallest = {0};
    char what[400];
    if (asked->what == PLAN_MOST_WORLD)
        ZD_TRY(smallest_world(asked, &smallest));
    else if (add_smallest(asked, value, &smallest) != ZD_OK)
        zd_error_clear();
    const struct plan_limits *limits = &smallest.limits;
    const char *binds = ""; /* both may: the device is told first */
    if (smallest.any.choice.B)
        binds = smallest.any.device > limits->device ? ": device memory binds"
                : limits->total != UINT64_MAX        ? ": memory binds"
                                                     : ": host memory binds";
    snprintf(
            what, sizeof what, "the job does not fit, not even with %s%s",
            least, binds);
    return plan_fail_smallest(asked->search, &smallest, what);
}

/* If nothing can be planned, the error of one rank's plan. */
static enum zd_status fail_world(const struct asked *asked)
{
    char least[300];
    bool ok;
    if (!asked->most)
        return fits(asked, 1, &ok);
    int used = snprintf(
            least, sizeof least, "%d rank%s", asked->most,
            asked->most == 1 ? "" : "s");
    if (asked->beyond > asked->most)
        snprintf(
                least + used, sizeof least - (size_t)used, " (with %d: %s)",
                asked->beyond, asked->why);
    return fail(asked, asked->most, least);
}

/* --- the answer ----------------------------------------------------------- */

static enum zd_status read_job(struct asked *asked)
{
    struct plan_searching state;
    if (asked->what != PLAN_MOST_BATCH && asked->what != PLAN_MOST_SEQ)
        return ZD_OK;
    ZD_TRY(plan_search_begin(asked->search, NULL, &state));
    asked->accumulation = state.plan->accumulation;
    asked->positions = state.plan->config.max_positions;
    plan_search_end(&state);
    return ZD_OK;
}

/* A value as amount_init takes it. */
static enum zd_status find(
        struct asked *asked, int *value_out, struct plan_most_found *out)
{
    enum { BATCH_MOST = 1 << 20 };
    const struct plan_model *model;
    switch (asked->what) {
    case PLAN_MOST_BATCH:
        ZD_TRY(count_up(asked, BATCH_MOST / asked->accumulation, value_out));
        if (!*value_out)
            return fail(asked, 1, "train.per_device_train_batch_size = 1");
        break;
    case PLAN_MOST_SEQ:
        ZD_TRY(count_up(asked, asked->positions, value_out));
        if (!*value_out)
            return fail(asked, 1, "data.cutoff_len = 1");
        break;
    case PLAN_MOST_MODEL:
        *value_out = find_model(asked);
        model = plan_model_at(*value_out);
        if (!model)
            return fail(
                    asked, *value_out - 1, "the smallest of the known models");
        *out = (struct plan_most_found){model->parameters, model->name};
        return ZD_OK;
    case PLAN_MOST_WORLD:
        *value_out = find_world(asked);
        if (*value_out > WORLD_MOST)
            return fail_world(asked);
    }
    *out = (struct plan_most_found){.value = *value_out};
    return ZD_OK;
}

enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out)
{
    struct asked asked = {.search = search, .what = what, .fits = fits};
    int value = 0, count;
    ZD_TRY(read_job(&asked));
    ZD_TRY(find(&asked, &value, out));
    return fits ? query(&asked, value, &count, &out->best) : ZD_OK;
}
