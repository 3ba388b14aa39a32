/* feed.c - a ring of messages in bytes.
 *
 *   | head payload | head payload | ... free ... | (gap) |
 *     ^ taken: the consumer's        ^ put: the producers'
 *
 * `put` and `taken` only grow; modulo the ring's size they are places. A
 * message lies in one piece: one that would wrap leaves a gap behind the last
 * and begins at the ring's start. */
#include "daemon/state/feed.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slot { /* before each payload */
    struct feed_head head;
    uint32_t whole; /* bytes of slot, payload and padding */
    uint32_t is_gap;
};
_Static_assert(sizeof(struct slot) == FEED_ALIGN, "payloads stay aligned");

struct feed {
    pthread_mutex_t producers;
    void (*wake)(void *ctx);
    void *ctx;
    size_t size;  /* a power of two */
    size_t spare; /* kept for what is no step */
    char *ring;
    _Atomic uint64_t put, taken, dropped;
};

enum zd_status feed_create(
        size_t bytes, void (*wake)(void *ctx), void *ctx,
        struct feed **feed_out)
{
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    feed->size = 4096;
    while (feed->size < bytes)
        feed->size *= 2;
    feed->ring = aligned_alloc(FEED_ALIGN, feed->size);
    if (!feed->ring) {
        free(feed);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    }
    pthread_mutex_init(&feed->producers, NULL);
    feed->spare = feed->size / 2;
    feed->wake = wake;
    feed->ctx = ctx;
    *feed_out = feed;
    return ZD_OK;
}

void feed_destroy(struct feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_destroy(&feed->producers);
    free(feed->ring);
    free(feed);
}

static bool is_step(enum feed_kind kind)
{
    return kind == FEED_STEP || kind == FEED_STEP_EVENT;
}

/* Where `whole` bytes may be written, behind a gap if they would wrap. NULL: no
 * room. *put_out: `put` behind them. */
static struct slot *take_room(
        struct feed *feed, enum feed_kind kind, size_t whole, uint64_t *put_out)
{
    uint64_t put = atomic_load_explicit(&feed->put, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&feed->taken, memory_order_acquire);
    size_t at = put & (feed->size - 1), gap = 0;
    if (at + whole > feed->size)
        gap = feed->size - at;
    size_t used = (size_t)(put - taken) + gap + whole;
    if (used > feed->size || (is_step(kind) && used > feed->size - feed->spare))
        return NULL;
    if (gap)
        *(struct slot *)(feed->ring + at) =
                (struct slot){.whole = (uint32_t)gap, .is_gap = 1};
    *put_out = put + gap + whole;
    return (struct slot *)(feed->ring + ((at + gap) & (feed->size - 1)));
}

bool feed_push_parts(
        struct feed *feed, enum feed_kind kind, const struct feed_part *parts,
        int count)
{
    uint64_t put;
    size_t bytes = 0;
    assert(count <= FEED_PARTS_MAX);
    for (int i = 0; i < count; i++)
        bytes += parts[i].bytes;
    size_t whole = sizeof(struct slot) +
                   (bytes + FEED_ALIGN - 1) / FEED_ALIGN * FEED_ALIGN;
    pthread_mutex_lock(&feed->producers);
    struct slot *slot =
            whole > feed->size ? NULL : take_room(feed, kind, whole, &put);
    if (slot) {
        char *out = (char *)(slot + 1);
        *slot = (struct slot){
                .head = {kind, (uint32_t)bytes}, .whole = (uint32_t)whole};
        for (int i = 0; i < count; i++) {
            if (parts[i].bytes)
                memcpy(out, parts[i].data, parts[i].bytes);
            out += parts[i].bytes;
        }
        atomic_store_explicit(&feed->put, put, memory_order_release);
    } else {
        atomic_fetch_add_explicit(&feed->dropped, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&feed->producers);
    if (slot && feed->wake && !is_step(kind))
        feed->wake(feed->ctx);
    return slot != NULL;
}

bool feed_push(
        struct feed *feed, enum feed_kind kind, const void *payload,
        size_t bytes)
{
    struct feed_part part = {payload, bytes};
    return feed_push_parts(feed, kind, &part, 1);
}

static struct slot *next_slot(struct feed *feed)
{
    uint64_t taken = atomic_load_explicit(&feed->taken, memory_order_relaxed);
    uint64_t put = atomic_load_explicit(&feed->put, memory_order_acquire);
    if (taken == put)
        return NULL;
    return (struct slot *)(feed->ring + (taken & (feed->size - 1)));
}

void feed_drop(struct feed *feed)
{
    struct slot *slot = next_slot(feed);
    if (slot)
        atomic_fetch_add_explicit(
                &feed->taken, slot->whole, memory_order_release);
}

const void *feed_peek(struct feed *feed, struct feed_head *head)
{
    struct slot *slot = next_slot(feed);
    if (slot && slot->is_gap) { /* a message stands behind every gap */
        feed_drop(feed);
        slot = next_slot(feed);
    }
    if (!slot)
        return NULL;
    *head = slot->head;
    return slot + 1;
}

uint64_t feed_dropped(const struct feed *feed)
{
    return atomic_load_explicit(&feed->dropped, memory_order_relaxed);
}

/* --- commands --- */

struct mailbox {
    _Atomic unsigned put, taken; /* only grow */
    struct train_command commands[MAILBOX_MAX];
};

enum zd_status mailbox_create(struct mailbox **mailbox_out)
{
    *mailbox_out = calloc(1, sizeof **mailbox_out);
    if (!*mailbox_out)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    return ZD_OK;
}

void mailbox_destroy(struct mailbox *mailbox)
{
    free(mailbox);
}

bool mailbox_push(struct mailbox *mailbox, const struct train_command *command)
{
    unsigned put = atomic_load_explicit(&mailbox->put, memory_order_relaxed);
    unsigned taken =
            atomic_load_explicit(&mailbox->taken, memory_order_acquire);
    if (put - taken == MAILBOX_MAX)
        return false;
    mailbox->commands[put % MAILBOX_MAX] = *command;
    atomic_store_explicit(&mailbox->put, put + 1, memory_order_release);
    return true;
}

bool mailbox_pop(struct mailbox *mailbox, struct train_command *out)
{
    unsigned taken =
            atomic_load_explicit(&mailbox->taken, memory_order_relaxed);
    unsigned put = atomic_load_explicit(&mailbox->put, memory_order_acquire);
    if (put == taken)
        return false;
    *out = mailbox->commands[taken % MAILBOX_MAX];
    atomic_store_explicit(&mailbox->taken, taken + 1, memory_order_release);
    return true;
}
