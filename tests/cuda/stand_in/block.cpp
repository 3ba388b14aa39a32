/* block.cpp - the threads of a block as fibres.
 *
 * Threads are started one after the other on one stack; the first that must
 * wait keeps that stack, and the next one gets another. A kernel in which
 * nobody waits is therefore a loop over its threads. A warp runs until none of
 * its lanes can go on, then the next warp does: `ready` has a bit for each
 * thread that may run.
 *
 * A wait is a barrier of the block, or a meeting of the lanes of a mask.
 * Meetings are found by mask and by place in the source: lanes that meet under
 * another mask, or elsewhere, never come together, and when nobody can run any
 * more that is told. What the lanes gave stays in the meeting until all have
 * left it, by their next meeting or their end. */
#include "tests/cuda/stand_in/engine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

__thread struct zd_emulate_dim zd_emulate_thread, zd_emulate_block;
__thread struct zd_emulate_dim zd_emulate_block_dim, zd_emulate_grid_dim;
__thread unsigned zd_emulate_flat_thread;
__thread unsigned char *zd_emulate_shared;

namespace standin
{
__thread struct engine *here;

namespace
{
const size_t SHARED_BYTES = 227 << 10, PAGE = 4096;

#define RARELY(condition) __builtin_expect(!!(condition), 0)

/* Literals of one source file are one pointer; those of a header are not. */
inline bool is_file(const char *a, const char *b)
{
    return a == b || !strcmp(a, b);
}

void set_current(struct engine *e, unsigned thread)
{
    e->current = thread;
    zd_emulate_thread = e->index[thread];
    zd_emulate_flat_thread = thread;
}

unsigned one_of(const struct engine *e, uint32_t bits)
{
    return e->reversed ? 31 - (unsigned)__builtin_clz(bits)
                       : (unsigned)__builtin_ctz(bits);
}

/* The next thread that may run, this warp's first; -1: none. */
int pick(struct engine *e)
{
    unsigned w = e->current / WARP;
    if (!e->warp[w].ready) {
        if (!e->ready_warps)
            return -1;
        w = one_of(e, e->ready_warps);
    }
    return (int)(w * WARP + one_of(e, e->warp[w].ready));
}

void set_waiting(struct engine *e, unsigned thread)
{
    struct warp *w = &e->warp[thread / WARP];
    w->ready &= ~(1u << thread % WARP);
    if (!w->ready)
        e->ready_warps &= ~(1u << thread / WARP);
}

void set_ready(struct engine *e, unsigned warp, uint32_t lanes)
{
    e->warp[warp].ready |= lanes;
    if (e->warp[warp].ready)
        e->ready_warps |= 1u << warp;
}

/* --- meetings ------------------------------------------------------------ */

void leave_meeting(struct engine *e, struct warp *w, unsigned lane)
{
    struct meeting *m = w->held[lane];
    if (!m)
        return;
    w->held[lane] = nullptr;
    m->left |= 1u << lane;
    if (m->left == m->mask) {
        m->next = e->free_meetings;
        e->free_meetings = m;
    }
}

struct meeting *join_meeting(
        struct engine *e, struct warp *w, uint32_t mask, unsigned count,
        const struct site &site)
{
    for (struct meeting *m = w->open; m; m = m->next)
        if (m->mask == mask && m->site.line == site.line && m->count == count &&
            m->site.op == site.op && is_file(m->site.file, site.file))
            return m;
    struct meeting *m = e->free_meetings;
    if (m) {
        e->free_meetings = m->next;
    } else {
        m = new struct meeting;
        m->next_made = e->made_meetings;
        e->made_meetings = m;
    }
    m->site = site;
    m->mask = mask;
    m->arrived = m->left = 0;
    m->count = count;
    m->stride = count <= 4 ? 4 : count <= 8 ? 8 : (count + 15) / 16 * 16;
    m->next = w->open;
    w->open = m;
    return m;
}

void close_meeting(struct engine *e, unsigned warp, struct meeting *meeting)
{
    struct warp *w = &e->warp[warp];
    struct meeting **at = &w->open;
    while (*at != meeting)
        at = &(*at)->next;
    *at = meeting->next;
    set_ready(e, warp, meeting->mask);
}

/* Who waits at the barrier waits for all. */
inline void check_ended(struct engine *e)
{
    if (e->ended && e->waiting)
        fail_ended(e);
}

/* --- fibres -------------------------------------------------------------- */

void fibre_loop(void);

struct fibre *take_fibre(struct engine *e)
{
    if (e->idle_count)
        return e->idle[--e->idle_count];
    struct fibre *fibre = new struct fibre;
    fibre_init(fibre, fibre_loop, (int)e->all_count);
    e->all[e->all_count++] = fibre;
    return fibre;
}

/* To the fibre of a thread that may run. */
struct fibre *resume(struct engine *e, unsigned thread)
{
    struct warp *w = &e->warp[thread / WARP];
    uint32_t bit = 1u << thread % WARP;
    set_current(e, thread);
    if (w->started & bit)
        return e->fibre_of[thread];
    return take_fibre(e);
}

void change_to(struct engine *e, struct fibre *to)
{
    struct fibre *from = e->running;
    e->running = to;
    fibre_switch(from, to);
}

/* The current thread cannot go on. */
void wait_here(struct engine *e)
{
    int next = pick(e);
    if (RARELY(next < 0))
        stuck(e);
    e->fibre_of[e->current] = e->running;
    change_to(e, resume(e, (unsigned)next));
}

void end_thread(struct engine *e)
{
    unsigned thread = e->current, lane = thread % WARP;
    struct warp *w = &e->warp[thread / WARP];
    leave_meeting(e, w, lane);
    w->alive &= ~(1u << lane);
    set_waiting(e, thread);
    if (!e->ended++)
        e->first_ended = thread;
    check_ended(e);
}

/* What every fibre does: threads that have not begun, one after the other. */
void fibre_loop(void)
{
    fibre_arrived();
    struct engine *e = here;
    for (;;) {
        unsigned thread = e->current;
        e->warp[thread / WARP].started |= 1u << thread % WARP;
        e->launch->run(e->launch->args);
        end_thread(e);
        int next = pick(e);
        if (next < 0 && e->ended < e->threads)
            stuck(e);
        struct fibre *self = e->running;
        if (next < 0) {
            e->idle[e->idle_count++] = self;
            change_to(e, &e->main);
        } else if (e->warp[next / WARP].started >> next % WARP & 1) {
            e->idle[e->idle_count++] = self;
            change_to(e, resume(e, (unsigned)next));
        } else {
            set_current(e, (unsigned)next);
        }
    }
}

void reset_fibres(struct engine *e)
{
    e->idle_count = 0;
    for (unsigned i = 0; i < e->all_count; i++) {
        fibre_reset(e->all[i], fibre_loop);
        e->idle[e->idle_count++] = e->all[i];
    }
}

void begin_block(struct engine *e)
{
    e->waiting = e->ended = 0;
    e->error = cudaSuccess;
    e->ready_warps = 0;
    e->barrier_at = ++e->clock;
    for (unsigned i = 0; i < e->warps; i++) {
        struct warp *w = &e->warp[i];
        unsigned lanes = e->threads - i * WARP;
        memset(w, 0, sizeof *w);
        w->present = lanes >= WARP ? ~0u : (1u << lanes) - 1;
        w->alive = w->present;
        set_ready(e, i, w->present);
    }
    e->reversed = settings().reversed;
    set_current(e, e->reversed ? e->threads - 1 : 0);
}

void free_all_meetings(struct engine *e)
{
    e->free_meetings = e->made_meetings;
    for (struct meeting *m = e->made_meetings; m; m = m->next_made)
        m->next = m->next_made;
}
} // namespace

struct engine *engine_create(void)
{
    watch_faults();
    struct engine *e = new struct engine();
    size_t bytes = (SHARED_BYTES + PAGE - 1) / PAGE * PAGE;
    void *memory =
            mmap(nullptr, bytes + PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!e || memory == MAP_FAILED ||
        mprotect(static_cast<char *>(memory) + bytes, PAGE, PROT_NONE)) {
        perror("stand-in: shared memory");
        abort();
    }
    e->shared_map = static_cast<unsigned char *>(memory);
    return e;
}

void engine_begin(struct engine *e, const struct zd_emulate_launch *launch)
{
    e->launch = launch;
    const unsigned *b = launch->block, *g = launch->grid;
    e->threads = b[0] * b[1] * b[2];
    e->warps = (e->threads + WARP - 1) / WARP;
    if (memcmp(e->block_dim, b, sizeof e->block_dim)) {
        memcpy(e->block_dim, b, sizeof e->block_dim);
        for (unsigned i = 0; i < e->threads; i++)
            e->index[i] = {i % b[0], i / b[0] % b[1], i / b[0] / b[1]};
    }
    e->grid = {g[0], g[1], g[2]};
    zd_emulate_block_dim = {b[0], b[1], b[2]};
    zd_emulate_grid_dim = e->grid;
    size_t bytes = (SHARED_BYTES + PAGE - 1) / PAGE * PAGE;
    zd_emulate_shared =
            e->shared_map + bytes - (launch->shared_bytes + 127) / 128 * 128;
    e->statics = static_shared_here(launch->kernel);
    if (!e->has_owner || !pthread_equal(e->owner, pthread_self())) {
        /* compilers keep addresses of thread-local memory: those that the
         * fibres have seen are of another thread */
        reset_fibres(e);
        fibre_adopt(&e->main);
        e->owner = pthread_self();
        e->has_owner = true;
    }
}

cudaError_t engine_run_block(struct engine *e, uint64_t block)
{
    const struct zd_emulate_dim &g = e->grid;
    zd_emulate_block = {
            (unsigned)(block % g.x), (unsigned)(block / g.x % g.y),
            (unsigned)(block / g.x / g.y)};
    if (e->launch->shared_bytes)
        memset(zd_emulate_shared, 0xff, e->launch->shared_bytes);
    if (e->statics.base)
        for (const auto &part : e->statics.parts)
            memset(e->statics.base + part.first, 0xff, part.second);
    here = e;
    begin_block(e);
    struct fibre *first = take_fibre(e);
    e->running = first;
    fibre_switch(&e->main, first);
    e->running = nullptr;
    if (e->error) {
        free_all_meetings(e);
        reset_fibres(e);
    }
    return e->error;
}

} // namespace standin

using namespace standin;

/* A barrier that orders nothing in the eyes of races.cpp. */
static bool is_left_out(const char *file, int line)
{
    const char *name = settings().left_out_file;
    if (!name || settings().left_out_line != line)
        return false;
    const char *slash = strrchr(file, '/');
    return !strcmp(slash ? slash + 1 : file, name);
}

void zd_emulate_barrier(const char *file, int line)
{
    struct engine *e = here;
    unsigned thread = e->current;
    leave_meeting(e, &e->warp[thread / WARP], thread % WARP);
    if (!e->waiting++) {
        e->barrier = {"__syncthreads", file, line};
        e->first_waiting = thread;
    } else if (RARELY(e->barrier.line != line ||
                      !is_file(e->barrier.file, file))) {
        fail_barrier(e, file, line);
    }
    if (RARELY(e->ended))
        check_ended(e);
    if (e->waiting == e->threads) {
        e->waiting = 0;
        if (!RARELY(is_left_out(file, line)))
            e->barrier_at = ++e->clock;
        for (unsigned i = 0; i < e->warps; i++)
            set_ready(e, i, e->warp[i].alive);
        return;
    }
    set_waiting(e, thread);
    wait_here(e);
}

/* What most exchanges give; the sizes that are known are no calls. */
static inline void put(void *to, const void *from, unsigned count)
{
    if (count == 4)
        memcpy(to, from, 4);
    else if (count == 8)
        memcpy(to, from, 8);
    else if (count)
        memcpy(to, from, count);
}

struct zd_emulate_lanes zd_emulate_warp_exchange(
        unsigned mask, const void *bytes, unsigned count, const char *op,
        const char *file, int line)
{
    struct engine *e = here;
    unsigned thread = e->current, warp = thread / WARP, lane = thread % WARP;
    struct warp *w = &e->warp[warp];
    leave_meeting(e, w, lane);
    if (RARELY(!(mask >> lane & 1) || mask & ~w->alive ||
               count > ZD_EMULATE_EXCHANGE_BYTES))
        fail_exchange(e, mask, count, op, file, line);
    struct meeting *m = join_meeting(e, w, mask, count, {op, file, line});
    put(m->bytes + lane * m->stride, bytes, count);
    m->arrived |= 1u << lane;
    w->held[lane] = m;
    if (m->arrived == mask) {
        if (!strcmp(op, "__syncwarp") && !is_left_out(file, line))
            w->sync_at = ++e->clock;
        close_meeting(e, warp, m);
    } else {
        set_waiting(e, thread);
        wait_here(e);
    }
    return {m->bytes, m->stride};
}
