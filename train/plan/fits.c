/* fits.c - what fits, by time. */
#include "train/plan/search_parts.h"

#include <stdlib.h>

static enum zd_status fail_fits(
        const struct plan_searching *state, const struct plan_query *query)
{
    struct plan_smallest smallest = {0};
    char what[300], device[UNITS_TEXT], host[UNITS_TEXT];
    const struct plan_limits *limits = &state->limits;
    ZD_TRY(plan_smallest_of(state->search, *query, &smallest));
    snprintf(
            what, sizeof what,
            "no change that is allowed makes the job fit %s of device memory "
            "and %s of host memory for each of %d rank%s",
            limits->device == UINT64_MAX
                    ? "any amount"
                    : units_bytes_up(limits->device, device),
            limits->host == UINT64_MAX ? "any amount"
                                       : units_bytes_up(limits->host, host),
            state->search->world, state->search->world == 1 ? "" : "s");
    return plan_fail_smallest(state->search, &smallest, what);
}

enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out)
{
    struct plan_searching state;
    struct plan_query query = plan_query_fit(search);
    query.score = PLAN_BY_TIME;
    ZD_TRY(plan_search_begin(search, NULL, &state));
    enum zd_status status = plan_search_run(&state, &query);
    if (status == ZD_OK && !state.count)
        status = fail_fits(&state, &query);
    if (status == ZD_OK) {
        qsort(state.found, (size_t)state.count, sizeof *state.found,
              plan_found_order);
        *found_out = state.found;
        *count_out = state.count;
        state.found = NULL;
    }
    plan_search_end(&state);
    return status;
}
