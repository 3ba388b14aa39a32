/* fit.c - finds a plan that fits, or reports what is short and which changes of
 * the job file would make it fit. */
#include "base/must.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- what is free when a run begins --------------------------------------- */

/* A rank's memory besides its plan: program, libraries, stacks. */
enum { BESIDE_BYTES = 64 << 20 };

static uint64_t host_free(int local_size)
{
    uint64_t each = device_available_memory() /
                    (uint64_t)(local_size > 0 ? local_size : 1);
    return each > 2 * BESIDE_BYTES ? each - BESIDE_BYTES : each / 2;
}

enum zd_status plan_ask_free(
        struct comm *comm, int local_size, struct plan_free *out)
{
    struct device_facts facts = device_facts();
    bool on_gpu = facts.backend == DEVICE_CUDA;
    int64_t least[] = {
            (int64_t)host_free(local_size),
            on_gpu ? (int64_t)facts.free_bytes : INT64_MAX};
    ZD_TRY(comm_all_reduce_i64(comm, least, 2, COMM_MIN));
    *out = (struct plan_free){(uint64_t)least[0], (uint64_t)least[1]};
    return ZD_OK;
}

/* --- a job that does not fit ---------------------------------------------- */

/* The memory that is short. */
enum shortage { SHORT_DEVICE, SHORT_HOST, SHORT_TOTAL };

static bool is_of(const struct arena_span *span, enum shortage shortage)
{
    if (span->memory == ARENA_DISK)
        return false;
    if (shortage == SHORT_TOTAL)
        return true;
    return (span->memory == ARENA_DEVICE) == (shortage == SHORT_DEVICE);
}

/* Lists the three largest spans of the memory that is short. */
static void largest_spans(
        const struct arena_plan *arena, enum shortage shortage,
        struct text_buffer *text)
{
    enum { MOST = 3 };
    ZD_FREED bool *is_told =
            zd_array((size_t)arena->span_count, sizeof *is_told);
    char size[UNITS_TEXT];
    text_buffer_add(text, "the largest spans:");
    for (int k = 0; k < MOST; k++) {
        int best = -1;
        for (int i = 0; i < arena->span_count; i++)
            if (is_of(&arena->spans[i], shortage) && !is_told[i] &&
                (best < 0 || arena->spans[i].bytes > arena->spans[best].bytes))
                best = i;
        if (best < 0)
            return;
        is_told[best] = true;
        text_buffer_add(
                text, "%s %s %s", k ? "," : "", arena->spans[best].name,
                units_bytes(arena->spans[best].bytes, size));
    }
}

/* Adds a line that can be appended to a command with the job. False: the text
 * is full. */
static bool add_found(
        const char *folder, const struct plan_found *found,
        struct text_buffer *text)
{
    char device[UNITS_TEXT], host[UNITS_TEXT], disk[UNITS_TEXT];
    struct text_buffer line = TEXT_BUFFER(600);
    settings_print(&found->settings, &line);
    text_buffer_add(
            &line, "   (device %s, host %s", units_bytes(found->device, device),
            units_bytes(found->host, host));
    if (found->disk)
        text_buffer_add(
                &line, ", %s free in %.60s", units_bytes(found->disk, disk),
                folder && *folder ? folder : "FOLDER");
    if (text->used + line.used + 4 > text->bytes)
        return false;
    text_buffer_add(text, "\n%s)", line.out);
    return true;
}

/* "auto" is depth first by itself where that fits. */
static void drop_order(
        const struct train_job *job, struct plan_settings *settings)
{
    int kept = 0;
    for (int i = 0; i < settings->count; i++)
        if (job->train.accumulation_order != ORDER_AUTO ||
            strcmp(settings->list[i].value, "depth_first") != 0)
            settings->list[kept++] = settings->list[i];
    settings->count = kept;
}

/* Returns whether any needs no disk. */
static bool list_found(
        const struct train_job *job, const struct plan_query *query,
        const char *heading, struct text_buffer *text)
{
    ZD_FREED struct plan_found *found = NULL;
    bool in_memory = false;
    int count;
    if (plan_search_run(query, &found, &count) != ZD_OK)
        zd_error_clear();
    if (count)
        text_buffer_add(text, "\n%s", heading);
    for (int i = 0; i < count; i++) {
        in_memory |= !found[i].disk;
        drop_order(job, &found[i].settings);
        if (!add_found(job->offload.nvme_path, &found[i], text))
            break;
    }
    return in_memory;
}

/* Neither order of micro-batches fits: what the other one needs. */
static void tell_order(const struct job_plan *plan, struct text_buffer *text)
{
    const struct plan_needs *other = &plan->other_order;
    char device[UNITS_TEXT], host[UNITS_TEXT];
    if (other->device + other->host)
        text_buffer_add(
                text,
                "\nthat is with train.accumulation_order = \"%s\"; with \"%s\" "
                "each rank needs %s of device memory and %s of host memory",
                plan_order_name(plan->by_layer),
                plan_order_name(!plan->by_layer),
                units_bytes(other->device, device),
                units_bytes(other->host, host));
}

static void suggest(
        const struct train_job *job, struct job_plan *plan,
        struct text_buffer *text)
{
    enum { LINES = 4 };
    const struct train_job settled = plan_settled(job, plan);
    const struct plan_search search = {.job = &settled, .world = plan->world};
    struct plan_query query = {
            .search = &search,
            .space = plan_space_refusal(job),
            .keeps_batch = true,
            .score = PLAN_BY_COST,
            .most = LINES,
            .plan = plan};
    size_t before = text->used;
    if (list_found(
                job, &query,
                "any one of these, on the command line or in the file:", text))
        return;
    query.space = plan_space_adapters(job);
    list_found(
            job, &query,
            "adapters or a base in 4 bits change what is trained, and fit:",
            text);
    if (text->used == before)
        text_buffer_add(
                text, "\nno such change fits: more ranks, a shorter "
                      "data.cutoff_len or a smaller model are left");
}

enum zd_status plan_refuse(
        const struct train_job *job, struct job_plan *plan,
        const struct plan_limits *limits)
{
    const uint64_t device = plan_device_bytes(plan),
                   host = plan_host_bytes(plan);
    const struct {
        const char *name;
        enum arena_memory memory;
        uint64_t needs, limit;
    } memories[] = {
            {"device memory", ARENA_DEVICE, device, limits->device},
            {"host memory", ARENA_HOST, host, limits->host},
            {"memory", ARENA_MEMORIES, device + host, limits->total}};
    enum shortage shortage = device > limits->device ? SHORT_DEVICE
                             : host > limits->host   ? SHORT_HOST
                                                     : SHORT_TOTAL;
    char need[UNITS_TEXT], limit[UNITS_TEXT], source[PLAN_NAME_MAX];
    struct text_buffer text = TEXT_BUFFER(sizeof zd_error_get()->help);
    plan_limit_name(limits, memories[shortage].memory, source);
    plan->limits = *limits;
    largest_spans(&plan->arena, shortage, &text);
    tell_order(plan, &text);
    suggest(job, plan, &text);
    ZD_FAIL(ZD_ERR_UNFIT, "E0601",
            "does not fit: each rank needs %s of %s (%" PRIu64
            " bytes), the limit is %s (%" PRIu64 " bytes) of %s",
            units_bytes(memories[shortage].needs, need),
            memories[shortage].name, memories[shortage].needs,
            units_bytes(memories[shortage].limit, limit),
            memories[shortage].limit, source);
    return zd_fail_help("%s", text.out);
}

/* --- all of it ------------------------------------------------------------ */

/* Plans the job's checkpointing, batch and pieces, with "auto" resolved. */
static enum zd_status fit_job(
        const struct train_job *job, struct comm *comm, struct job_plan *plan)
{
    const struct train_options *train = &job->train;
    struct plan_fit fit = {
            .job = job,
            .plan = plan,
            .limits = plan_limits_of(job, plan),
            .choice = {.B = plan->per_device, .A = plan->accumulation}};
    plan->limits = fit.limits;
    plan->chose_checkpointing =
            train->gradient_checkpointing.mode == CHECKPOINTING_AUTO;
    for (;;) {
        ZD_TRY(plan_try_orders(&fit, false));
        if (fit.fits || !train->auto_find_batch_size || fit.choice.B % 2)
            break;
        fit.choice.B /= 2; /* the same samples in more and smaller
                              micro-batches */
        fit.choice.A *= 2;
    }
    if (!fit.fits)
        ZD_TRY(plan_try_orders(&fit, true));
    plan->chose_pieces = !train->tiled_mlp && plan->shape.mlp_pieces > 1;
    plan->chose_order =
            plan->by_layer && train->accumulation_order == ORDER_AUTO;
    if (!fit.fits && !job->run.force)
        return plan_refuse(job, plan, &plan->limits);
    plan->is_forced = !fit.fits;
    if (fit.fits) {
        ZD_TRY(plan_undo(&fit));
        ZD_TRY(plan_divide(&fit, comm));
    }
    return plan_snapshot(job, plan);
}

enum zd_status job_plan_build(
        const struct train_job *job, int world, int local_size,
        struct comm *comm, struct job_plan *plan)
{
    ZD_TRY(plan_begin(job, world, local_size, comm, plan));
    enum zd_status status = ZD_OK;
    if (comm) {
        status = plan_ask_free(comm, local_size, &plan->free);
        plan->knows_free = status == ZD_OK;
    }
    ZD_THEN(status, fit_job(job, comm, plan));
    if (status != ZD_OK)
        job_plan_fini(plan);
    return status;
}

enum zd_status plan_check_machine(
        const struct train_job *job, struct job_plan *plan)
{
    const struct plan_limits limits = plan_limits_here(plan);
    uint64_t takes = job_plan_memory(plan), memory = plan_machine_memory(plan);
    if (!job->run.force && !plan_fits(plan, &limits))
        return plan_refuse(job, plan, &limits);
    if (job->run.force && takes > memory)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0608",
                "--force: a rank takes %.3f MiB of memory, and this machine "
                "has %.3f MiB for it",
                units_mib(takes), units_mib(memory));
    return ZD_OK;
}
