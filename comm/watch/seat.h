/* seat.h - what a rank is doing, and since when; and what other processes are
 * told.
 *
 *              wait_begin                 work(W)
 *      RUNS  ------------->  WAITS   RUNS ------------> WORKS
 *            <-------------               <------------  |  ^
 *              wait_end                   work(NONE)     v  |
 *                                                       WAITS     LEFT at last
 *
 * The main thread owns the seat: only it changes the state. NCCL's thread notes
 * operations as done. The watch only reads. A wait is for a numbered collective
 * in one of two lanes: operations (reduce_scatter, all_gather, all_to_all) and
 * messages (barrier, broadcast, gather, all_reduce). All groups share a lane's
 * numbering, and a rank begins collectives in the order of their numbers. So a
 * rank of the group that has not begun a number in that lane is late for it.
 *
 * Times are microseconds of the monotonic clock. */
#pragma once

#include "base/number/dtype.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum seat_state { SEAT_RUNS, SEAT_WAITS, SEAT_WORKS, SEAT_LEFT };

enum seat_lane { LANE_OPERATIONS, LANE_MESSAGES, SEAT_LANES };

enum seat_kind {
    SEAT_NOTHING,        /* nothing is sent */
    SEAT_REDUCE_SCATTER, /* operations, as enum comm_op_kind has them */
    SEAT_ALL_GATHER,
    SEAT_ALL_TO_ALL,
    SEAT_BARRIER,
    SEAT_BROADCAST,
    SEAT_GATHER,
    SEAT_ALL_REDUCE,
    SEAT_JOIN, /* ranks come together: MPI_Init and what follows */
    SEAT_PART, /* MPI_Finalize */
    SEAT_KINDS
};

/* Work that may take long. It counts as progress while its process runs, or, if
 * it reports its own progress, while it reports. */
enum comm_work {
    WORK_NONE,
    WORK_START, /* files, device, memory, data, weights */
    WORK_SAVE,
    WORK_EXPORT,
    WORK_EVALUATE,
    WORK_SAMPLE,
    WORK_COMMAND,
    WORK_DATA /* it waits for its data */
};

enum { SEAT_RECORD = 64 }; /* how many recent collectives are described */

/* A collective, as sent between processes. Its group: ranks first, first +
 * stride, ..; count 0: all. */
struct seat_op {
    uint64_t number, bytes;
    uint32_t first, stride, count;
    uint8_t kind; /* enum seat_kind; NOTHING: none */
    uint8_t type; /* of operations */
    uint8_t lane;
    char group[17]; /* its name */
};

/* The state of a rank, for other processes too. */
struct seat_told {
    uint64_t begun[SEAT_LANES], done[SEAT_LANES]; /* numbers */
    struct seat_op waits; /* what it, or its GPU, waits for */
    uint64_t since;       /* it does, by its host's clock */
    int64_t step;
    uint32_t silent_ms; /* since it last made progress (seat.sign) */
    uint32_t poll_ms;   /* since it last polled its wait */
    uint8_t state, work;
    uint8_t unused[6];
};

struct seat {
    pthread_mutex_t lock; /* of all below */
    enum seat_state state;
    enum comm_work work;
    enum seat_lane lane;    /* that it waits in, .. */
    uint64_t number;        /* .. for this collective */
    uint64_t since;         /* start of this state */
    uint64_t pending_since; /* its oldest operation is not done */
    uint64_t sign;   /* when it last began an operation or reported progress */
    uint64_t waited; /* microseconds, in all waits */
    uint64_t polled; /* when it last polled its wait; 0: the back end is
                        notified and does not poll */
    int64_t step;
    bool runs_alone; /* operations end by themselves; see
                        watch_operations_run */
    uint64_t begun[SEAT_LANES], done[SEAT_LANES];
    struct seat_op ops[SEAT_LANES][SEAT_RECORD]; /* the last, by number */
};

uint64_t seat_clock(void);

void seat_init(struct seat *seat);

/* --- the owner's ---------------------------------------------------------- */

/* The collective, of a lane and number, has begun; numbers rise by one. */
void seat_begin(struct seat *seat, const struct seat_op *op);
/* From here to wait_end this rank waits for it. */
void seat_wait_begin(struct seat *seat, enum seat_lane lane, uint64_t number);
void seat_wait_end(struct seat *seat);
/* It has polled its wait, or another one within it. */
void seat_polls(struct seat *seat, uint64_t now);
/* From here on it does this work, or none. Returns the previous work. */
enum comm_work seat_work(struct seat *seat, enum comm_work work);
void seat_goes_on(struct seat *seat);
void seat_step(struct seat *seat, int64_t step);
void seat_leave(struct seat *seat);

/* --- anyone's ------------------------------------------------------------- */

/* Operations up to this number are done. */
void seat_done(struct seat *seat, uint64_t number);
struct seat_told seat_tell(struct seat *seat);
double seat_waited(struct seat *seat); /* seconds */
/* "all_gather #11 (fp32, 120000 bytes) of cp (ranks 4, 6)"; without the number
 * where that is 0, without the group where it is all ranks. */
enum { SEAT_TEXT = 192 };
void seat_op_text(const struct seat_op *op, char out[SEAT_TEXT]);
