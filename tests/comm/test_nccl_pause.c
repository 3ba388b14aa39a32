/* Sleeps of a thread that waits for NCCL to have queued a group. */
#include "comm/nccl/pause.h"

#include <criterion/criterion.h>

/* Looks that take a microsecond each, until `ready`; a sleep takes as much more
 * as the system's timers are late. *late_out: how long after `ready` the last
 * look is. */
static int sleeps_until(double ready, double *late_out)
{
    const double look = 1e-6, timer = 50e-6;
    int sleeps = 0;
    double now = look;
    while (now < ready) {
        double pause = nccl_pause(now);
        sleeps += pause > 0;
        now += look + (pause > 0 ? pause + timer : 0);
    }
    *late_out = now - ready;
    return sleeps;
}

Test(nccl_pause, a_short_group_is_noticed_at_once)
{
    for (int us = 5; us <= 150; us += 5) {
        double late;
        cr_expect_eq(sleeps_until(us * 1e-6, &late), 0, "after %d us", us);
        cr_expect_lt(late, 2e-6);
    }
}

Test(nccl_pause, a_long_wait_sleeps)
{
    double late;
    int sleeps = sleeps_until(1.0, &late);
    cr_expect_gt(sleeps, 5000);
    cr_expect_lt(late, 102e-6);
    for (int ms = 1; ms < 1000; ms++) {
        cr_expect_gt(nccl_pause(ms * 1e-3), 0);
        cr_expect_leq(nccl_pause(ms * 1e-3), 50e-6);
    }
}
