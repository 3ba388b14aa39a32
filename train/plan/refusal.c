/* refusal.c - a job that does not fit: what is short, and which changes of the
 * job file, or which machine, would make it fit. */
#include "base/must.h"
#include "base/units.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>

/* The memory that a plan has too little of. */
enum shortage { SHORT_DEVICE, SHORT_HOST, SHORT_TOTAL };

static int by_bytes(const void *a, const void *b)
{
    const struct arena_span *x = *(const struct arena_span *const *)a;
    const struct arena_span *y = *(const struct arena_span *const *)b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static bool is_of(const struct arena_span *span, enum shortage shortage)
{
    if (span->memory == ARENA_DISK)
        return false;
    if (shortage == SHORT_TOTAL)
        return true;
    return (span->memory == ARENA_DEVICE) == (shortage == SHORT_DEVICE);
}

/* The three largest spans of the memory that is short. */
static void largest_spans(
        const struct arena_plan *arena, enum shortage shortage,
        struct text_buffer *text)
{
    const struct arena_span **order =
            zd_must(calloc((size_t)arena->span_count, sizeof *order));
    char size[UNITS_TEXT];
    int count = 0;
    for (int i = 0; i < arena->span_count; i++)
        if (is_of(&arena->spans[i], shortage))
            order[count++] = &arena->spans[i];
    qsort(order, (size_t)count, sizeof *order, by_bytes);
    text_buffer_add(text, "the largest spans:");
    for (int i = 0; i < count && i < 3; i++)
        text_buffer_add(
                text, "%s %s %s", i ? "," : "", order[i]->name,
                units_bytes(order[i]->bytes, size));
    free(order);
}

/* A line that can be appended to a command with the job. False: the text is
 * full. */
static bool add_found(
        const char *folder, const struct plan_found *found,
        struct text_buffer *text)
{
    char words[600], device[UNITS_TEXT], host[UNITS_TEXT], disk[UNITS_TEXT];
    struct text_buffer line = {.out = words, .bytes = sizeof words};
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
    text_buffer_add(text, "\n%s)", words);
    return true;
}

/* Returns whether one of them needs no disk. */
static bool list_found(
        const struct train_job *job, const struct plan_query *query,
        const char *heading, struct text_buffer *text)
{
    struct plan_found *found;
    bool in_memory = false;
    int count;
    if (plan_search_run(query, &found, &count) != ZD_OK)
        zd_error_clear();
    if (count)
        text_buffer_add(text, "\n%s", heading);
    for (int i = 0; i < count; i++) {
        in_memory |= !found[i].disk;
        if (!add_found(job->offload.nvme_path, &found[i], text))
            break;
    }
    free(found);
    return in_memory;
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
    char help[1000] = "";
    struct text_buffer text = {.out = help, .bytes = sizeof help};
    plan_limit_name(limits, memories[shortage].memory, source);
    plan->limits = *limits;
    largest_spans(&plan->arena, shortage, &text);
    suggest(job, plan, &text);
    ZD_FAIL(ZD_ERR_UNFIT, "E0601",
            "does not fit: each rank needs %s of %s (%" PRIu64
            " bytes), the limit is %s (%" PRIu64 " bytes) of %s",
            units_bytes(memories[shortage].needs, need),
            memories[shortage].name, memories[shortage].needs,
            units_bytes(memories[shortage].limit, limit),
            memories[shortage].limit, source);
    return zd_fail_help("%s", help);
}

/* --- the smallest machine ------------------------------------------------- */

static void add_machine(
        const struct plan_search *search, const struct plan_found *found,
        struct text_buffer *text)
{
    char words[600] = "", device[UNITS_TEXT], host[UNITS_TEXT];
    struct text_buffer line = {.out = words, .bytes = sizeof words};
    if (found->world != search->world)
        text_buffer_add(&line, "--world %d", found->world);
    settings_print(&found->settings, &line);
    text_buffer_add(
            text, "%s%s of device memory and %s of host memory, with %s",
            text->used ? "; or " : "", units_bytes_up(found->device, device),
            units_bytes_up(found->host, host),
            line.used ? words : "no other change");
}

enum zd_status plan_fail_smallest(
        const struct plan_search *search, const struct plan_smallest *smallest,
        const char *what)
{
    char words[900] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
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
                words);
    return ZD_ERR_UNFIT;
}
