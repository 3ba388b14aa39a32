/* queue.h - messages from one thread to another, a ring in memory that is taken
 * once. Two are between the trainer and the control thread:
 *
 *   what happened   trainer (and whoever logs) -> control thread
 *   commands        control thread -> trainer
 *
 * Neither waits for the other: a queue that is full drops step messages first
 * (they are counted), and keeps room for all others. The control thread holds
 * no lock that a step needs. */
#ifndef ZD_DAEMON_STATE_QUEUE_H
#define ZD_DAEMON_STATE_QUEUE_H

#include "train/train.h"

/* What each holds: messages.h. */
enum message_kind {
    MESSAGE_BANNER,
    MESSAGE_STEP,
    MESSAGE_STALL,
    MESSAGE_RANKS,
    MESSAGE_EVENT,      /* but of a step */
    MESSAGE_STEP_EVENT, /* dropped as early as MESSAGE_STEP */
    MESSAGE_DONE,       /* a command */
    MESSAGE_END,
    MESSAGE_COMMAND /* to the trainer */
};

struct message_head { /* of a message; its payload follows in memory */
    enum message_kind kind;
    uint32_t bytes; /* of the payload */
};

enum { QUEUE_ALIGN = 16 }; /* of payloads */

struct message_queue;

/* `wake` (or NULL): called by producers after a message that is not a step's,
 * from their thread. `bytes`: rounded up to a power of two. */
struct message_queue *queue_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx);
void queue_destroy(struct message_queue *queue);
/* Several producers (a lock among themselves only). False: it was dropped. */
bool queue_push(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes);
/* The same from parts that follow one another. */
struct message_part {
    const void *data;
    size_t bytes;
};
enum { QUEUE_PARTS_MAX = 4 };
bool queue_push_parts(
        struct message_queue *queue, enum message_kind kind,
        const struct message_part *parts, int count);
/* One consumer. The next message where it lies, aligned and in one piece; NULL:
 * none. It stays until queue_drop. */
const void *queue_peek(struct message_queue *queue, struct message_head *head);
void queue_drop(struct message_queue *queue);
/* Messages that found no room. */
uint64_t queue_dropped(const struct message_queue *queue);

#endif
