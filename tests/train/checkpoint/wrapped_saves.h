/* wrapped_saves.h - the parts of a save that threads do, late at random, held
 * back or refused, and what is seen of them. For test_background.c. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#define SAVE_LEAST_WAIT 0.05 /* s */
/* As no other part of a stall ever takes. */
#define SAVE_MORE_WAIT 1e6

extern struct save_asks {
    _Atomic int failing;      /* so many writes of rank 1 */
    _Atomic int fails_waited; /* so many that all ranks wait for, on rank 1 */
    _Atomic int bad_batch;    /* the n-th that rank 1 asks for is bad data */
    _Atomic int wants_step;   /* a writer waits until training has made steps */
    _Atomic int wants_waiting; /* .. until an update has waited for it so long
                                  as SAVE_LEAST_WAIT */
    _Atomic bool tells_more;   /* waits of updates are told as if they were
                                  longer, by SAVE_MORE_WAIT */
    _Atomic int refused; /* the n-th thread of a save, counted down, that the
                            system has no room for */
    _Atomic bool refuses_helpers; /* nor for those that copy */
    _Atomic int stalls_until;     /* the next write of rank 1 stands still until
                                     training has made this step */
    _Atomic int step_us; /* that steps 4 to 8 take longer, for the test */
} save_asks;

extern struct save_seen { /* of all ranks, since it was cleared */
    _Atomic int writes, commits, takes;
    _Atomic int written;        /* of writes: that have ended */
    _Atomic int helpers;        /* that copied, of all takes */
    _Atomic int step_now;       /* for the test to say */
    _Atomic int step_seen;      /* that training made beside a write */
    _Atomic int disorder;       /* parts that were read apart */
    _Atomic int ups, downs;     /* to the next range */
    _Atomic int hardened;       /* rows and events, by who commits .. */
    _Atomic int hardened_early; /* .. and by others */
} save_seen;
