/* Streams that wait for workers in a thread of the feed. */
#include "offload/feed.h"

#include <criterion/criterion.h>
#include <string.h>

/* What happened, in its order. */
struct log {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open; /* the gate */
    int count;
    int64_t seen[64];
};

static void note(void *ctx, int64_t arg)
{
    struct log *log = ctx;
    pthread_mutex_lock(&log->lock);
    log->seen[log->count++] = arg;
    pthread_mutex_unlock(&log->lock);
}

/* Until someone opens the gate. */
static void hold(void *ctx, int64_t arg)
{
    struct log *log = ctx;
    pthread_mutex_lock(&log->lock);
    while (!log->is_open)
        pthread_cond_wait(&log->changed, &log->lock);
    pthread_mutex_unlock(&log->lock);
    note(ctx, arg);
}

static void open_gate(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    log->is_open = true;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->lock);
}

static void *open_later(void *log)
{
    open_gate(log);
    return NULL;
}

static struct log log_make(bool is_open)
{
    struct log log = {.is_open = is_open};
    pthread_mutex_init(&log.lock, NULL);
    pthread_cond_init(&log.changed, NULL);
    return log;
}

Test(feed, keeps_its_order_and_does_not_hold_who_feeds)
{
    struct log log = log_make(false);
    struct feed feed;
    struct stream *stream;
    struct timeline timeline;
    struct token token;
    char from[4] = "abc", to[4] = "";
    cr_assert_eq(stream_create("down", STREAM_INLINE, &stream), ZD_OK);
    cr_assert_eq(timeline_create(&timeline), ZD_OK);
    cr_assert_eq(feed_init(&feed, stream, true), ZD_OK);
    feed_call(&feed, note, &log, 1);
    feed_hold(&feed, hold, &log, 2); /* returns although the gate is shut */
    feed_copy(&feed, to, from, sizeof to);
    feed_record(&feed, &timeline, &token);
    feed_call(&feed, note, &log, 3);
    cr_expect_str_eq(to, "");

    pthread_t opener;
    pthread_create(&opener, NULL, open_later, &log);
    cr_expect_eq(feed_await(&feed, token), ZD_OK);
    cr_expect_eq(token_wait(NULL, token), ZD_OK);
    cr_expect_str_eq(to, "abc");
    cr_expect_eq(feed_finish(&feed), ZD_OK);
    cr_expect_eq(log.count, 3);
    for (int i = 0; i < log.count; i++)
        cr_expect_eq(log.seen[i], i + 1);
    pthread_join(opener, NULL);
    feed_fini(&feed);
    timeline_destroy(&timeline);
    stream_destroy(stream);
}

Test(feed, takes_more_than_its_ring_has_room_for)
{
    struct log log = log_make(true);
    struct feed feed;
    char from[4 * FEED_OPERATIONS], to[4 * FEED_OPERATIONS] = {0};
    for (int i = 0; i < 4 * FEED_OPERATIONS; i++)
        from[i] = (char)i;
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        cr_assert_eq(feed_init(&feed, NULL, has_thread), ZD_OK);
        for (int i = 0; i < 4 * FEED_OPERATIONS; i++)
            feed_copy(&feed, to + i, from + i, 1);
        feed_hold(&feed, hold, &log, 7);
        cr_expect_eq(feed_finish(&feed), ZD_OK);
        cr_expect_eq(memcmp(to, from, sizeof to), 0);
        feed_fini(&feed);
    }
    cr_expect_eq(log.count, 2);
}
