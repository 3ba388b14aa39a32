#include "tests/base/device/stream_case.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

Test(stream, works_in_order)
{
    struct stream *stream = stream_of(STREAM_THREAD);
    struct gate gate = GATE;
    struct diary diary = {0};
    char a[8] = "first", b[8] = "", c[8] = "";
    stream_call(stream, gate_pass, &gate, 0);
    stream_copy(stream, b, a, sizeof a);
    stream_copy(stream, c, b, sizeof b);
    for (int i = 0; i < 100; i++)
        stream_call(stream, write_line, &diary, i);
    cr_expect_eq(diary.count, 0);
    cr_expect_str_eq(b, "");
    gate_open(&gate);
    stream_finish(stream);
    cr_expect_str_eq(c, "first");
    expect_all(&diary, 100);
    stream_destroy(stream);
}

static struct stream *down, *up;
static struct event *middle, *end;
static struct gate hold = GATE;

static void begin_two(void)
{
    down = stream_of(STREAM_THREAD);
    up = stream_of(STREAM_THREAD);
    middle = event_of();
    end = event_of();
}

static void end_two(void)
{
    stream_destroy(up);
    stream_destroy(down);
    event_destroy(middle);
    event_destroy(end);
}

#define TWO_STREAMS .init = begin_two, .fini = end_two

Test(stream, waits_for_events_of_another, TWO_STREAMS)
{
    struct diary diary = {0};
    stream_call(down, gate_pass, &hold, 0);
    stream_call(down, write_line, &diary, 0);
    stream_record(down, middle);
    stream_wait(up, middle);
    stream_call(up, write_line, &diary, 1);
    stream_record(up, end);
    cr_expect_not(event_is_done(middle));
    cr_expect_not(event_is_done(end));
    cr_expect_eq(diary.count, 0);
    gate_open(&hold);
    event_wait(end);
    cr_expect(event_is_done(middle));
    expect_all(&diary, 2);
}

static void *open_after_20_ms(void *gate)
{
    usleep(20000);
    return gate_open_later(gate);
}

Test(stream, an_event_outlives_the_waits_that_are_queued, TWO_STREAMS)
{
    struct diary diary = {0};
    struct event *event = event_of();
    pthread_t opener;
    stream_record(up, event);
    stream_finish(up);
    stream_call(down, gate_pass, &hold, 0);
    stream_call(down, write_line, &diary, 0);
    stream_wait(down, event);
    pthread_create(&opener, NULL, open_after_20_ms, &hold);
    event_destroy(event);
    cr_expect_eq(diary.count, 1);
    pthread_join(opener, NULL);
}

Test(stream, wait_means_the_last_record_before_it, TWO_STREAMS)
{
    stream_record(down, middle);
    stream_wait(up, middle);
    stream_record(up, end);
    /* recorded again before the first wait may have begun */
    stream_call(down, gate_pass, &hold, 0);
    stream_record(down, middle);
    event_wait(end);
    cr_expect(event_is_done(end));
    cr_expect_not(event_is_done(middle));
    gate_open(&hold);
    event_wait(middle);
    cr_expect(event_is_done(middle));
}

Test(stream, records_on_two_streams_are_done_in_order, TWO_STREAMS)
{
    struct diary diary = {0};
    stream_call(down, gate_pass, &hold, 0);
    stream_call(down, write_line, &diary, 0);
    stream_record(down, middle);
    stream_record(up, middle);
    usleep(20000); /* time for a wrong one to be done */
    cr_expect_not(event_is_done(middle));
    gate_open(&hold);
    event_wait(middle);
    cr_expect_eq(diary.count, 1);
}

struct filler {
    struct stream *stream;
    struct diary *diary;
    int operations;
};

static void *fill(void *ctx)
{
    struct filler *filler = ctx;
    for (int i = 0; i < filler->operations; i++)
        stream_call(filler->stream, write_line, filler->diary, i);
    return NULL;
}

Test(stream, queueing_waits_when_full)
{
    struct stream *stream = stream_of(STREAM_THREAD);
    struct gate gate = GATE;
    static struct diary diary;
    struct filler filler = {stream, &diary, 2000};
    pthread_t thread;
    stream_call(stream, gate_pass, &gate, 0);
    pthread_create(&thread, NULL, fill, &filler);
    gate_open(&gate);
    pthread_join(thread, NULL);
    stream_finish(stream);
    expect_all(&diary, 2000);
    stream_destroy(stream);
}

Test(stream, inline_works_at_once)
{
    struct stream *streams[] = {stream_of(STREAM_INLINE), NULL};
    for (int i = 0; i < 2; i++) {
        struct event *event = event_of();
        struct diary diary = {0};
        int from = 7, to = 0;
        stream_copy(streams[i], &to, &from, sizeof to);
        cr_expect_eq(to, 7);
        stream_call(streams[i], write_line, &diary, 0);
        cr_expect_eq(diary.count, 1);
        stream_record(streams[i], event);
        cr_expect(event_is_done(event));
        event_destroy(event);
    }
    stream_destroy(streams[0]);
}

Test(stream, inline_waits_for_a_thread)
{
    struct stream *thread_stream = stream_of(STREAM_THREAD);
    struct stream *streams[] = {stream_of(STREAM_INLINE), NULL};
    for (int i = 0; i < 2; i++) {
        struct event *event = event_of();
        struct gate gate = GATE;
        struct diary diary = {0};
        pthread_t opener;
        stream_call(thread_stream, gate_pass, &gate, 0);
        stream_call(thread_stream, write_line, &diary, 0);
        stream_record(thread_stream, event);
        pthread_create(&opener, NULL, gate_open_later, &gate);
        stream_wait(streams[i], event);
        stream_call(streams[i], write_line, &diary, 1);
        expect_all(&diary, 2);
        pthread_join(opener, NULL);
        event_destroy(event);
    }
    stream_destroy(streams[0]);
    stream_destroy(thread_stream);
}

Test(stream, event_never_recorded_is_done)
{
    struct event *event = event_of();
    cr_expect(event_is_done(event));
    event_wait(event);
    cr_expect(event_is_done(NULL));
    event_wait(NULL);
    event_destroy(event);
    event_destroy(NULL);
    stream_destroy(NULL);
}

Test(stream, counts_what_it_copies)
{
    enum stream_mode modes[] = {STREAM_INLINE, STREAM_THREAD};
    static char from[100000], to[100000];
    for (int i = 0; i < 2; i++) {
        struct stream *stream = stream_of(modes[i]);
        stream_copy(stream, to, from, sizeof to);
        stream_copy(stream, to, from, 5);
        stream_copy(stream, to, from, 0);
        stream_finish(stream);
        cr_expect_eq(stream_counters(stream).bytes, sizeof to + 5);
        cr_expect_gt(stream_counters(stream).seconds, 0.0);
        stream_destroy(stream);
    }
}

Test(stream, destroying_finishes_what_is_queued)
{
    struct stream *stream = stream_of(STREAM_THREAD);
    struct diary diary = {0};
    for (int i = 0; i < 200; i++)
        stream_call(stream, write_line, &diary, i);
    stream_destroy(stream);
    expect_all(&diary, 200);
}
