/* stream_case.h - what tests of streams have in common: a diary that calls on a
 * stream write into, and objects that must come about. */
#pragma once

#include "base/device/stream.h"
#include "tests/support/gate.h"
#include "tests/support/must.h"

/* Calls in the order in which they ran. */
struct diary {
    int64_t lines[2048];
    int count;
};

static inline void write_line(void *ctx, int64_t arg)
{
    struct diary *diary = ctx;
    diary->lines[diary->count++] = arg;
}

/* `count` calls, whose arguments were 0, 1, 2 .. */
static inline void expect_all(const struct diary *diary, int count)
{
    cr_assert_eq(diary->count, count);
    for (int i = 0; i < count; i++)
        cr_assert_eq(diary->lines[i], i);
}

static inline struct stream *stream_of(enum stream_mode mode)
{
    struct stream *stream = NULL;
    MUST(stream_create("test", mode, &stream));
    return stream;
}

static inline struct event *event_of(void)
{
    struct event *event = NULL;
    MUST(event_create(&event));
    return event;
}
