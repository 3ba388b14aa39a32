/* queries.c - what fits, by time (--fit); the maximum of one quantity that fits
 * (--max), and the minimum of ranks (--min), with a query per value. */
#include "base/must.h"
#include "train/plan/models.h"
#include "train/plan/search.h"

/* --- the smallest machine ------------------------------------------------- */

static void add_machine(
        const struct plan_search *search, const struct plan_found *found,
        struct text_buffer *text)
{
    char device[UNITS_TEXT], host[UNITS_TEXT];
    struct text_buffer line = TEXT_BUFFER(600);
    if (found->world != search->world)
        text_buffer_add(&line, "--world %d", found->world);
    settings_print(&found->settings, &line);
    text_buffer_add(
            text, "%s%s of device memory and %s of host memory, with %s",
            text->used ? "; or " : "", units_bytes_up(found->device, device),
            units_bytes_up(found->host, host),
            line.used ? line.out : "no other change");
}

/* Reports that `what` does not fit, and what would. */
static enum zd_status fail_smallest(
        const struct plan_search *search, const struct plan_smallest *smallest,
        const char *what)
{
    struct text_buffer text = TEXT_BUFFER(900);
    const struct plan_found *any = &smallest->any;
    if (smallest->device.choice.B)
        add_machine(search, &smallest->device, &text);
    if (smallest->host.choice.B)
        add_machine(search, &smallest->host, &text);
    else if (any->choice.B && (!text.used || any->host > smallest->limits.host))
        add_machine(search, any, &text);
    ZD_FAIL(ZD_ERR_UNFIT, "E0607", "%s", what);
    if (text.used)
        zd_fail_help(
                "the smallest machine that would do has, for each rank, %s",
                text.out);
    return ZD_ERR_UNFIT;
}

/* --- what fits ------------------------------------------------------------ */

/* Everything allowed, unscored. */
static struct plan_query query_fit(const struct plan_search *search)
{
    struct plan_query query = {
            .search = search,
            .space = plan_space_fit(search->job, search->allow)};
    query.space.options[CHOOSE_BATCH] = 0;
    return query;
}

enum zd_status plan_search_smallest(
        const struct plan_search *search, struct plan_meshes *meshes,
        struct plan_smallest *out)
{
    struct plan_query query = query_fit(search);
    struct plan_found *none;
    int count;
    *out = (struct plan_smallest){0};
    query.smallest = out;
    query.meshes = meshes;
    return plan_search_run(&query, &none, &count);
}

static enum zd_status fail_fits(
        const struct plan_search *search, struct plan_meshes *meshes)
{
    struct plan_smallest smallest;
    char what[300], device[UNITS_TEXT], host[UNITS_TEXT];
    const struct plan_limits *limits = &smallest.limits;
    ZD_TRY(plan_search_smallest(search, meshes, &smallest));
    ZD_PRINT(
            what,
            "no change that is allowed makes the job fit %s of device memory "
            "and %s of host memory for each of %d rank%s",
            limits->device == UINT64_MAX
                    ? "any amount"
                    : units_bytes_up(limits->device, device),
            limits->host == UINT64_MAX ? "any amount"
                                       : units_bytes_up(limits->host, host),
            search->world, search->world == 1 ? "" : "s");
    return fail_smallest(search, &smallest, what);
}

enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out)
{
    struct plan_query query = query_fit(search);
    struct plan_meshes meshes = {0};
    query.score = PLAN_BY_TIME;
    query.meshes = &meshes;
    ZD_TRY(plan_search_run(&query, found_out, count_out));
    return *count_out ? ZD_OK : fail_fits(search, &meshes);
}

/* --- with so much --------------------------------------------------------- */

struct asked {
    const struct plan_search *search;
    enum plan_most what;
    bool fits;
    int accumulation, positions; /* of the job; of its model */
    int64_t groups;              /* with their own micro-batches */
    int64_t unit;                /* SEQ: tokens per unit of a value */
    /* WORLD: the most ranks that can be planned, the first larger number that
     * cannot, and why: they cannot divide the batch or a unit */
    int most, beyond;
    char why[200];
};

static int node_of(const struct asked *asked)
{
    return asked->search->local_size > 0 ? asked->search->local_size : 8;
}

/* *count_out: candidates that fit with `value`; *best: the fastest (NULL: stop
 * at the first). With `smallest` looks for the least memory instead. */
static enum zd_status query(
        const struct asked *asked, int value, struct plan_found *best,
        struct plan_smallest *smallest, int *count_out)
{
    struct train_job job = *asked->search->job;
    struct plan_search search = *asked->search;
    ZD_FREED struct plan_found *found = NULL;
    json_auto_t *config = NULL;
    int node = node_of(asked);
    search.job = &job;
    switch (asked->what) {
    case PLAN_MOST_BATCH:
        job.train.per_device_train_batch_size = value;
        job.train.gradient_accumulation_steps = asked->accumulation;
        job.train.global_batch_size = 0;
        break;
    case PLAN_MOST_SEQ:
        job.data.cutoff_len = (int)(value * asked->unit);
        break;
    case PLAN_MOST_MODEL:
        job.model.path = NULL;
        job.model.config = config = plan_model_config(plan_model_at(value));
        break;
    case PLAN_MOST_WORLD:
        search.world = value;
        search.local_size = value < node ? value : node;
    }
    struct plan_query query =
            asked->fits ? query_fit(&search) : plan_query_job(&search);
    query.keeps_batch |= asked->what == PLAN_MOST_BATCH;
    if (query.keeps_batch) /* a rank's samples are its group's */
        query.space.options[CHOOSE_CP] = query.space.options[CHOOSE_TP] = 0;
    query.smallest = smallest;
    query.score = best ? PLAN_BY_TIME : PLAN_UNSCORED;
    query.most = best || smallest ? 0 : 1;
    enum zd_status status = plan_search_run(&query, &found, count_out);
    if (best && *count_out)
        *best = found[0];
    return status;
}

static enum zd_status fits(const struct asked *asked, int value, bool *out)
{
    int count = 0;
    ZD_TRY(query(asked, value, NULL, NULL, &count));
    *out = count > 0;
    return ZD_OK;
}

/* Doubles until it no longer fits, then bisects; 0: not even 1 fits. */
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

/* The index of the largest known model that fits; their number: none. */
static int find_model(const struct asked *asked)
{
    int i = 0;
    for (bool ok = false; plan_model_at(i); i++) {
        if (fits(asked, i, &ok) != ZD_OK)
            zd_error_clear(); /* too few positions, for example */
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
        ZD_PRINT(asked->why, "%.199s", zd_error_get()->what);
    }
    zd_error_clear();
    return false;
}

enum { WORLD_MOST = 8192 };

static int next_world(const struct asked *asked, int world)
{
    return world < node_of(asked) ? world + 1 : 2 * world;
}

/* Above WORLD_MOST: none. */
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

/* More ranks do not always need less memory per rank, because some transports'
 * buffers grow. So the smallest machine is the minimum over all numbers. */
static enum zd_status fail(
        const struct asked *asked, int value, const char *least)
{
    struct plan_smallest smallest = {0};
    const struct plan_limits *limits = &smallest.limits;
    bool is_world = asked->what == PLAN_MOST_WORLD;
    const char *binds = ""; /* both may bind: report the device */
    char what[400];
    int none;
    for (int at = is_world ? 1 : value; at <= value; at = next_world(asked, at))
        if (query(asked, at, NULL, &smallest, &none) != ZD_OK)
            zd_error_clear();
    if (smallest.any.choice.B)
        binds = smallest.any.device > limits->device ? ": device memory binds"
                : limits->total != UINT64_MAX        ? ": memory binds"
                                                     : ": host memory binds";
    ZD_PRINT(what, "the job does not fit, not even with %s%s", least, binds);
    return fail_smallest(asked->search, &smallest, what);
}

/* If nothing can be planned, reports the error of one rank's plan. */
static enum zd_status fail_world(const struct asked *asked)
{
    char least[300];
    bool ok;
    if (!asked->most)
        return fits(asked, 1, &ok);
    int used = ZD_PRINT(
            least, "%d rank%s", asked->most, asked->most == 1 ? "" : "s");
    if (asked->beyond > asked->most)
        snprintf(
                least + used, sizeof least - (size_t)used, " (with %d: %s)",
                asked->beyond, asked->why);
    return fail(asked, asked->most, least);
}

/* --- the answer ----------------------------------------------------------- */

static enum zd_status read_job(struct asked *asked)
{
    const struct plan_search *search = asked->search;
    ZD_SCOPED(job_plan_fini) struct job_plan plan = {0};
    ZD_TRY(plan_begin(
            search->job, search->world, search->local_size, NULL, &plan));
    asked->accumulation = plan.accumulation;
    asked->positions = plan.config.max_positions;
    asked->groups =
            plan.global_batch / ((int64_t)plan.per_device * plan.accumulation);
    return ZD_OK;
}

/* *value_out: in query()'s units. */
static enum zd_status find(struct asked *asked, int *value_out)
{
    enum { BATCH_MOST = 1 << 20 };
    bool is_batch = asked->what == PLAN_MOST_BATCH;
    char least[60];
    if (asked->what == PLAN_MOST_WORLD) {
        *value_out = find_world(asked);
        return *value_out <= WORLD_MOST ? ZD_OK : fail_world(asked);
    }
    if (asked->what == PLAN_MOST_MODEL) {
        *value_out = find_model(asked);
        return plan_model_at(*value_out)
                       ? ZD_OK
                       : fail(asked, *value_out - 1,
                              "the smallest of the known models");
    }
    ZD_TRY(read_job(asked));
    int64_t most = is_batch ? BATCH_MOST / asked->accumulation
                            : asked->positions / asked->unit;
    ZD_TRY(count_up(asked, (int)most, value_out));
    ZD_PRINT(
            least, "%s = %lld",
            is_batch ? "train.per_device_train_batch_size" : "data.cutoff_len",
            (long long)(is_batch ? 1 : asked->unit));
    return *value_out ? ZD_OK : fail(asked, 1, least);
}

enum zd_status plan_search_most(
        const struct plan_search *search, enum plan_most what, bool fits,
        struct plan_most_found *out)
{
    struct asked asked = {
            .search = search,
            .what = what,
            .fits = fits,
            .unit = mesh_token_unit(search->job->parallel)};
    int value = 0, count;
    ZD_TRY(find(&asked, &value));
    *out = (struct plan_most_found){.value = value};
    if (what == PLAN_MOST_BATCH && search->job->train.global_batch_size)
        out->global = (int64_t)value * asked.accumulation * asked.groups;
    if (what == PLAN_MOST_SEQ) {
        out->value *= asked.unit;
        if (value == asked.positions / asked.unit)
            out->name = "the model has no more positions";
    }
    if (what == PLAN_MOST_MODEL) {
        out->value = plan_model_at(value)->parameters;
        out->name = plan_model_at(value)->name;
    }
    return fits ? query(&asked, value, &out->best, NULL, &count) : ZD_OK;
}
