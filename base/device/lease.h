/* lease.h - memory that passes from hand to hand while the work on it is still
 * queued: who comes next must know whom to wait for.
 *
 * A buffer has one lease. Who uses the buffer acquires the lease, waits for the
 * tokens that it is told (in its own stream or thread), queues its work, and
 * releases the lease with its own token, which says when the work is done.
 * The lease keeps the tokens of the last writer and of the readers since then,
 * so that
 *
 *     a reader waits for the last writer,
 *     a writer waits for the last writer and for all readers since then.
 *
 * Work is queued ahead. A state says what has been queued, in the order of the
 * calls, and not what is done: READY means that who waits for the writer's
 * tokens finds the content.
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
 * A transition that the picture does not have is a mistake of ours: content
 * that is overwritten before it was dropped, read before it was filled,
 * released by who does not hold it. Where assert does, the program ends then
 * with a line on stderr:
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
 * When jobs of the workers run is not a matter of leases (offload/workers.c):
 * that a job is done is a token like others.
 *
 * Threads: none of its own; a lease is one thread's, or under a lock of its
 * owner. Nothing is allocated. */
#pragma once

#include "base/device/stream.h"

#include <pthread.h>

/* A sequence of pieces of work that are numbered from 1 as they are asked for:
 * the records of an event (by one thread, so that it knows their numbers before
 * another has queued them), jobs of threads (struct tally), collectives. An
 * event has one timeline and one kind of record: then no wait comes after the
 * record that follows the one that it is for, which a GPU would take for that
 * (stream_wait_record). */
struct timeline {
    struct event *event; /* NULL: not of streams */
    uint64_t asked;      /* the last number */
    /* token_wait; NULL: that of the event, whose record is queued */
    enum zd_status (*wait)(
            struct timeline *timeline, uint64_t number, struct stream *stream);
    void *owner; /* for `wait` */
};
/* When a piece of work is done. */
struct token {
    struct timeline *of;
    uint64_t number; /* 0: there is nothing to wait for */
};

/* Of an event. */
enum zd_status timeline_create(struct timeline *timeline_out);
void timeline_destroy(struct timeline *timeline); /* all-zero is accepted */
/* The next record, which another thread will make. */
struct token timeline_next(struct timeline *timeline);
/* The last that was asked for; number 0: none was. */
struct token timeline_last(struct timeline *timeline);
enum zd_status timeline_record(
        struct stream *stream, struct timeline *timeline,
        struct token *token_out);
/* What `stream` does later follows the token; what no stream does is waited for
 * by the calling thread. */
enum zd_status token_wait(struct stream *stream, struct token token);

/* Work of threads of the host, done in the order of its numbers. */
struct tally {
    struct timeline timeline; /* first */
    pthread_mutex_t lock;     /* of all below */
    pthread_cond_t changed;
    uint64_t done;
};
void tally_init(struct tally *tally);
void tally_fini(struct tally *tally);
struct token tally_token(struct tally *tally, uint64_t number);
/* All up to `number`, or one more, are done. Any thread. */
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

/* At most this many of the writer, and as many of readers: for instance a
 * collective for each of a unit's segments (zero/plan.c, which counts their
 * kinds). One more ends the program, with assertions or without. */
enum { LEASE_TOKENS = 6 };
struct lease_tokens {
    int count;
    struct token token[2 * LEASE_TOKENS];
};

struct lease {
    /* private */
    enum lease_state state;
    int readers; /* that have acquired and not released */
    int written_count, read_count;
    struct token written[LEASE_TOKENS], read[LEASE_TOKENS];
    const char *name;
    int index;
};

/* Free, without tokens. The name is for messages and stays; so does `who` of
 * the calls below. */
void lease_init(struct lease *lease, const char *name, int index);

/* What must be waited for before the use. */
struct lease_tokens lease_acquire(
        struct lease *lease, enum lease_use use, const char *who);
/* One more token of the use that is going on; {0} is none. */
void lease_note(struct lease *lease, struct token token);
/* It is queued. */
void lease_release(struct lease *lease, struct token token);
/* Acquires, and what `stream` does later follows all tokens. */
enum zd_status lease_take(
        struct lease *lease, enum lease_use use, const char *who,
        struct stream *stream);
void lease_drop(struct lease *lease, const char *who);
/* Its memory, or a part of it, is about to be another lease's: what `stream`
 * does later follows all tokens. Free afterwards. */
enum zd_status lease_yield(
        struct lease *lease, const char *who, struct stream *stream);
void lease_settle(struct lease *lease);

/* What is queued on it, for who asks. */
bool lease_is(const struct lease *lease, enum lease_state state);
