#include "daemon/state/queue.h"

#include <criterion/criterion.h>
#include <string.h>

static int wakes;

static void count_wake(void *ctx)
{
    (void)ctx;
    wakes++;
}

static struct message_queue *make(size_t bytes)
{
    wakes = 0;
    return queue_create(bytes, count_wake, NULL);
}

Test(queue, messages_come_out_as_they_went_in_over_many_rounds)
{
    struct message_queue *queue = make(4096);
    struct message_head head;
    char text[700];
    int next = 0;
    cr_expect_null(queue_peek(queue, &head));
    for (int i = 0; i < 5000; i++) {
        size_t bytes = 1 + (size_t)(i * 37) % sizeof text;
        memset(text, i & 0xff, bytes);
        cr_assert(queue_push(queue, MESSAGE_EVENT, text, bytes));
        if (i % 3 != 2)
            continue;
        for (; next <= i; next++) {
            const char *got = queue_peek(queue, &head);
            size_t want = 1 + (size_t)(next * 37) % sizeof text;
            cr_assert_not_null(got);
            cr_assert_eq((size_t)got % QUEUE_ALIGN, 0);
            cr_assert_eq(head.bytes, want, "message %d", next);
            cr_assert_eq(head.kind, MESSAGE_EVENT);
            cr_assert_eq((unsigned char)got[0], next & 0xff);
            cr_assert_eq((unsigned char)got[want - 1], next & 0xff);
            queue_drop(queue);
        }
        cr_assert_null(queue_peek(queue, &head));
    }
    cr_expect_eq(queue_dropped(queue), 0);
    cr_expect_eq(wakes, 5000);
    queue_destroy(queue);
}

Test(queue, a_full_feed_drops_steps_and_keeps_room_for_the_rest)
{
    struct message_queue *queue = make(4096);
    struct message_head head;
    int steps = 0, others = 0;
    char text[112] = "x";
    while (queue_push(queue, MESSAGE_STEP, text, sizeof text))
        steps++;
    cr_expect_eq(steps, 16, "%d", steps); /* half of the room */
    cr_expect_not(queue_push(queue, MESSAGE_STEP_EVENT, text, sizeof text));
    cr_expect_eq(wakes, 0, "steps wake no one");
    while (queue_push(queue, MESSAGE_EVENT, text, sizeof text))
        others++;
    cr_expect_eq(others, 16, "%d", others);
    cr_expect_eq(queue_dropped(queue), 3);
    cr_assert_not_null(queue_peek(queue, &head));
    cr_expect_eq(head.kind, MESSAGE_STEP);
    queue_drop(queue);
    cr_expect(queue_push(queue, MESSAGE_EVENT, text, sizeof text));
    cr_expect_not(queue_push(queue, MESSAGE_EVENT, text, 100000));
    queue_destroy(queue);
}

Test(queue, parts_are_one_message)
{
    struct message_queue *queue = make(4096);
    struct message_head head;
    struct message_part parts[3] = {{"ab", 2}, {NULL, 0}, {"cd", 3}};
    cr_assert(queue_push_parts(queue, MESSAGE_RANKS, parts, 3));
    const char *got = queue_peek(queue, &head);
    cr_assert_not_null(got);
    cr_expect_eq(head.bytes, 5);
    cr_expect_str_eq(got, "abcd");
    queue_destroy(queue);
}
