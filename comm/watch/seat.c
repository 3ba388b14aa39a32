/* A seat's content, and how others read it. */
#include "comm/watch/seat.h"

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

/* --- state, work, lane and since in one word ------------------------------ */

enum { ROW_BITS = 20, ROW_MASK = (1 << ROW_BITS) - 1 };
enum { STATE_BIT = 60, WORK_BIT = 52, LANE_BIT = 51 };
static const uint64_t SINCE_MASK = ((uint64_t)1 << LANE_BIT) - 1;

static uint64_t pack(
        enum seat_state state, enum comm_work work, enum seat_lane lane)
{
    return (uint64_t)state << STATE_BIT | (uint64_t)work << WORK_BIT |
           (uint64_t)lane << LANE_BIT | (seat_clock() & SINCE_MASK);
}

static enum seat_state state_of(uint64_t doing)
{
    return (enum seat_state)(doing >> STATE_BIT);
}

static enum comm_work work_of(uint64_t doing)
{
    return (enum comm_work)(doing >> WORK_BIT & 0xff);
}

static enum seat_lane lane_of(uint64_t doing)
{
    return (enum seat_lane)(doing >> LANE_BIT & 1);
}

/* --- the owner's ---------------------------------------------------------- */

void seat_begin(
        struct seat *seat, enum seat_lane lane, uint64_t number, uint64_t word,
        uint64_t row)
{
    atomic_store(&seat->lanes[lane].what[number % SEAT_RECORD], word);
    atomic_store(&seat->lanes[lane].row[number % SEAT_RECORD], row);
    assert(atomic_load(&seat->lanes[lane].begun) < number);
    atomic_store(&seat->lanes[lane].begun, number);
    atomic_store(&seat->sign, seat_clock());
}

void seat_wait_begin(struct seat *seat, enum seat_lane lane, uint64_t number)
{
    uint64_t doing = atomic_load(&seat->doing);
    assert(state_of(doing) == SEAT_RUNS || state_of(doing) == SEAT_WORKS);
    atomic_store(&seat->number, number);
    atomic_store(&seat->doing, pack(SEAT_WAITS, work_of(doing), lane));
}

void seat_wait_end(struct seat *seat)
{
    uint64_t doing = atomic_load(&seat->doing);
    enum comm_work work = work_of(doing);
    uint64_t number = atomic_load(&seat->number);
    assert(state_of(doing) == SEAT_WAITS);
    enum seat_lane lane = lane_of(doing);
    if (atomic_load(&seat->lanes[lane].done) < number)
        atomic_store(&seat->lanes[lane].done, number);
    atomic_fetch_add(&seat->waited, seat_clock() - (doing & SINCE_MASK));
    atomic_store(&seat->doing, pack(work ? SEAT_WORKS : SEAT_RUNS, work, 0));
}

void seat_polls(struct seat *seat, uint64_t now)
{
    atomic_store(&seat->polled, now);
}

enum comm_work seat_work(struct seat *seat, enum comm_work work)
{
    uint64_t doing = atomic_load(&seat->doing);
    assert(state_of(doing) == SEAT_RUNS || state_of(doing) == SEAT_WORKS);
    atomic_store(&seat->doing, pack(work ? SEAT_WORKS : SEAT_RUNS, work, 0));
    return work_of(doing);
}

void seat_goes_on(struct seat *seat)
{
    atomic_store(&seat->sign, seat_clock());
}

void seat_leave(struct seat *seat)
{
    atomic_store(&seat->doing, pack(SEAT_LEFT, WORK_NONE, 0));
}

/* --- anyone's ------------------------------------------------------------ */

/* The number belongs to the state that was there before and after it was read:
 * `since` makes each state another word. */
struct seat_look seat_look(const struct seat *seat)
{
    enum { TRIES = 100 };
    uint64_t doing = atomic_load(&seat->doing), number = 0;
    for (int i = 0; i < TRIES; i++) {
        number = atomic_load(&seat->number);
        uint64_t again = atomic_load(&seat->doing);
        if (again == doing)
            break;
        doing = again;
    }
    return (struct seat_look){
            .state = state_of(doing),
            .work = work_of(doing),
            .lane = lane_of(doing),
            .number = number,
            .since = doing & SINCE_MASK};
}

static uint32_t ms_since(uint64_t now, uint64_t then)
{
    uint64_t ms = now > then ? (now - then) / 1000 : 0;
    return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

struct seat_told seat_tell(const struct seat *seat)
{
    struct seat_look look = seat_look(seat);
    uint64_t sign = atomic_load(&seat->sign), now = seat_clock();
    uint64_t polled = atomic_load(&seat->polled);
    bool waits = look.state == SEAT_WAITS;
    if (!polled || !waits)
        polled = now;
    else if (polled < look.since)
        polled = look.since;
    struct seat_told told = {
            .waits = waits ? seat_op_at(seat, look.lane, look.number)
                           : seat_pending(seat),
            .silent_ms = ms_since(now, sign > look.since ? sign : look.since),
            .poll_ms = ms_since(now, polled),
            .state = (uint8_t)look.state,
            .work = (uint8_t)look.work};
    for (int lane = 0; lane < SEAT_LANES; lane++) {
        told.begun[lane] = atomic_load(&seat->lanes[lane].begun);
        told.done[lane] = atomic_load(&seat->lanes[lane].done);
    }
    return told;
}

/* Of comm_group_create. */
enum { GROUPS = 5 };
static const char *const group_names[GROUPS] = {
        "a group", "shard", "replicate", "cp", "tp"};

static bool is_row(const struct seat_op *op, uint64_t size)
{
    return op->count == 0 ||
           (op->stride > 0 && op->count <= size &&
            op->first + (uint64_t)(op->count - 1) * op->stride < size);
}

void seat_told_check(struct seat_told *told, int size)
{
    if (told->state >= SEAT_STATES)
        told->state = SEAT_RUNS;
    if (told->work >= WORKS)
        told->work = WORK_NONE;
    if (!seat_op_is_known(&told->waits, size))
        told->waits = (struct seat_op){0};
}

bool seat_op_is_known(const struct seat_op *op, int size)
{
    return seat_word_is_known(op->word) && op->lane < SEAT_LANES &&
           op->group < GROUPS && is_row(op, (uint64_t)size);
}

struct seat_op seat_op_at(
        const struct seat *seat, enum seat_lane lane, uint64_t number)
{
    uint64_t begun = atomic_load(&seat->lanes[lane].begun);
    if (number == 0 || begun < number || begun - number >= SEAT_RECORD)
        return (struct seat_op){0};
    uint64_t row = atomic_load(&seat->lanes[lane].row[number % SEAT_RECORD]);
    return (struct seat_op){
            .word = atomic_load(&seat->lanes[lane].what[number % SEAT_RECORD]),
            .number = number,
            .lane = (uint16_t)lane,
            .group = (uint16_t)(row >> 3 * ROW_BITS),
            .first = (uint32_t)(row >> 2 * ROW_BITS & ROW_MASK),
            .stride = (uint32_t)(row >> ROW_BITS & ROW_MASK),
            .count = (uint32_t)(row & ROW_MASK)};
}

struct seat_op seat_pending(const struct seat *seat)
{
    uint64_t begun = atomic_load(&seat->lanes[LANE_OPERATIONS].begun);
    uint64_t number = atomic_load(&seat->lanes[LANE_OPERATIONS].done);
    struct seat_op op = {0};
    while (atomic_load(&seat->runs_alone) && number < begun && !op.word)
        op = seat_op_at(seat, LANE_OPERATIONS, ++number);
    return op;
}

/* --- words ---------------------------------------------------------------- */

static const char *kind_name(enum seat_kind kind)
{
    static const char *const names[SEAT_KINDS] = {
            "a collective", /* of a word that is not told */
            [SEAT_ALL_GATHER] = "all_gather",
            [SEAT_REDUCE_SCATTER] = "reduce_scatter",
            [SEAT_ALL_TO_ALL] = "all_to_all",
            [SEAT_BARRIER] = "barrier",
            [SEAT_BROADCAST] = "broadcast",
            [SEAT_GATHER] = "gather",
            [SEAT_ALL_REDUCE] = "all_reduce",
            [SEAT_JOIN] = "the ranks' start",
            [SEAT_PART] = "the ranks' end"};
    return names[kind];
}

bool seat_work_says(enum comm_work work)
{
    return work == WORK_EVALUATE || work == WORK_SAMPLE;
}

enum { TYPE_BIT = 48, KIND_BIT = 56 };

static bool has_type(uint64_t kind)
{
    return kind == SEAT_ALL_GATHER || kind == SEAT_REDUCE_SCATTER ||
           kind == SEAT_ALL_TO_ALL;
}

uint64_t seat_word(enum seat_kind kind, enum dtype type, uint64_t bytes)
{
    uint64_t width = has_type(kind) ? (uint64_t)type : 0;
    return (uint64_t)kind << KIND_BIT | width << TYPE_BIT | bytes;
}

int seat_group(const char *name)
{
    int group = GROUPS - 1;
    while (group > 0 && strcmp(name, group_names[group]) != 0)
        group--;
    return group;
}

uint64_t seat_row(int group, int first, int stride, int count)
{
    assert((first | stride | count) <= ROW_MASK);
    return (((uint64_t)group << ROW_BITS | (uint64_t)first) << ROW_BITS |
            (uint64_t)stride)
                   << ROW_BITS |
           (uint64_t)count;
}

bool seat_word_is_known(uint64_t word)
{
    uint64_t kind = word >> KIND_BIT, type = word >> TYPE_BIT & 0xff;
    return kind >= SEAT_ALL_GATHER && kind < SEAT_KINDS &&
           type <= (has_type(kind) ? (uint64_t)DTYPE_FP16 : 0);
}

static uint64_t bytes_of(uint64_t word)
{
    return word & (((uint64_t)1 << TYPE_BIT) - 1);
}

/* " of cp (ranks 0, 2, 4)", "(ranks 4-7)", "(ranks 0, 2, .. 14)". */
static void group_text(const struct seat_op *op, char *out, size_t out_bytes)
{
    enum { LISTED = 4 };
    size_t used = 0;
    uint32_t last = op->first + (op->count - 1) * op->stride;
    if (op->count == 0)
        return;
    used += (size_t)snprintf(
            out, out_bytes, " of %s (ranks %u", group_names[op->group],
            op->first);
    if (op->stride == 1 && op->count > 2) {
        snprintf(out + used, out_bytes - used, "-%u)", last);
        return;
    }
    for (uint32_t p = 1; p + 1 < op->count && p < LISTED - 1; p++)
        used += (size_t)snprintf(
                out + used, out_bytes - used, ", %u",
                op->first + p * op->stride);
    snprintf(
            out + used, out_bytes - used,
            op->count > LISTED ? ", .. %u)" : ", %u)", last);
}

void seat_op_text(const struct seat_op *op, char out[SEAT_TEXT])
{
    enum seat_kind kind = (enum seat_kind)(op->word >> KIND_BIT);
    enum dtype type = (enum dtype)(op->word >> TYPE_BIT & 0xff);
    char count[24] = "", data[48] = "", group[96] = "";
    if (op->number > 0 && kind != SEAT_JOIN && kind != SEAT_PART)
        snprintf(count, sizeof count, " #%llu", (unsigned long long)op->number);
    if (has_type(kind))
        snprintf(
                data, sizeof data, " (%s, %llu bytes)", dtype_name(type),
                (unsigned long long)bytes_of(op->word));
    group_text(op, group, sizeof group);
    snprintf(out, SEAT_TEXT, "%s%s%s%s", kind_name(kind), count, data, group);
}
