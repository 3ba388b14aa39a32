/* Streams that wait for workers in a thread of the feed. */
#include "offload/feed.h"
#include "tests/support/gate.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>
#include <string.h>

/* What happened, in its order; on one thread. */
struct log {
    int count;
    int64_t seen[64];
};

static void note(void *ctx, int64_t arg)
{
    struct log *log = ctx;
    log->seen[log->count++] = arg;
}

Test(feed, keeps_its_order_and_does_not_block_the_caller)
{
    struct log log = {0};
    struct gate gate = GATE;
    struct feed feed;
    struct stream *stream;
    struct timeline timeline;
    struct token token;
    char from[4] = "abc", to[4] = "";
    MUST(stream_create("down", STREAM_INLINE, &stream));
    MUST(timeline_create(&timeline));
    MUST(feed_init(&feed, stream, true));
    feed_call(&feed, note, &log, 1);
    feed_hold(&feed, gate_pass, &gate, 0); /* returns although it is shut */
    feed_call(&feed, note, &log, 2);
    feed_copy(&feed, to, from, sizeof to);
    feed_record(&feed, &timeline, &token);
    feed_call(&feed, note, &log, 3);
    cr_expect_str_eq(to, "");

    pthread_t opener;
    pthread_create(&opener, NULL, gate_open_later, &gate);
    MUST(feed_await(&feed, token));
    MUST(token_wait(NULL, token));
    cr_expect_str_eq(to, "abc");
    MUST(feed_finish(&feed));
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
    struct log log = {0};
    struct feed feed;
    char from[4 * FEED_OPERATIONS], to[4 * FEED_OPERATIONS] = {0};
    for (int i = 0; i < 4 * FEED_OPERATIONS; i++)
        from[i] = (char)i;
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        MUST(feed_init(&feed, NULL, has_thread));
        for (int i = 0; i < 4 * FEED_OPERATIONS; i++)
            feed_copy(&feed, to + i, from + i, 1);
        feed_hold(&feed, note, &log, 7);
        MUST(feed_finish(&feed));
        cr_expect_eq(memcmp(to, from, sizeof to), 0);
        feed_fini(&feed);
    }
    cr_expect_eq(log.count, 2);
}
