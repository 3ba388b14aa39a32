/* smallest.c - nothing fits: the smallest machine that would do.
 *
 * A candidate takes the least of the device with the smallest micro-batch, or
 * with the whole step as one, which keeps gradients in another type; with all
 * that may wait on the host there (a limit of nothing asks for that), and the
 * least of the host without it. A machine has two memories: what it would need
 * of each is told with the other as it is; where no host memory would do, the
 * least of the device. */
#include "train/plan/search_parts.h"

#include <math.h>
#include <string.h>

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
    if (limits->total != UINT64_MAX)
        note(&out->any, found, total_of(found), total_of(&out->any));
    else
        note(&out->any, found, found->device, out->any.device);
    if (found->host <= limits->host)
        note(&out->device, found, found->device, out->device.device);
    if (found->device <= limits->device)
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
    if (plan_try_choice(job, choice, &limits, &state->plan, &fits) != ZD_OK) {
        zd_error_clear();
        return false;
    }
    *out = plan_found_of(&state->plan, candidate, choice);
    out->candidate.option[CHOOSE_BATCH] = choice->B != state->given;
    if (disk && out->disk > disk)
        return false;
    note_all(state, out);
    return true;
}

/* With micro-batches of B: all that may wait on the host here, and there; where
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

static enum zd_status try_smallest(
        struct plan_searching *state, const struct train_job *job,
        const struct plan_candidate *candidate, struct job_choice *choice)
{
    if (state->keeps_batch || state->keeps_job) {
        try_size(state, job, candidate, choice, state->given);
        return ZD_OK;
    }
    try_size(state, job, candidate, choice, 1);
    if (state->samples > 1)
        try_size(state, job, candidate, choice, state->samples);
    return ZD_OK;
}

static enum zd_status search_smallest(
        const struct plan_search *search, bool keeps_job, bool keeps_batch,
        struct plan_smallest *out, struct plan_limits *limits_out)
{
    struct plan_searching state;
    *out = (struct plan_smallest){0};
    ZD_TRY(plan_search_begin(search, &state));
    *limits_out = state.limits;
    state.smallest = out;
    state.try_other = try_smallest;
    state.keeps_job = keeps_job;
    state.keeps_batch = keeps_batch;
    enum zd_status status = plan_search_all(&state, false);
    plan_search_end(&state);
    return status;
}

enum zd_status plan_search_smallest(
        const struct plan_search *search, struct plan_smallest *out)
{
    struct plan_limits limits;
    return search_smallest(search, false, false, out, &limits);
}

/* --- as it is told -------------------------------------------------------- */

/* Rounded up: a machine of what is told does. */
static void human(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    double value = (double)bytes / 1024;
    int unit = 0;
    while (value >= 1024 && unit < 2) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, "%.2f %s", ceil(value * 100) / 100, units[unit]);
}

static void add_machine(
        const struct plan_search *search, const struct plan_found *found,
        struct text_buffer *text)
{
    struct plan_setting settings[PLAN_SETTINGS_MAX];
    char device[32], host[32];
    int count = plan_found_settings(search, found, settings);
    human(device, found->device);
    human(host, found->host);
    text_buffer_add(
            text, "%s%s of device memory and %s of host memory, with",
            text->used ? "; or " : "", device, host);
    if (count)
        settings_print(settings, count, text);
    else
        text_buffer_add(text, " the job as it is");
}

/* Behind what failed. */
static void tell_machines(
        const struct plan_search *search, const struct plan_smallest *smallest,
        const struct plan_limits *limits)
{
    char words[900] = "";
    struct text_buffer text = {.out = words, .bytes = sizeof words};
    bool is_two = limits->total == UINT64_MAX;
    if (is_two && smallest->device.choice.B)
        add_machine(search, &smallest->device, &text);
    if (is_two && smallest->host.choice.B)
        add_machine(search, &smallest->host, &text);
    else if (smallest->any.choice.B && smallest->any.host > limits->host)
        add_machine(search, &smallest->any, &text);
    else if (smallest->any.choice.B && !text.used)
        add_machine(search, &smallest->any, &text);
    if (text.used)
        zd_fail_help(
                "the smallest machine that would do has, for each rank, %s",
                words);
}

enum zd_status plan_fail_smallest(struct plan_searching *state)
{
    struct plan_smallest smallest;
    char has_device[32], has_host[32];
    const struct plan_limits limits = state->limits;
    ZD_TRY(plan_search_smallest(state->search, &smallest));
    human(has_device, limits.device);
    human(has_host, limits.host);
    ZD_FAIL(ZD_ERR_UNFIT, "E0607",
            "nothing that may be changed makes the job fit %s of device "
            "memory and %s of host memory on each of %d rank%s",
            limits.device == UINT64_MAX ? "any amount" : has_device,
            limits.host == UINT64_MAX ? "any amount" : has_host,
            state->search->world, state->search->world == 1 ? "" : "s");
    tell_machines(state->search, &smallest, &limits);
    return ZD_ERR_UNFIT;
}

enum zd_status plan_fail_least(
        const struct plan_search *search, bool fits, bool keeps_batch,
        const char *least)
{
    struct plan_smallest smallest;
    struct plan_limits limits;
    enum zd_status status =
            search_smallest(search, !fits, keeps_batch, &smallest, &limits);
    zd_error_clear();
    const char *binds = ""; /* both may: the device is told first */
    if (status == ZD_OK && smallest.any.choice.B)
        binds = smallest.any.device > limits.device ? ": device memory binds"
                : limits.total != UINT64_MAX        ? ": memory binds"
                                                    : ": host memory binds";
    ZD_FAIL(ZD_ERR_UNFIT, "E0607", "the job does not fit, not even with %s%s",
            least, binds);
    if (status == ZD_OK)
        tell_machines(search, &smallest, &limits);
    return ZD_ERR_UNFIT;
}
