#include "daemon/state/feed.h"

#include <criterion/criterion.h>
#include <string.h>

static int wakes;

static void count_wake(void *ctx)
{
    (void)ctx;
    wakes++;
}

static struct feed *make(size_t bytes)
{
    struct feed *feed = NULL;
    wakes = 0;
    cr_assert_eq(feed_create(bytes, count_wake, NULL, &feed), ZD_OK);
    return feed;
}

Test(feed, messages_come_out_as_they_went_in_over_many_rounds)
{
    struct feed *feed = make(4096);
    struct feed_head head;
    char text[700];
    int next = 0;
    cr_expect_null(feed_peek(feed, &head));
    for (int i = 0; i < 5000; i++) {
        size_t bytes = 1 + (size_t)(i * 37) % sizeof text;
        memset(text, i & 0xff, bytes);
        cr_assert(feed_push(feed, FEED_EVENT, text, bytes));
        if (i % 3 != 2)
            continue;
        for (; next <= i; next++) {
            const char *got = feed_peek(feed, &head);
            size_t want = 1 + (size_t)(next * 37) % sizeof text;
            cr_assert_not_null(got);
            cr_assert_eq((size_t)got % FEED_ALIGN, 0);
            cr_assert_eq(head.bytes, want, "message %d", next);
            cr_assert_eq(head.kind, FEED_EVENT);
            cr_assert_eq((unsigned char)got[0], next & 0xff);
            cr_assert_eq((unsigned char)got[want - 1], next & 0xff);
            feed_drop(feed);
        }
        cr_assert_null(feed_peek(feed, &head));
    }
    cr_expect_eq(feed_dropped(feed), 0);
    cr_expect_eq(wakes, 5000);
    feed_destroy(feed);
}

Test(feed, a_full_feed_drops_steps_and_keeps_room_for_the_rest)
{
    struct feed *feed = make(4096);
    struct feed_head head;
    int steps = 0, others = 0;
    char text[112] = "x";
    while (feed_push(feed, FEED_STEP, text, sizeof text))
        steps++;
    cr_expect_eq(steps, 16, "%d", steps); /* half of the room */
    cr_expect_not(feed_push(feed, FEED_STEP_EVENT, text, sizeof text));
    cr_expect_eq(wakes, 0, "steps wake nobody");
    while (feed_push(feed, FEED_EVENT, text, sizeof text))
        others++;
    cr_expect_eq(others, 16, "%d", others);
    cr_expect_eq(feed_dropped(feed), 3);
    cr_assert_not_null(feed_peek(feed, &head));
    cr_expect_eq(head.kind, FEED_STEP);
    feed_drop(feed);
    cr_expect(feed_push(feed, FEED_EVENT, text, sizeof text));
    cr_expect_not(feed_push(feed, FEED_EVENT, text, 100000));
    feed_destroy(feed);
}

Test(feed, parts_are_one_message)
{
    struct feed *feed = make(4096);
    struct feed_head head;
    struct feed_part parts[3] = {{"ab", 2}, {NULL, 0}, {"cd", 3}};
    cr_assert(feed_push_parts(feed, FEED_RANKS, parts, 3));
    const char *got = feed_peek(feed, &head);
    cr_assert_not_null(got);
    cr_expect_eq(head.bytes, 5);
    cr_expect_str_eq(got, "abcd");
    feed_destroy(feed);
}

Test(mailbox, holds_so_many_commands_in_order)
{
    struct mailbox *mailbox;
    struct train_command command = {0};
    cr_assert_eq(mailbox_create(&mailbox), ZD_OK);
    for (int round = 0; round < 5; round++) {
        int count = 0;
        while (command.id = 100 * round + count,
               mailbox_push(mailbox, &command))
            count++;
        cr_expect_eq(count, MAILBOX_MAX);
        for (int i = 0; i < count; i++) {
            cr_assert(mailbox_pop(mailbox, &command));
            cr_expect_eq(command.id, 100 * round + i);
        }
        cr_expect_not(mailbox_pop(mailbox, &command));
    }
    mailbox_destroy(mailbox);
}
