/* smallest.c - the smallest machine that would do.
 *
 * A candidate takes the least of the device with the smallest micro-batch, or
 * with the whole step as one, which keeps gradients in another type; with all
 * that may wait on the host there (a limit of nothing asks for that), and the
 * least of the host without it. A machine has two memories: what it would need
 * of each is told with the other as it is; if no host memory would do, the
 * least of the device. */
#include "train/plan/search_parts.h"

#include "base/units.h"

#include <string.h>

/* The CPU device without limits of its own: one memory for both. */
static bool is_one_memory(const struct plan_limits *limits)
{
    return !limits->on_gpu && !limits->limits_device && !limits->limits_host;
}

static uint64_t total_of(const struct plan_found *found)
{
    return found->device + found->host;
}

static void note(
        struct plan_found *least, const struct plan_found *found,
        uint64_t bytes, uint64_t than)
{
    if (!least->choice.B || bytes < than ||
        (bytes == than && total_of(found) < total_of(least)))
        *least = *found;
}

static void note_all(
        struct plan_searching *state, const struct plan_found *found)
{
    struct plan_smallest *out = state->smallest;
    const struct plan_limits *limits = &state->limits;
    bool has_room = total_of(found) <= limits->total;
    if (is_one_memory(limits)) {
        note(&out->any, found, total_of(found), total_of(&out->any));
        return;
    }
    note(&out->any, found, found->device, out->any.device);
    if (has_room && found->host <= limits->host)
        note(&out->device, found, found->device, out->device.device);
    if (has_room && found->device <= limits->device)
        note(&out->host, found, found->host, out->host.host);
}

/* With so much of the device and any amount of the host; false: there is no
 * such plan, or its disk is too large. */
static bool try_room(
        struct plan_searching *state, const struct train_job *job,
        const struct plan_candidate *candidate, struct job_choice *choice,
        uint64_t device, struct plan_found *out)
{
    uint64_t disk = state->search->disk;
    const struct plan_limits limits = {
            .device = device,
            .host = UINT64_MAX,
            .total = UINT64_MAX,
            .on_gpu = state->limits.on_gpu,
            .local_size = state->limits.local_size};
    bool fits;
    if (plan_try_choice(job, choice, &limits, state->plan, &fits) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    *out = plan_found_of(state, candidate, choice);
    if (disk && out->disk > disk)
        return false;
    note_all(state, out);
    return true;
}

/* With micro-batches of B: all that may wait on the host here, and there. Where
 * that can be a part of it (paged states), as much as the host has room for,
 * and as little as the device's room asks for. */
static void try_size(
        struct plan_searching *state, const struct train_job *job,
        const struct plan_candidate *candidate, struct job_choice *choice,
        int B)
{
    enum { TRIES = 8 }; /* pieces are whole, so the first may miss by some */
    const struct plan_limits *limits = &state->limits;
    struct plan_found here, there, part;
    choice->B = B;
    choice->A = state->samples / B;
    bool ok = try_room(state, job, candidate, choice, UINT64_MAX, &here);
    ok &= try_room(state, job, candidate, choice, 0, &there);
    if (!ok || here.device <= there.device || here.host >= there.host)
        return;
    /* no part of it can take less than these: try what may win alone */
    const struct plan_smallest *found = state->smallest;
    bool may_win =
            !found->device.choice.B ||
            there.device + there.host < found->device.device + limits->host;
    part = there;
    uint64_t asked = there.device;
    for (int i = 0; i < TRIES && may_win && here.host <= limits->host &&
                    part.host > limits->host;
         i++) {
        asked += (part.host - limits->host) * (i ? 2 : 1);
        if (!try_room(state, job, candidate, choice, asked, &part))
            break;
    }
    may_win = !found->host.choice.B ||
              here.device + here.host < found->host.host + limits->device;
    if (may_win && there.device <= limits->device &&
        here.device > limits->device)
        try_room(state, job, candidate, choice, limits->device, &part);
}

static void try_smallest(
        struct plan_searching *state, const struct plan_query *query,
        const struct train_job *job, const struct plan_candidate *candidate,
        struct job_choice *choice)
{
    int first = query->keeps_batch ? state->given : 1;
    try_size(state, job, candidate, choice, first);
    if (!query->keeps_batch && state->samples > 1)
        try_size(state, job, candidate, choice, state->samples);
}

enum zd_status plan_smallest_of(
        const struct plan_search *search, struct plan_query query,
        struct plan_smallest *out)
{
    struct plan_searching state;
    query.try = try_smallest;
    query.most = 0;
    ZD_TRY(plan_search_begin(search, NULL, &state));
    out->limits = state.limits;
    state.smallest = out;
    enum zd_status status = plan_search_run(&state, &query);
    plan_search_end(&state);
    return status;
}

enum zd_status plan_search_smallest(
        const struct plan_search *search, struct plan_smallest *out)
{
    *out = (struct plan_smallest){0};
    return plan_smallest_of(search, plan_query_fit(search), out);
}

/* --- as it is told -------------------------------------------------------- */

static void add_machine(
        const struct plan_search *search, const struct plan_found *found,
        struct text_buffer *text)
{
    char words[600] = "", device[UNITS_TEXT], host[UNITS_TEXT];
    struct text_buffer line = {.out = words, .bytes = sizeof words};
    if (found->world != search->world)
        text_buffer_add(&line, "--world %d", found->world);
    settings_print(found->settings, found->setting_count, &line);
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
