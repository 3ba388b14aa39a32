/* fits.c - what fits, by time. */
#include "train/plan/search_parts.h"

#include <stdlib.h>
#include <string.h>

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

enum zd_status plan_search_fits(
        const struct plan_search *search, struct plan_found **found_out,
        int *count_out)
{
    struct plan_searching state;
    ZD_TRY(plan_search_begin(search, &state));
    enum zd_status status = plan_search_all(&state, false);
    if (status == ZD_OK && !state.count)
        status = plan_fail_smallest(&state);
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
