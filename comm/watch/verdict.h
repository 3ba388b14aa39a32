/* verdict.h - whether a wait that is too long is a hang, and of which rank.
 *
 * A wait for number n of a lane is for the ranks of its group that have not
 * begun n, or, if all have, for all of them; and for the ranks that those wait
 * for in turn, in any group. It is not a hang as long as one of them has made
 * progress within the limit, or does work that may take long. */
#pragma once

#include "comm/watch/seat.h"

enum verdict_kind {
    END_HANG,
    END_JOIN,     /* ranks do not come together */
    END_FILES,    /* no read or write of `rank` completes */
    END_LAUNCHER, /* the program that started it is gone */
    END_FAILED,   /* it reported a failure */
    ENDS
};

/* Sent between processes: fixed sizes, no padding. */
struct verdict {
    int32_t rank; /* the rank that hangs */
    int32_t kind;
    int32_t exit_code;
    int32_t writer; /* rank that writes the event; -1: none can */
    int64_t step;
    struct seat_op op; /* what is waited for */
    double seconds;
    uint32_t has_entered; /* `rank` is in it too */
    uint32_t files;       /* END_FILES: index of `what` (comm_files_begin) */
};

/* What a process knows of a rank. */
struct rank_known {
    struct seat_told told;
    bool heard;      /* is `told` known? */
    bool ever_heard; /* was it ever? */
    int silent;      /* looks in a row at which it did not answer */
    int from, next;  /* verdict_find's */
};

struct verdict_ask {
    int rank, size; /* who waits, for the collective that it told */
    double seconds; /* that it has waited */
    double limit;
    struct rank_known *ranks; /* (size) */
};

/* True: it is a hang, of this rank. */
bool verdict_find(const struct verdict_ask *ask, struct verdict *verdict);
