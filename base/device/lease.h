/* lease.h - memory that passes from hand to hand while the work on it is still
 * queued: who comes next must know whom to wait for.
 *
 * A buffer has one lease. Who uses the buffer acquires the lease, waits for the
 * tokens that it is told (in its own stream or thread), queues its work, and
 * releases the lease with a token of its own: the event that its work ends
 * with, or the ticket of a queue. The lease keeps the tokens of the last writer
 * and of the readers since then, so that
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
 *   drop    nobody uses the content again; its tokens stay until they are
 *           waited for
 *   settle  they have been waited for, by the host or by the one stream in
 *           which all later users are queued: forget them
 *   yield   as FILL, by who has a lease of its own on the same memory
 *
 * A transition that the picture does not have is a mistake of ours: content
 * that is overwritten before it was dropped, read before it was filled,
 * released by who does not hold it. Where assert does, the program ends then
 * with the last transitions on stderr, oldest first:
 *
 *     lease "offload.slots" 3: FILL by "gradients down" while in use
 *       ready    FILL     gradients down   1 token
 *       ..
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
 *   parameters of a segment on  the engine               the model, all_gather
 *   the device (zero/offload.c)
 *   slot of a segment on the    copies down              workers: norm, update
 *   host (offload/)             workers: update, undo    copies up; copies down
 *                               copies up                copies down
 *   buffer of paged states      copies up                update
 *   (zero/paged.c)              update                   copies down
 *
 * When jobs of the workers run is no matter of leases (offload/workers.c): a
 * job's ticket is a token like others.
 *
 * Threads: none of its own; a lease is one thread's, or under a lock of its
 * owner. Nothing is allocated. */
#ifndef ZD_BASE_DEVICE_LEASE_H
#define ZD_BASE_DEVICE_LEASE_H

#include "base/device/stream.h"

/* What a piece of work ends with. */
struct token {
    struct event *event; /* NULL: `number` is a ticket of the queue that the
                            lease's owner knows */
    uint64_t number;     /* of the event's record, or the ticket; 0: there is
                            nothing to wait for */
};

/* An event whose records one thread asks for, so that it can number them before
 * another thread has queued them. An event has one such, and one kind of
 * record: then no wait comes after the record behind the one that it is for,
 * which a GPU would take for that (stream_wait_record). */
struct marker {
    struct event *event;
    uint64_t asked; /* records */
};
enum zd_status marker_create(struct marker *marker_out);
void marker_destroy(struct marker *marker); /* all-zero is accepted */
struct token marker_record_later(struct marker *marker);
/* Of the last record that was asked for; {0}: of none. */
struct token marker_last(const struct marker *marker);
enum zd_status marker_record(
        struct stream *stream, struct marker *marker, struct token *token_out);
/* What `stream` does later follows an event's token, whose record is queued;
 * at once for {0}. */
enum zd_status token_wait(struct stream *stream, struct token token);

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
enum { LEASE_TOKENS = 4 };
struct lease_tokens {
    int count;
    struct token token[2 * LEASE_TOKENS];
};

enum { LEASE_TRACE = 16 };
struct lease {
    /* private */
    enum lease_state state;
    int readers; /* that have acquired and not released */
    int written_count, read_count;
    struct token written[LEASE_TOKENS], read[LEASE_TOKENS];
    const char *name;
    int index;
    unsigned trace_count;
    struct {
        const char *what, *who;
        enum lease_state from;
        int tokens;
    } trace[LEASE_TRACE];
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
/* Acquires, and what `stream` does later follows all tokens, which are of
 * events. */
enum zd_status lease_take(
        struct lease *lease, enum lease_use use, const char *who,
        struct stream *stream);
void lease_drop(struct lease *lease, const char *who);
/* Its memory, or a part of it, is about to be another lease's: what must be
 * waited for. Free afterwards. */
struct lease_tokens lease_yield(struct lease *lease, const char *who);
void lease_settle(struct lease *lease);

/* What is queued on it, for who asks. */
bool lease_is(const struct lease *lease, enum lease_state state);

#endif
