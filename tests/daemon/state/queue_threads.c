/* queue_threads.c - producers and the consumer of a queue at once; for a thread
 * sanitizer. Prints TAP. */
#include "daemon/state/queue.h"
#include "tests/support/tap.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { PRODUCERS = 3, MESSAGES = 20000 };

struct told {
    int producer, number, bytes;
    char text[120]; /* all of it `number` */
};

static struct message_queue *queue;
static _Atomic int wakes;

static void on_wake(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&wakes, 1);
}

static void *produce(void *arg)
{
    struct told message = {.producer = *(int *)arg};
    for (int i = 0; i < MESSAGES; i++) {
        size_t length = 1 + (size_t)i % sizeof message.text;
        message.number = i;
        memset(message.text, i & 0x7f, sizeof message.text);
        message.bytes = (int)length;
        while (!queue_push(
                queue, MESSAGE_EVENT, &message,
                offsetof(struct told, text) + length))
            sched_yield();
    }
    return NULL;
}

static bool is_whole(const struct told *message)
{
    for (int i = 0; i < message->bytes; i++)
        if (message->text[i] != (message->number & 0x7f))
            return false;
    return true;
}

/* All messages of a producer, in its order. */
static bool consume(void)
{
    int next[PRODUCERS] = {0};
    enum message_kind kind;
    bool good = true;
    for (int left = PRODUCERS * MESSAGES; left > 0;) {
        const struct told *message = queue_peek(queue, &kind);
        if (!message) {
            sched_yield();
            continue;
        }
        good = good && message->number == next[message->producer]++ &&
               is_whole(message);
        queue_drop(queue);
        left--;
    }
    return good && !queue_peek(queue, &kind);
}

int main(void)
{
    pthread_t threads[PRODUCERS];
    int numbers[PRODUCERS];
    queue = queue_create(65536, on_wake, NULL);
    for (int i = 0; i < PRODUCERS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, produce, &numbers[i]);
    }
    bool good = consume();
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    tap_ok(good && atomic_load(&wakes) == PRODUCERS * MESSAGES,
           "three producers and one consumer of a queue");
    queue_destroy(queue);
    return tap_done();
}
