/* queue.c - producers put a message before the newest one; the consumer takes
 * all that wait at once, and turns them round. */
#include "daemon/state/queue.h"

#include "base/must.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct message {
    struct message *next;
    enum message_kind kind;
    uint32_t whole; /* bytes, with this head */
    max_align_t payload[];
};

struct message_queue {
    void (*wake)(void *ctx);
    void *ctx;
    size_t size;
    struct message *_Atomic newest; /* put, and not taken yet */
    struct message *oldest;         /* taken: the consumer's */
    _Atomic size_t used;            /* bytes of both */
    _Atomic uint64_t dropped;
};

struct message_queue *queue_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx)
{
    struct message_queue *queue = zd_array(1, sizeof *queue);
    queue->size = bytes;
    queue->wake = wake;
    queue->ctx = ctx;
    return queue;
}

void queue_destroy(struct message_queue *queue)
{
    enum message_kind kind;
    while (queue && queue_peek(queue, &kind))
        queue_drop(queue);
    free(queue);
}

static bool is_step(enum message_kind kind)
{
    return kind == MESSAGE_STEP || kind == MESSAGE_STEP_EVENT;
}

bool queue_push_with(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes, const void *more, size_t more_bytes)
{
    size_t whole = sizeof(struct message) + bytes + more_bytes;
    size_t room = is_step(kind) ? queue->size / 2 : queue->size;
    if (atomic_fetch_add(&queue->used, whole) + whole > room) {
        atomic_fetch_sub(&queue->used, whole);
        atomic_fetch_add(&queue->dropped, 1);
        return false;
    }
    struct message *message = zd_must(malloc(whole));
    message->kind = kind;
    message->whole = (uint32_t)whole;
    memcpy(message->payload, payload, bytes);
    if (more_bytes)
        memcpy((char *)message->payload + bytes, more, more_bytes);
    message->next = atomic_load(&queue->newest);
    while (!atomic_compare_exchange_weak(
            &queue->newest, &message->next, message))
        ;
    if (queue->wake && !is_step(kind))
        queue->wake(queue->ctx);
    return true;
}

bool queue_push(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes)
{
    return queue_push_with(queue, kind, payload, bytes, NULL, 0);
}

const void *queue_peek(struct message_queue *queue, enum message_kind *kind_out)
{
    struct message *next,
            *newest = queue->oldest ? NULL
                                    : atomic_exchange(&queue->newest, NULL);
    for (; newest; newest = next) {
        next = newest->next;
        newest->next = queue->oldest;
        queue->oldest = newest;
    }
    if (!queue->oldest)
        return NULL;
    *kind_out = queue->oldest->kind;
    return queue->oldest->payload;
}

void queue_drop(struct message_queue *queue)
{
    struct message *message = queue->oldest;
    queue->oldest = message->next;
    atomic_fetch_sub(&queue->used, message->whole);
    free(message);
}

uint64_t queue_dropped(const struct message_queue *queue)
{
    return atomic_load(&queue->dropped);
}
