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
    enum message_kind kind;
    char text[700];
    int next = 0;
    cr_expect_null(queue_peek(queue, &kind));
    for (int i = 0; i < 5000; i++) {
        size_t bytes = 1 + (size_t)(i * 37) % sizeof text;
        memset(text, i & 0xff, bytes);
        cr_assert(queue_push(queue, MESSAGE_EVENT, text, bytes));
        if (i % 3 != 2)
            continue;
        for (; next <= i; next++) {
            const char *got = queue_peek(queue, &kind);
            size_t want = 1 + (size_t)(next * 37) % sizeof text;
            cr_assert_not_null(got);
            cr_assert_eq(kind, MESSAGE_EVENT);
            cr_assert_eq((unsigned char)got[0], next & 0xff);
            cr_assert_eq((unsigned char)got[want - 1], next & 0xff);
            queue_drop(queue);
        }
        cr_assert_null(queue_peek(queue, &kind));
    }
    cr_expect_eq(queue_dropped(queue), 0);
    cr_expect_eq(wakes, 5000);
    queue_destroy(queue);
}

Test(queue, a_full_queue_drops_steps_and_keeps_room_for_the_rest)
{
    struct message_queue *queue = make(4096);
    enum message_kind kind;
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
    cr_assert_not_null(queue_peek(queue, &kind));
    cr_expect_eq(kind, MESSAGE_STEP);
    queue_drop(queue);
    cr_expect(queue_push(queue, MESSAGE_EVENT, text, sizeof text));
    cr_expect_not(queue_push(queue, MESSAGE_EVENT, text, 100000));
    queue_destroy(queue);
}

Test(queue, two_parts_are_one_message)
{
    struct message_queue *queue = make(4096);
    enum message_kind kind;
    cr_assert(queue_push_with(queue, MESSAGE_RANKS, "ab", 2, "cd", 3));
    cr_expect_str_eq(queue_peek(queue, &kind), "abcd");
    queue_destroy(queue);
}
