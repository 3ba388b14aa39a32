/* queue.c - a ring of messages.
 *
 *   | head payload | head payload | ... free ... | (gap) |
 *     ^ taken: the consumer's        ^ put: the producers'
 *
 * `put` and `taken` only grow; modulo the ring's size they are places. A
 * message lies in one piece: one that would wrap leaves a gap after the last
 * and begins at the ring's start. */
#include "daemon/state/queue.h"

#include "base/must.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slot { /* before each payload */
    struct message_head head;
    uint32_t whole; /* bytes of slot, payload and padding */
    uint32_t is_gap;
};
_Static_assert(sizeof(struct slot) == QUEUE_ALIGN, "payloads stay aligned");

struct message_queue {
    pthread_mutex_t producers;
    void (*wake)(void *ctx);
    void *ctx;
    size_t size;  /* a power of two */
    size_t spare; /* kept for what is not a step */
    char *ring;
    _Atomic uint64_t put, taken, dropped;
};

struct message_queue *queue_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx)
{
    struct message_queue *queue = zd_array(1, sizeof *queue);
    queue->size = 4096;
    while (queue->size < bytes)
        queue->size *= 2;
    queue->ring = zd_must(aligned_alloc(QUEUE_ALIGN, queue->size));
    pthread_mutex_init(&queue->producers, NULL);
    queue->spare = queue->size / 2;
    queue->wake = wake;
    queue->ctx = ctx;
    return queue;
}

void queue_destroy(struct message_queue *queue)
{
    if (!queue)
        return;
    pthread_mutex_destroy(&queue->producers);
    free(queue->ring);
    free(queue);
}

static bool is_step(enum message_kind kind)
{
    return kind == MESSAGE_STEP || kind == MESSAGE_STEP_EVENT;
}

/* Where `whole` bytes may be written, after a gap if they would wrap. NULL: no
 * room. *put_out: `put` after them. */
static struct slot *take_room(
        struct message_queue *queue, enum message_kind kind, size_t whole,
        uint64_t *put_out)
{
    uint64_t put = atomic_load_explicit(&queue->put, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&queue->taken, memory_order_acquire);
    size_t at = put & (queue->size - 1), gap = 0;
    if (at + whole > queue->size)
        gap = queue->size - at;
    size_t used = (size_t)(put - taken) + gap + whole;
    if (used > queue->size ||
        (is_step(kind) && used > queue->size - queue->spare))
        return NULL;
    if (gap)
        *(struct slot *)(queue->ring + at) =
                (struct slot){.whole = (uint32_t)gap, .is_gap = 1};
    *put_out = put + gap + whole;
    return (struct slot *)(queue->ring + ((at + gap) & (queue->size - 1)));
}

bool queue_push_parts(
        struct message_queue *queue, enum message_kind kind,
        const struct message_part *parts, int count)
{
    uint64_t put;
    size_t bytes = 0;
    assert(count <= QUEUE_PARTS_MAX);
    for (int i = 0; i < count; i++)
        bytes += parts[i].bytes;
    size_t whole = sizeof(struct slot) +
                   (bytes + QUEUE_ALIGN - 1) / QUEUE_ALIGN * QUEUE_ALIGN;
    pthread_mutex_lock(&queue->producers);
    struct slot *slot =
            whole > queue->size ? NULL : take_room(queue, kind, whole, &put);
    if (slot) {
        char *out = (char *)(slot + 1);
        *slot = (struct slot){
                .head = {kind, (uint32_t)bytes}, .whole = (uint32_t)whole};
        for (int i = 0; i < count; i++) {
            if (parts[i].bytes)
                memcpy(out, parts[i].data, parts[i].bytes);
            out += parts[i].bytes;
        }
        atomic_store_explicit(&queue->put, put, memory_order_release);
    } else {
        atomic_fetch_add_explicit(&queue->dropped, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue->producers);
    if (slot && queue->wake && !is_step(kind))
        queue->wake(queue->ctx);
    return slot != NULL;
}

bool queue_push(
        struct message_queue *queue, enum message_kind kind,
        const void *payload, size_t bytes)
{
    struct message_part part = {payload, bytes};
    return queue_push_parts(queue, kind, &part, 1);
}

static struct slot *next_slot(struct message_queue *queue)
{
    uint64_t taken = atomic_load_explicit(&queue->taken, memory_order_relaxed);
    uint64_t put = atomic_load_explicit(&queue->put, memory_order_acquire);
    if (taken == put)
        return NULL;
    return (struct slot *)(queue->ring + (taken & (queue->size - 1)));
}

void queue_drop(struct message_queue *queue)
{
    struct slot *slot = next_slot(queue);
    if (slot)
        atomic_fetch_add_explicit(
                &queue->taken, slot->whole, memory_order_release);
}

const void *queue_peek(struct message_queue *queue, struct message_head *head)
{
    struct slot *slot = next_slot(queue);
    if (slot && slot->is_gap) { /* a message follows every gap */
        queue_drop(queue);
        slot = next_slot(queue);
    }
    if (!slot)
        return NULL;
    *head = slot->head;
    return slot + 1;
}

uint64_t queue_dropped(const struct message_queue *queue)
{
    return atomic_load_explicit(&queue->dropped, memory_order_relaxed);
}
