/* feed.h - the two queues between the trainer and the control thread.
 *
 *   feed      trainer (and whoever logs) -> control thread: what happened
 *   mailbox   control thread -> trainer: commands
 *
 * The trainer never waits for the control thread: a feed that is full drops
 * step messages first (they are counted), and keeps room for all others. The
 * control thread holds no lock that a step needs. Memory is taken once. */
#ifndef ZD_DAEMON_STATE_FEED_H
#define ZD_DAEMON_STATE_FEED_H

#include "train/train.h"

enum feed_kind { /* what each holds: messages.h */
                 FEED_BANNER,
                 FEED_STEP,
                 FEED_STALL,
                 FEED_RANKS,
                 FEED_EVENT,      /* but of a step */
                 FEED_STEP_EVENT, /* of a step: dropped as early as FEED_STEP */
                 FEED_DONE,       /* a command */
                 FEED_END,
                 FEED_KINDS
};

struct feed_head { /* of a message; its payload follows in memory */
    enum feed_kind kind;
    uint32_t bytes; /* of the payload */
};

enum { FEED_ALIGN = 16 }; /* of payloads */

struct feed;

/* `wake`: called by producers after a message that is no step's, from their
 * thread. `bytes`: rounded up to a power of two. */
enum zd_status feed_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx,
        struct feed **feed_out);
void feed_destroy(struct feed *feed);
/* Several producers (a lock among themselves only). False: it was dropped. */
bool feed_push(
        struct feed *feed, enum feed_kind kind, const void *payload,
        size_t bytes);
/* The same from parts that follow one another. */
struct feed_part {
    const void *data;
    size_t bytes;
};
enum { FEED_PARTS_MAX = 4 };
bool feed_push_parts(
        struct feed *feed, enum feed_kind kind, const struct feed_part *parts,
        int count);
/* One consumer. The next message where it lies, aligned and in one piece; NULL:
 * none. It stays until feed_drop. */
const void *feed_peek(struct feed *feed, struct feed_head *head);
void feed_drop(struct feed *feed);
/* Messages that found no room. */
uint64_t feed_dropped(const struct feed *feed);

struct mailbox; /* at most MAILBOX_MAX commands wait; one producer, one consumer
                 */
enum { MAILBOX_MAX = 32 };
enum zd_status mailbox_create(struct mailbox **mailbox_out);
void mailbox_destroy(struct mailbox *mailbox);
bool mailbox_push(struct mailbox *mailbox, const struct train_command *command);
bool mailbox_pop(struct mailbox *mailbox, struct train_command *out);

#endif
