/* lease.h - memory whose users follow each other while work on it is still
 * queued: each must know what to wait for.
 *
 * A buffer has one lease. A user acquires the lease, waits for the tokens that
 * it gets (in its own stream or thread), queues its work, and releases the
 * lease with its own token, which says when the work is done. The lease keeps
 * the tokens of the last writer and of the readers since then, so that
 *
 *     a reader waits for the last writer,
 *     a writer waits for the last writer and for all readers since then.
 *
 * Work is queued ahead. A state says what has been queued, in the order of the
 * calls, not what is done: READY means that the content is there once the
 * writer's tokens are waited for.
 *
 *     +------+  FILL   +---------+ release  +-------+  READ    +--------+
 *     | free | ------> | filling | -------> | ready | -------> | in use |
 *     +------+         +---------+          +-------+ <------- +--------+
 *        ^               ^     ^   CHANGE    |    |    release of the last
 *        |               |     +-------------+    | drop       reader
 *        |          FILL |                        v
 *        |               +------------------ +---------+
 *        +------- settle ------------------- | leaving |
 *                                            +---------+
 *
 *   FILL    new content: what was there has been dropped
 *   CHANGE  the content is read and written: added to, rounded, updated
 *   READ    any number of readers at a time
 *   drop    no one uses the content again; its tokens stay until they are
 *           waited for
 *   settle  they have been waited for, by the host or by the one stream in
 *           which all later users are queued: forget them
 *   yield   as FILL, by the holder of another lease on the same memory
 *
 * Any other transition is a bug in zerod: content overwritten before it was
 * dropped, read before it was filled, or released without being held. Where
 * assertions are on, the program then ends with a line on stderr:
 *
 *     lease "offload.slots" 3: FILL by "gradients down" while in use
 *
 * Who hands what to whom:
 *
 *   memory, one lease each      from                     to
 *   slot of a gathered unit     copies up, all_gather    the model
 *   (zero/params.c)             the model                the next gather
 *   work buffer of a unit's     the model                reduce_scatter, or
 *   gradient (zero/grads.c)                              copies down
 *   its reduced shards, kept    reduce_scatter           copies down
 *   or passing (zero/grads.c)   copies down              the next reduction
 *   slot of a segment on the    copies down              workers: norm, update
 *   host (offload/)             workers: update, undo    copies up; copies down
 *                               copies up                copies down
 *
 * Leases do not decide when the workers run a job (offload/workers.c); a
 * finished job is a token like any other.
 *
 * Threads: starts none; a lease belongs to one thread, or is protected by its
 * owner's lock. Nothing is allocated. */
#pragma once

#include "base/device/stream.h"

#include <pthread.h>

/* A sequence of work items, numbered from 1 as they are requested: the records
 * of an event (requested by one thread, which so knows their numbers before
 * another has queued them), jobs of threads (struct tally), collectives. An
 * event has one timeline and one kind of record. So a wait is never queued
 * after the record that follows its own, which a GPU would wait for instead
 * (stream_wait_record). */
struct timeline {
    struct event *event; /* NULL: the work is not on streams */
    uint64_t asked;      /* the last number */
    /* token_wait; NULL: that of the event, whose record is queued */
    enum zd_status (*wait)(
            struct timeline *timeline, uint64_t number, struct stream *stream);
    void *owner; /* for `wait` */
};
/* One item of a timeline: it can be waited for. */
struct token {
    struct timeline *of;
    uint64_t number; /* 0: nothing to wait for */
};

/* The timeline of a new event. */
enum zd_status timeline_create(struct timeline *timeline_out);
void timeline_destroy(struct timeline *timeline); /* all-zero is accepted */
/* The next record, which another thread will make. */
struct token timeline_next(struct timeline *timeline);
/* The last one that was requested; number 0: none was. */
struct token timeline_last(struct timeline *timeline);
enum zd_status timeline_record(
        struct stream *stream, struct timeline *timeline,
        struct token *token_out);
/* Later work of `stream` waits for the token. Work that is not on a stream is
 * waited for by the calling thread. */
enum zd_status token_wait(struct stream *stream, struct token token);

/* Work of host threads, which completes in the order of its numbers. */
struct tally {
    struct timeline timeline; /* first */
    pthread_mutex_t lock;     /* of all below */
    pthread_cond_t changed;
    uint64_t done;
};
void tally_init(struct tally *tally);
void tally_fini(struct tally *tally);
struct token tally_token(struct tally *tally, uint64_t number);
/* tally_done: all up to `number` are done; tally_next: one more is. Any
 * thread. */
void tally_done(struct tally *tally, uint64_t number);
void tally_next(struct tally *tally);

enum lease_state {
    LEASE_FREE,
    LEASE_FILLING,
    LEASE_READY,
    LEASE_IN_USE,
    LEASE_LEAVING
};
enum lease_use { LEASE_FILL, LEASE_CHANGE, LEASE_READ };

/* Most tokens of the writer, and of the readers: for instance one collective
 * for each segment of a unit (zero/plan.c counts their kinds). One more ends
 * the program, with assertions or without. */
enum { LEASE_TOKENS = 6 };
struct lease_tokens {
    int count;
    struct token token[2 * LEASE_TOKENS];
};

struct lease {
    /* private */
    enum lease_state state;
    int readers; /* acquired and not yet released */
    int written_count, read_count;
    struct token written[LEASE_TOKENS], read[LEASE_TOKENS];
    const char *name;
    int index;
};

/* Free, without tokens. `name`, and `who` of the calls below, appear in
 * messages and must stay valid. */
void lease_init(struct lease *lease, const char *name, int index);

/* Returns what must be waited for before the use. */
struct lease_tokens lease_acquire(
        struct lease *lease, enum lease_use use, const char *who);
/* Adds a token to the current use; {0} adds none. */
void lease_note(struct lease *lease, struct token token);
/* The use is queued. */
void lease_release(struct lease *lease, struct token token);
/* Acquires, and makes later work of `stream` wait for all tokens. */
enum zd_status lease_take(
        struct lease *lease, enum lease_use use, const char *who,
        struct stream *stream);
void lease_drop(struct lease *lease, const char *who);
/* Its memory, or a part of it, passes to another lease: later work of `stream`
 * waits for all tokens. The lease is free afterwards. */
enum zd_status lease_yield(
        struct lease *lease, const char *who, struct stream *stream);
void lease_settle(struct lease *lease);

/* Whether the lease is in this state. */
bool lease_is(const struct lease *lease, enum lease_state state);
