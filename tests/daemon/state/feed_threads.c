/* feed_threads.c - producers and the consumer of a feed, and both ends of a
 * mailbox, at once; for a thread sanitizer. Prints TAP. */
#include "daemon/state/feed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { PRODUCERS = 3, MESSAGES = 20000, COMMANDS = 20000 };

struct message {
    int producer, number;
    char text[120]; /* all of it `number` */
};

static struct feed *feed;
static struct mailbox *mailbox;
static _Atomic int wakes;

static void on_wake(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&wakes, 1);
}

static void *produce(void *arg)
{
    struct message message = {.producer = *(int *)arg};
    for (int i = 0; i < MESSAGES; i++) {
        size_t length = 8 + (size_t)i % sizeof message.text;
        message.number = i;
        memset(message.text, i & 0x7f, sizeof message.text);
        while (!feed_push(
                feed, FEED_EVENT, &message, length < 16 ? 16 : length))
            sched_yield();
    }
    return NULL;
}

static void *command(void *arg)
{
    struct train_command command = {0};
    (void)arg;
    for (int i = 0; i < COMMANDS; i++) {
        command.id = i;
        command.prompt[0] = (char)i;
        while (!mailbox_push(mailbox, &command))
            sched_yield();
    }
    return NULL;
}

static bool is_whole(const struct message *message, uint32_t bytes)
{
    size_t text = bytes - offsetof(struct message, text);
    for (size_t i = 0; i < text; i++)
        if (message->text[i] != (message->number & 0x7f))
            return false;
    return true;
}

/* All messages of a producer, in its order. */
static bool consume_feed(void)
{
    int next[PRODUCERS] = {0};
    struct feed_head head;
    bool good = true;
    for (int left = PRODUCERS * MESSAGES; left > 0;) {
        const struct message *message = feed_peek(feed, &head);
        if (!message) {
            sched_yield();
            continue;
        }
        good = good && message->number == next[message->producer]++ &&
               is_whole(message, head.bytes);
        feed_drop(feed);
        left--;
    }
    return good && !feed_peek(feed, &head);
}

static bool consume_mailbox(void)
{
    struct train_command got;
    bool good = true;
    for (int i = 0; i < COMMANDS; i++) {
        while (!mailbox_pop(mailbox, &got))
            sched_yield();
        good = good && got.id == i && got.prompt[0] == (char)i;
    }
    return good;
}

int main(void)
{
    pthread_t threads[PRODUCERS + 1];
    int numbers[PRODUCERS];
    if (feed_create(65536, on_wake, NULL, &feed) != ZD_OK ||
        mailbox_create(&mailbox) != ZD_OK)
        return 99;
    for (int i = 0; i < PRODUCERS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, produce, &numbers[i]);
    }
    bool fed = consume_feed();
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    pthread_create(&threads[PRODUCERS], NULL, command, NULL);
    bool mailed = consume_mailbox();
    pthread_join(threads[PRODUCERS], NULL);
    fed = fed && atomic_load(&wakes) == PRODUCERS * MESSAGES;
    printf("1..2\n%s 1 - three producers and one consumer of a feed\n"
           "%s 2 - both ends of a mailbox\n",
           fed ? "ok" : "not ok", mailed ? "ok" : "not ok");
    feed_destroy(feed);
    mailbox_destroy(mailbox);
    return !(fed && mailed);
}
