/* seat.h - what a rank is in, and since when; and what is told of it to other
 * processes.
 *
 *              wait_begin                 work(W)
 *      RUNS  ------------->  WAITS   RUNS ------------> WORKS
 *            <-------------               <------------  |  ^
 *              wait_end                   work(NONE)     v  |
 *                                                       WAITS     LEFT at last
 *
 * Owner of a seat is the thread that trains: it alone changes the state.
 * Operations of NCCL are noted as done by its thread. The watch of its process
 * only reads.
 * A wait is for the collective of a number in one of two lanes: operations
 * (reduce_scatter, all_gather, all_to_all) and messages (barrier, broadcast,
 * gather, all_reduce). Groups of ranks share the numbers of a lane: a rank
 * begins the collectives of its groups in the order of their numbers, so one of
 * a group's ranks whose lane has not begun a number is late for it.
 *
 * Times are microseconds of the monotonic clock. */
#pragma once

#include "base/number/dtype.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum seat_state { SEAT_RUNS, SEAT_WAITS, SEAT_WORKS, SEAT_LEFT, SEAT_STATES };

enum seat_lane { LANE_OPERATIONS, LANE_MESSAGES, SEAT_LANES };

enum seat_kind {
    SEAT_ALL_GATHER = 1,
    SEAT_REDUCE_SCATTER,
    SEAT_ALL_TO_ALL,
    SEAT_BARRIER,
    SEAT_BROADCAST,
    SEAT_GATHER,
    SEAT_ALL_REDUCE,
    SEAT_JOIN, /* ranks come together: MPI_Init and what follows */
    SEAT_PART, /* MPI_Finalize */
    SEAT_KINDS
};

/* Work that may be long. It counts as progress while its process runs; work
 * that reports its own progress, while it reports. */
enum comm_work {
    WORK_NONE,
    WORK_START, /* files, device, memory, data, weights */
    WORK_SAVE,
    WORK_EXPORT,
    WORK_EVALUATE,
    WORK_SAMPLE,
    WORK_COMMAND,
    WORK_DATA, /* it waits for its data */
    WORKS
};

enum { SEAT_RECORD = 64 }; /* collectives whose description is kept */

/* A collective; sent as it is between processes. Its group: ranks first,
 * first + stride, ..; count 0: all. */
struct seat_op {
    uint64_t word; /* seat_word; 0: none */
    uint64_t number;
    uint16_t lane, group; /* group: seat_group; 0: no name */
    uint32_t first, stride, count;
};

struct seat {
    /* of the thread that trains: */
    _Atomic uint64_t doing;  /* state, work, lane, since; see seat_look */
    _Atomic uint64_t number; /* of the collective that it waits for */
    _Atomic uint64_t sign;   /* it began an operation, or reported progress */
    _Atomic uint64_t waited; /* microseconds, in all waits */
    _Atomic uint64_t polled; /* it looked whether its wait is over; 0: the
                                back end does not look, it is told */
    _Atomic int64_t step;
    struct {
        _Atomic uint64_t begun, done; /* numbers */
        /* of the last ones, by number: */
        _Atomic uint64_t what[SEAT_RECORD], row[SEAT_RECORD];
    } lanes[SEAT_LANES];
    atomic_bool runs_alone; /* operations end by themselves; see
                               watch_operations_run */
};

uint64_t seat_clock(void);

/* --- the owner's ---------------------------------------------------------- */

/* A collective of this number and kind has begun, of the group of this row;
 * numbers rise by one. word 0: nothing is sent. */
void seat_begin(
        struct seat *seat, enum seat_lane lane, uint64_t number, uint64_t word,
        uint64_t row);
/* From here to wait_end this rank waits for it. */
void seat_wait_begin(struct seat *seat, enum seat_lane lane, uint64_t number);
void seat_wait_end(struct seat *seat);
/* It looks whether its wait is over, or some other that it is in meanwhile. */
void seat_polls(struct seat *seat, uint64_t now);
/* From here on it is in this work, or in none. Returns what it was in before.
 */
enum comm_work seat_work(struct seat *seat, enum comm_work work);
void seat_goes_on(struct seat *seat);
void seat_leave(struct seat *seat);

/* --- anyone's ------------------------------------------------------------ */

struct seat_look { /* at one moment */
    enum seat_state state;
    enum comm_work work;
    enum seat_lane lane; /* that it waits in */
    uint64_t number;
    uint64_t since; /* it is in this state */
};
struct seat_look seat_look(const struct seat *seat);

/* The state of a rank; for other processes, as received in a datagram. */
struct seat_told {
    uint64_t begun[SEAT_LANES], done[SEAT_LANES];
    struct seat_op waits; /* what it waits for, or its GPU is in */
    uint32_t silent_ms;   /* since its last sign */
    uint32_t poll_ms;     /* since it looked whether its wait is over */
    uint8_t state, work;
    uint8_t unused[6];
};
struct seat_told seat_tell(const struct seat *seat);
/* Clear fields with values that a datagram may not have. */
void seat_told_check(struct seat_told *told, int size);

/* Kind, type and bytes of a collective in one word; type and bytes are 0 if
 * unknown. */
uint64_t seat_word(enum seat_kind kind, enum dtype type, uint64_t bytes);
/* A group's name as a small number; 0: none is known. */
int seat_group(const char *name);
/* The ranks of a group, and its name, in one word; 0: all. */
uint64_t seat_row(int group, int first, int stride, int count);
/* Whether seat_word makes such words: those of datagrams may be any. */
bool seat_word_is_known(uint64_t word);
/* Whether its group, word and lane are such as these make, for so many ranks.
 */
bool seat_op_is_known(const struct seat_op *op, int size);
/* "all_gather #11 (fp32, 120000 bytes) of cp (ranks 4, 6)"; without the number
 * where that is 0, without the group where it is all ranks. */
enum { SEAT_TEXT = 192 };
void seat_op_text(const struct seat_op *op, char out[SEAT_TEXT]);
/* The rank's collective of this number; word 0: not entered, or too long ago.
 */
struct seat_op seat_op_at(
        const struct seat *seat, enum seat_lane lane, uint64_t number);
/* Of operations that end by themselves, the oldest that is begun and not done;
 * word 0: there is none. */
struct seat_op seat_pending(const struct seat *seat);
/* Whether this work reports its own progress. */
bool seat_work_says(enum comm_work work);
