/* The record of the last operations, and who is late. */
#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/private.h"
#include "comm/topology.h"

#include <stdlib.h>

enum { TOLD = 16 }; /* operations of the record that are printed */
/* --- the record ----------------------------------------------------------- */

struct flight *nccl_flight_of(struct nccl *nccl, uint64_t sequence)
{
    return &nccl->flights[sequence % FLIGHT_ENTRIES];
}

static void note_seat(struct nccl *nccl, const struct flight *flight)
{
    struct seat *seat = &nccl->seats[nccl->seat];
    atomic_store(
            &seat->what[flight->number % SEAT_RECORD],
            seat_word(flight->kind, flight->type, flight->bytes));
    atomic_store(&seat->begun, flight->number);
}

void nccl_note_begun(struct nccl *nccl, const struct comm_op *op)
{
    pthread_mutex_lock(&nccl->lock);
    *nccl_flight_of(nccl, op->sequence) = (struct flight){
            .number = op->sequence + 1,
            .kind = op->kind,
            .type = op->type,
            .bytes = op->count * dtype_bytes(op->type) *
                     (size_t)nccl->device.base.size,
            .begun = clock_seconds()};
    nccl->flight_count = op->sequence + 1;
    if (nccl->seats)
        note_seat(nccl, nccl_flight_of(nccl, op->sequence));
    pthread_mutex_unlock(&nccl->lock);
}

void nccl_note_queued(struct nccl *nccl, const struct comm_op *op)
{
    pthread_mutex_lock(&nccl->lock);
    nccl_flight_of(nccl, op->sequence)->queued = clock_seconds();
    pthread_mutex_unlock(&nccl->lock);
}

/* Operations end in the order in which they were queued. */
void nccl_note_done(struct nccl *nccl)
{
    while (nccl->flight_first < nccl->flight_count) {
        struct flight *flight = nccl_flight_of(nccl, nccl->flight_first);
        bool is_ours = flight->number == nccl->flight_first + 1;
        if (is_ours && !flight->queued)
            return;
        if (is_ours &&
            !event_is_done(nccl->done[nccl->flight_first % FLIGHT_ENTRIES]))
            return;
        if (is_ours)
            flight->done = clock_seconds();
        nccl->flight_first++;
        if (nccl->seats)
            atomic_store(&nccl->seats[nccl->seat].done, nccl->flight_first);
    }
}

static void tell_flight(struct nccl *nccl, const struct flight *flight)
{
    double now = clock_seconds();
    char state[96];
    if (flight->done)
        snprintf(
                state, sizeof state, "done after %.3f s",
                flight->done - flight->begun);
    else
        snprintf(
                state, sizeof state, "%s, begun %.1f s ago",
                flight->queued ? "under way" : "not queued yet",
                now - flight->begun);
    zd_log(ZD_LOG_ERROR, "  rank %d: #%llu %s %s %zu bytes: %s",
           nccl->device.base.rank, (unsigned long long)flight->number,
           seat_kind_name(flight->kind), dtype_name(flight->type),
           flight->bytes, state);
}

/* --- who is late ---------------------------------------------------------- */

/* The seats of this host's ranks are in the order of the ranks. */
static void look_at_seats(struct nccl *nccl, struct hosts_question *known)
{
    const struct comm *comm = &nccl->device.base;
    const struct seat *seat = nccl->seats;
    for (int r = 0; r < comm->size; r++) {
        if (!topology_same_host(comm->topology, r, comm->rank))
            continue;
        known->begun[r] = atomic_load(&seat->begun);
        known->done[r] = atomic_load(&seat->done);
        known->what[r] = seat_what(seat++, known->number);
        known->has_answered[r] = true;
    }
}

/* What is known of all ranks; with no memory for it, nothing. */
static bool look_around(struct nccl *nccl, struct hosts_question *known)
{
    size_t size = (size_t)nccl->device.base.size;
    known->begun = calloc(size, sizeof *known->begun);
    known->done = calloc(size, sizeof *known->done);
    known->what = calloc(size, sizeof *known->what);
    known->has_answered = calloc(size, sizeof *known->has_answered);
    if (!known->begun || !known->done || !known->what || !known->has_answered)
        return false;
    if (nccl->hosts)
        hosts_ask(nccl->hosts, known);
    if (nccl->seats)
        look_at_seats(nccl, known);
    return true;
}

static const char *host_of(const struct nccl *nccl, int rank)
{
    return nccl->device.base.topology->ranks[rank].host;
}

/* Ranks from `first` on that are on one host and of which nothing is known. */
static int tell_silent(
        const struct nccl *nccl, const struct hosts_question *known, int first)
{
    int last = first;
    while (last + 1 < nccl->device.base.size &&
           !known->has_answered[last + 1] &&
           topology_same_host(nccl->device.base.topology, last + 1, first))
        last++;
    char ranks[32];
    snprintf(
            ranks, sizeof ranks, last > first ? "ranks %d to %d" : "rank %d",
            first, last);
    zd_log(ZD_LOG_ERROR, "  %s, of %s, does not say how far it is",
           host_of(nccl, first), ranks);
    return last;
}

/* Under this number another rank has another collective than this one. NCCL may
 * hang then, or mix up what they hold. */
static bool tell_other(
        const struct nccl *nccl, const struct hosts_question *known, int rank)
{
    uint64_t own = known->what[nccl->device.base.rank];
    char theirs[64], ours[64];
    if (own == 0 || known->what[rank] == 0 || known->what[rank] == own)
        return false;
    seat_word_text(known->what[rank], theirs, sizeof theirs);
    seat_word_text(own, ours, sizeof ours);
    zd_log(ZD_LOG_ERROR, "  rank %d (%s) has %s as #%llu, this one %s", rank,
           host_of(nccl, rank), theirs, (unsigned long long)known->number,
           ours);
    return true;
}

/* All have queued it; one whose GPU or process stands still has finished less
 * than the others. */
static void tell_slow(struct nccl *nccl, const struct hosts_question *known)
{
    int size = nccl->device.base.size;
    uint64_t least = known->done[0], most = known->done[0];
    for (int r = 1; r < size; r++) {
        least = known->done[r] < least ? known->done[r] : least;
        most = known->done[r] > most ? known->done[r] : most;
    }
    for (int r = 0; r < size && least < most; r++)
        if (known->done[r] == least)
            zd_log(ZD_LOG_ERROR,
                   "  rank %d (%s) has finished least: up to #%llu, others up "
                   "to #%llu",
                   r, host_of(nccl, r), (unsigned long long)least,
                   (unsigned long long)most);
}

/* Which ranks have not begun what this one waits for, or something else. */
static void tell_late(struct nccl *nccl, const struct hosts_question *known)
{
    unsigned long long waits_for = known->number;
    bool all_came = true;
    for (int r = 0; r < nccl->device.base.size; r++) {
        bool is_late = known->has_answered[r] && known->begun[r] < waits_for;
        all_came = all_came && known->has_answered[r] && !is_late &&
                   !tell_other(nccl, known, r);
        if (is_late)
            zd_log(ZD_LOG_ERROR,
                   "  rank %d (%s) has not entered #%llu; its last is #%llu", r,
                   host_of(nccl, r), waits_for,
                   (unsigned long long)known->begun[r]);
        else if (!known->has_answered[r])
            r = tell_silent(nccl, known, r);
    }
    if (!all_came)
        return;
    zd_log(ZD_LOG_ERROR, "  every rank has entered #%llu", waits_for);
    tell_slow(nccl, known);
}

static void tell_flights(struct nccl *nccl)
{
    uint64_t count = nccl->flight_count;
    zd_log(ZD_LOG_ERROR,
           "rank %d (%s): its last collectives:", nccl->device.base.rank,
           nccl->device.base.host);
    for (uint64_t n = count > TOLD ? count - TOLD : 0; n < count; n++)
        if (nccl_flight_of(nccl, n)->number == n + 1)
            tell_flight(nccl, nccl_flight_of(nccl, n));
}

void nccl_tell_record(struct nccl *nccl)
{
    struct hosts_question known = {0};
    pthread_mutex_lock(&nccl->lock);
    tell_flights(nccl);
    bool waits = nccl->flight_first < nccl->flight_count;
    known.number = nccl->flight_first + 1;
    pthread_mutex_unlock(&nccl->lock);
    if (waits && look_around(nccl, &known))
        tell_late(nccl, &known);
    free(known.begun);
    free(known.done);
    free(known.what);
    free(known.has_answered);
}
