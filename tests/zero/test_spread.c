/* test_spread - after an update no one waits for all parameters: who acquires a
 * unit waits for those of that unit. */
#include "world.h"

#include "comm/comm.h"
#include "tests/support/wrap.h"

#include <stdatomic.h>
#include <stdio.h>

/* Of one rank, its thread's. */
static _Thread_local int waits;     /* for collectives, so far */
static _Thread_local bool is_first; /* the next acquire is that of an update */

/* Of all ranks; the most that one has seen. */
static _Atomic int at_update, at_first, at_all;

static void raise_to(_Atomic int *most, int value)
{
    int now = *most;
    while (now < value && !atomic_compare_exchange_weak(most, &now, value)) {
    }
}

WRAP(enum zd_status, comm_wait, struct comm *comm, struct comm_op *op)
{
    waits++;
    return __real_comm_wait(comm, op);
}

WRAP(enum zd_status, zero_gather_params, struct zero *zero)
{
    int before = waits;
    enum zd_status status = __real_zero_gather_params(zero);
    raise_to(&at_update, waits - before);
    is_first = true;
    return status;
}

WRAP(enum zd_status, params_acquire, void *ctx, int unit, const void **params)
{
    int before = waits;
    enum zd_status status = __real_params_acquire(ctx, unit, params);
    if (is_first)
        raise_to(&at_first, waits - before);
    raise_to(&at_all, waits - before);
    is_first = false;
    return status;
}

/* A unit is one segment, so it has one gather. */
static void try(int stage, bool offloads, bool overlaps)
{
    struct scenario s = scenario_default(stage, 2, DTYPE_BF16);
    s.shape.freeze_every = 0;
    s.options.overlap_comm = overlaps;
    if (offloads)
        s.offload.optimizer = OFFLOAD_CPU;
    at_update = at_first = at_all = 0;
    struct outcome outcome = world_run(&s);
    bool ok = outcome.status == ZD_OK && outcome.ranks_agree &&
              outcome.wire_matches;
    if (overlaps)
        ok &= at_update == 0 && at_first == 1 && at_all == 1;
    tap_ok(ok, "stage %d%s%s", stage, offloads ? ", offloaded" : "",
           overlaps ? "" : ", nothing overlaps");
    if (!ok)
        printf("# %d waits after the update, %d of the first unit, %d of "
               "another\n",
               at_update, at_first, at_all);
    outcome_fini(&outcome);
}

int main(void)
{
    for (int stage = 1; stage <= 2; stage++) {
        try(stage, false, true);
        try(stage, true, true);
        try(stage, false, false);
    }
    return tap_done();
}
