/* verdict.h - who is to blame for a wait that is too long, if anybody is.
 *
 * A wait for number n of a lane is for the ranks that have not begun n; where
 * all have, for all. It is no hang as long as one of them has given a sign
 * within the limit, or is in work that may be long and goes on. */
#ifndef ZD_COMM_WATCH_VERDICT_H
#define ZD_COMM_WATCH_VERDICT_H

#include "comm/watch/seat.h"

enum verdict_why {
    WHY_STOPPED,  /* its process does not run */
    WHY_SILENT,   /* its host does not answer */
    WHY_RUNS,     /* it computes, or loops */
    WHY_LEFT,     /* it has left */
    WHY_WAITS,    /* it waits too: for others, or the link is down */
    WHY_WORKS,    /* its work does not go on */
    WHY_JOIN,     /* ranks do not come together */
    WHY_FILES,    /* nothing of its reads and writes completes */
    WHY_LAUNCHER, /* who started it is gone */
    WHY_FAILED,   /* it says so itself */
    WHYS
};

/* Sent as it is between hosts: fixed sizes, no padding. */
struct verdict {
    int32_t rank; /* that hangs */
    int32_t why;
    int32_t exit_code;
    int32_t writer; /* rank that writes the event; -1: none can */
    int64_t step;
    uint64_t word, number; /* what is waited for */
    uint64_t last;         /* the last number that `rank` has begun */
    double seconds;
    uint32_t silent_ms; /* of `rank` */
    uint32_t lane, work;
    uint32_t files; /* WHY_FILES: index of what (watch.h) */
};

struct verdict_ask {
    int rank;            /* who waits */
    enum comm_work work; /* it is in */
    enum seat_lane lane;
    uint64_t number, word;
    int64_t step;
    double seconds; /* it waits */
    double limit;
    int size;
    const struct seat_told *told; /* (size) */
    const bool *heard;            /* (size) is `told` known? */
    const bool *ever_heard;       /* (size) was it ever? */
};

/* True: it is a hang, and this is how. */
bool verdict_find(const struct verdict_ask *ask, struct verdict *verdict);

/* One line each: "rank 1 on host-b hangs at step 7: ..", and details. */
void verdict_text(
        const struct verdict *verdict, const char *host, char *out,
        size_t out_bytes);
void verdict_details(
        const struct verdict *verdict, const char *host, char *out,
        size_t out_bytes);
bool verdict_is_known(const struct verdict *verdict, int size);

#endif
