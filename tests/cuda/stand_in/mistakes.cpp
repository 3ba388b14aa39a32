/* mistakes.cpp - what a kernel does wrong: said with its name, block and
 * thread, and its block ends. */
#include "tests/cuda/stand_in/engine.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace standin
{
namespace
{
void where(const struct engine *e, unsigned thread, char *out, size_t bytes)
{
    const struct zd_emulate_dim &t = e->index[thread];
    snprintf(
            out, bytes, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
            e->launch->name, zd_emulate_block.x, zd_emulate_block.y,
            zd_emulate_block.z, t.x, t.y, t.z);
}

[[noreturn]] void give_up(
        struct engine *e, cudaError_t error = cudaErrorLaunchFailure)
{
    e->error = error;
    struct fibre *from = e->running;
    e->running = &e->main;
    fibre_switch(from, &e->main);
    abort(); /* its stack is reset before it is used again */
}

void describe(struct engine *e, unsigned thread, char *out, size_t bytes)
{
    const struct warp &w = e->warp[thread / WARP];
    const struct meeting *m = w.held[thread % WARP];
    const struct site &site = m ? m->site : e->barrier;
    uint32_t bit = 1u << thread % WARP;
    if (!(w.present & bit))
        snprintf(out, bytes, "is not in the block");
    else if (!(w.alive & bit))
        snprintf(out, bytes, "has ended");
    else
        snprintf(
                out, bytes, "waits in %s at %s:%d", site.op, site.file,
                site.line);
}

/* A kernel touches what is no memory: as on a GPU an error that stays, and the
 * process goes on. Anybody else's fault is what it always is. */
void on_fault(int number, siginfo_t *info, void *context)
{
    struct engine *e = here;
    if (!e || !e->running || e->running == &e->main) {
        signal(number, SIG_DFL);
        return;
    }
    char who[256];
    where(e, e->current, who, sizeof who);
    report("%s: touches %p, where no memory is%s", who, info->si_addr,
           info->si_addr
                   ? ""
                   : " (or an address of the device, which only arguments "
                     "of kernels may carry)");
    give_up(e, cudaErrorIllegalAddress);
}

} // namespace

void watch_faults(void)
{
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {}, before;
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        for (int number : {SIGSEGV, SIGBUS})
            if (!sigaction(number, nullptr, &before) &&
                before.sa_handler == SIG_DFL)
                sigaction(number, &action, nullptr);
    });
}

void stuck(struct engine *e)
{
    char who[256], state[256];
    for (unsigned i = 0; i < e->warps; i++) {
        const struct meeting *m = e->warp[i].open;
        if (!m)
            continue;
        unsigned first = i * WARP + (unsigned)__builtin_ctz(m->arrived);
        unsigned lane = (unsigned)__builtin_ctz(m->mask & ~m->arrived);
        where(e, first, who, sizeof who);
        describe(e, i * WARP + lane, state, sizeof state);
        report("%s: %s at %s:%d waits for lane %u of the mask %08x, which %s",
               who, m->site.op, m->site.file, m->site.line, lane, m->mask,
               state);
        give_up(e);
    }
    where(e, e->first_waiting, who, sizeof who);
    report("%s: waits at the barrier %s:%d for threads that do not come", who,
           e->barrier.file, e->barrier.line);
    give_up(e);
}

void fail_ended(struct engine *e)
{
    char who[256];
    where(e, e->first_waiting, who, sizeof who);
    const struct zd_emulate_dim &t = e->index[e->first_ended];
    report("%s: waits at the barrier %s:%d, and thread (%u,%u,%u) has ended",
           who, e->barrier.file, e->barrier.line, t.x, t.y, t.z);
    give_up(e);
}

void fail_barrier(struct engine *e, const char *file, int line)
{
    char who[256];
    where(e, e->current, who, sizeof who);
    const struct zd_emulate_dim &t = e->index[e->first_waiting];
    report("%s: reaches the barrier %s:%d while thread (%u,%u,%u) waits at "
           "another, %s:%d",
           who, file, line, t.x, t.y, t.z, e->barrier.file, e->barrier.line);
    give_up(e);
}

void fail_exchange(
        struct engine *e, unsigned mask, unsigned count, const char *op,
        const char *file, int line)
{
    unsigned thread = e->current, warp = thread / WARP;
    unsigned gone = mask & ~e->warp[warp].alive;
    if (!(mask >> thread % WARP & 1))
        zd_emulate_fail(
                file, line,
                "%s with mask %08x, which lacks the calling lane %u", op, mask,
                thread % WARP);
    if (!gone)
        zd_emulate_fail(file, line, "%s of %u bytes", op, count);
    unsigned missing = (unsigned)__builtin_ctz(gone);
    char state[256];
    describe(e, warp * WARP + missing, state, sizeof state);
    zd_emulate_fail(
            file, line, "%s with mask %08x, of which lane %u %s", op, mask,
            missing, state);
}

} // namespace standin

using namespace standin;

void zd_emulate_fail(const char *file, int line, const char *format, ...)
{
    struct engine *e = here;
    char who[256], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    where(e, e->current, who, sizeof who);
    report("%s: %s (%s:%d)", who, what, file, line);
    give_up(e);
}
