/* A seat's content, and how others read it. */
#include "comm/watch/seat.h"

#include "base/text_buffer.h"
#include "base/threads.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t seat_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void seat_init(struct seat *seat)
{
    memset(seat, 0, sizeof *seat);
    pthread_mutex_init(&seat->lock, NULL);
}

/* --- the owner's ---------------------------------------------------------- */

void seat_begin(struct seat *seat, const struct seat_op *op)
{
    ZD_LOCKED(&seat->lock);
    uint64_t *begun = &seat->begun[op->lane];
    assert(*begun < op->number);
    seat->sign = seat_clock();
    if (op->lane == LANE_OPERATIONS && seat->done[op->lane] == *begun)
        seat->pending_since = seat->sign;
    *begun = op->number;
    seat->ops[op->lane][op->number % SEAT_RECORD] = *op;
}

static void enter(struct seat *seat, enum seat_state state)
{
    seat->state = state;
    seat->since = seat_clock();
}

static void go_on(struct seat *seat, enum comm_work work)
{
    seat->work = work;
    enter(seat, work ? SEAT_WORKS : SEAT_RUNS);
}

void seat_wait_begin(struct seat *seat, enum seat_lane lane, uint64_t number)
{
    ZD_LOCKED(&seat->lock);
    assert(seat->state == SEAT_RUNS || seat->state == SEAT_WORKS);
    seat->lane = lane;
    seat->number = number;
    enter(seat, SEAT_WAITS);
}

/* With the lock. */
static void note_done(struct seat *seat, enum seat_lane lane, uint64_t number)
{
    if (seat->done[lane] >= number)
        return;
    seat->done[lane] = number;
    if (lane == LANE_OPERATIONS)
        seat->pending_since = seat_clock();
}

void seat_wait_end(struct seat *seat)
{
    ZD_LOCKED(&seat->lock);
    assert(seat->state == SEAT_WAITS);
    note_done(seat, seat->lane, seat->number);
    seat->waited += seat_clock() - seat->since;
    go_on(seat, seat->work);
}

void seat_polls(struct seat *seat, uint64_t now)
{
    ZD_LOCKED(&seat->lock);
    seat->polled = now;
}

enum comm_work seat_work(struct seat *seat, enum comm_work work)
{
    ZD_LOCKED(&seat->lock);
    enum comm_work before = seat->work;
    assert(seat->state == SEAT_RUNS || seat->state == SEAT_WORKS);
    go_on(seat, work);
    return before;
}

void seat_goes_on(struct seat *seat)
{
    ZD_LOCKED(&seat->lock);
    seat->sign = seat_clock();
}

void seat_step(struct seat *seat, int64_t step)
{
    ZD_LOCKED(&seat->lock);
    seat->step = step;
}

void seat_leave(struct seat *seat)
{
    ZD_LOCKED(&seat->lock);
    seat->work = WORK_NONE;
    enter(seat, SEAT_LEFT);
}

/* --- anyone's ------------------------------------------------------------- */

void seat_done(struct seat *seat, uint64_t number)
{
    ZD_LOCKED(&seat->lock);
    note_done(seat, LANE_OPERATIONS, number);
}

double seat_waited(struct seat *seat)
{
    ZD_LOCKED(&seat->lock);
    return 1e-6 * (double)seat->waited;
}

/* The collective of this number; none: not entered, or too long ago. */
static struct seat_op op_at(
        const struct seat *seat, enum seat_lane lane, uint64_t number)
{
    uint64_t begun = seat->begun[lane];
    bool is_known =
            number > 0 && number <= begun && begun - number < SEAT_RECORD;
    return is_known ? seat->ops[lane][number % SEAT_RECORD]
                    : (struct seat_op){0};
}

/* Of operations that end by themselves, the oldest that is not done. */
static struct seat_op find_pending(const struct seat *seat)
{
    uint64_t number = seat->done[LANE_OPERATIONS];
    struct seat_op op = {0};
    while (seat->runs_alone && number < seat->begun[LANE_OPERATIONS] &&
           !op.kind)
        op = op_at(seat, LANE_OPERATIONS, ++number);
    return op;
}

static uint32_t ms_since(uint64_t now, uint64_t then)
{
    uint64_t ms = now > then ? (now - then) / 1000 : 0;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct seat_told seat_tell(struct seat *seat)
{
    ZD_LOCKED(&seat->lock);
    uint64_t now = seat_clock();
    bool waits = seat->state == SEAT_WAITS, looks = waits && seat->polled;
    struct seat_told told = {
            .waits = waits ? op_at(seat, seat->lane, seat->number)
                           : find_pending(seat),
            .since = waits ? seat->since : seat->pending_since,
            .step = seat->step,
            .silent_ms = ms_since(now, later(seat->sign, seat->since)),
            .poll_ms =
                    looks ? ms_since(now, later(seat->polled, seat->since)) : 0,
            .state = (uint8_t)seat->state,
            .work = (uint8_t)seat->work};
    memcpy(told.begun, seat->begun, sizeof told.begun);
    memcpy(told.done, seat->done, sizeof told.done);
    return told;
}

/* --- words ---------------------------------------------------------------- */

/* " of cp (ranks 0, 2, 4)", "(ranks 4-7)", "(ranks 0, 2, .. 14)". */
static void add_group(const struct seat_op *op, struct text_buffer *text)
{
    enum { LISTED = 4 };
    uint32_t last = op->first + (op->count - 1) * op->stride;
    text_buffer_add(text, " of %s (ranks %u", op->group, op->first);
    if (op->stride == 1 && op->count > 2) {
        text_buffer_add(text, "-%u)", last);
        return;
    }
    for (uint32_t p = 1; p + 1 < op->count && p < LISTED - 1; p++)
        text_buffer_add(text, ", %u", op->first + p * op->stride);
    text_buffer_add(text, op->count > LISTED ? ", .. %u)" : ", %u)", last);
}

void seat_op_text(const struct seat_op *op, char out[SEAT_TEXT])
{
    static const char *const names[SEAT_KINDS] = {
            [SEAT_NOTHING] = "a collective",
            [SEAT_ALL_GATHER] = "all_gather",
            [SEAT_REDUCE_SCATTER] = "reduce_scatter",
            [SEAT_ALL_TO_ALL] = "all_to_all",
            [SEAT_BARRIER] = "barrier",
            [SEAT_BROADCAST] = "broadcast",
            [SEAT_GATHER] = "gather",
            [SEAT_ALL_REDUCE] = "all_reduce",
            [SEAT_JOIN] = "the ranks' start",
            [SEAT_PART] = "the ranks' end"};
    struct text_buffer text = {.out = out, .bytes = SEAT_TEXT};
    text_buffer_add(&text, "%s", names[op->kind]);
    if (op->number > 0 && op->kind != SEAT_JOIN && op->kind != SEAT_PART)
        text_buffer_add(&text, " #%llu", (unsigned long long)op->number);
    if (op->kind && op->lane == LANE_OPERATIONS)
        text_buffer_add(
                &text, " (%s, %llu bytes)", dtype_name((enum dtype)op->type),
                (unsigned long long)op->bytes);
    if (op->count)
        add_group(op, &text);
}
