/* queue.h - messages from one thread to another, without a lock. Two are
 * between the trainer and the control thread:
 *
 *   what happened   trainer (and whoever logs) -> control thread
 *   commands        control thread -> trainer
 *
 * Neither waits for the other: a queue that is full drops step messages first
 * (they are counted), and keeps room for all others. */
#pragma once

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

struct message_queue;

/* `wake` (or NULL): called by producers after a message that is not a step's,
 * from their thread. `bytes`: of all messages that wait. */
struct message_queue *queue_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx);
void queue_destroy(struct message_queue *queue);
/* Any thread. False: there was no room. */
bool queue_push(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes);
/* The same with bytes that follow `payload`. */
bool queue_push_with(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes, const void *more, size_t more_bytes);
/* One consumer. The payload of the next message; NULL: none. It stays until
 * queue_drop. */
const void *queue_peek(
        struct message_queue *queue, enum message_kind *kind_out);
void queue_drop(struct message_queue *queue);
/* Messages that found no room. */
uint64_t queue_dropped(const struct message_queue *queue);
