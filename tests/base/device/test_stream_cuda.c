/* Streams and events of a GPU: with stand-ins, or on a GPU. */
#include "base/spans.h"
#include "tests/base/device/gpu_case.h"
#include "tests/support/gate.h"

#include <string.h>

enum { BYTES = 1 << 16 };

struct fixture {
    struct device *device;
    struct stream *down, *up;
    void *gpu, *pinned;
};

static struct fixture open_all(void)
{
    struct fixture f = {.device = gpu_case_open()};
    cr_assert_eq(stream_create("down", STREAM_CUDA, &f.down), ZD_OK);
    cr_assert_eq(stream_create("comm", STREAM_CUDA, &f.up), ZD_OK);
    cr_assert_eq(device_take(BYTES, &f.gpu), ZD_OK);
    cr_assert_eq(device_take_pinned(BYTES, &f.pinned), ZD_OK);
    return f;
}

static void close_all(struct fixture *f)
{
    stream_destroy(f->down);
    stream_destroy(f->up);
    device_give(f->gpu, BYTES);
    device_give_pinned(f->pinned, BYTES);
    device_close(f->device);
}

static struct event *event_of(void)
{
    struct event *event;
    cr_assert_eq(event_create(&event), ZD_OK);
    return event;
}

Test(stream_cuda, a_gpu_has_its_own_streams)
{
    struct fixture f = open_all();
    struct device_options options = device_options_default();
    cr_expect_eq(device_stream_mode(&options, false), STREAM_CUDA);
    device_use(NULL);
    cr_expect_eq(device_stream_mode(&options, false), STREAM_INLINE);
    device_use(f.device);
    close_all(&f);
}

Test(stream_cuda, the_host_goes_on_while_a_stream_is_held)
{
    struct fixture f = open_all();
    struct gate gate = GATE;
    struct event *event = event_of();
    cr_expect(event_is_done(event), "never recorded");
    cr_assert_eq(stream_call(f.down, gate_pass, &gate, 0), ZD_OK);
    cr_assert_eq(stream_copy(f.down, f.pinned, f.gpu, BYTES), ZD_OK);
    cr_assert_eq(stream_record(f.down, event), ZD_OK);
    cr_expect_not(event_is_done(event));
    gate_open(&gate);
    cr_assert_eq(event_wait(event), ZD_OK);
    cr_expect(event_is_done(event));
    event_destroy(event);
    close_all(&f);
}

/* The compute stream writes 2 after the copy has taken the 1. */
Test(stream_cuda, a_wait_holds_kernels_and_not_the_caller)
{
    struct fixture f = open_all();
    struct gate gate = GATE;
    struct event *left = event_of();
    int one = 1, two = 2, now;
    cr_assert_eq(device_write(f.gpu, &one, sizeof one), ZD_OK);
    cr_assert_eq(device_finish(), ZD_OK);
    cr_assert_eq(stream_call(f.down, gate_pass, &gate, 0), ZD_OK);
    cr_assert_eq(stream_copy(f.down, f.pinned, f.gpu, sizeof now), ZD_OK);
    cr_assert_eq(stream_record(f.down, left), ZD_OK);
    cr_assert_eq(stream_wait(NULL, left), ZD_OK);
    cr_assert_eq(device_write(f.gpu, &two, sizeof two), ZD_OK);
    gate_open(&gate);
    cr_assert_eq(device_read(&now, f.gpu, sizeof now), ZD_OK);
    cr_expect_eq(now, 2);
    memcpy(&now, f.pinned, sizeof now);
    cr_expect_eq(now, 1);
    event_destroy(left);
    close_all(&f);
}

/* And a copy waits for what kernels have written. */
Test(stream_cuda, a_copy_waits_for_the_compute_stream)
{
    struct fixture f = open_all();
    struct gate gate = GATE;
    struct event *written = event_of();
    int zero = 0, one = 1, now = 0;
    /* the first takes page-locked memory, for which a driver may wait */
    cr_assert_eq(device_write(f.gpu, &zero, sizeof zero), ZD_OK);
    cr_assert_eq(device_finish(), ZD_OK);
    cr_assert_eq(stream_call(NULL, gate_pass, &gate, 0), ZD_OK);
    cr_assert_eq(device_write(f.gpu, &one, sizeof one), ZD_OK);
    cr_assert_eq(stream_record(NULL, written), ZD_OK);
    cr_assert_eq(stream_wait(f.down, written), ZD_OK);
    cr_assert_eq(stream_copy(f.down, f.pinned, f.gpu, sizeof now), ZD_OK);
    gate_open(&gate);
    cr_assert_eq(stream_finish(f.down), ZD_OK);
    memcpy(&now, f.pinned, sizeof now);
    cr_expect_eq(now, 1);
    event_destroy(written);
    close_all(&f);
}

struct diary {
    int64_t lines[2048];
    int count;
};

static void write_line(void *ctx, int64_t arg)
{
    struct diary *diary = ctx;
    diary->lines[diary->count++] = arg;
}

Test(stream_cuda, calls_come_in_order_and_once_however_many)
{
    struct fixture f = open_all();
    static struct diary diary;
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(stream_call(f.up, write_line, &diary, i), ZD_OK);
    cr_assert_eq(stream_finish(f.up), ZD_OK);
    cr_assert_eq(diary.count, 1000);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(diary.lines[i], i);
    close_all(&f);
}

Test(stream_cuda, counts_what_it_copies)
{
    struct fixture f = open_all();
    struct stream_counters counters = stream_counters(f.down);
    cr_expect_eq(counters.bytes, 0u);
    for (int i = 1; i <= 1000; i++)
        cr_assert_eq(stream_copy(f.down, f.pinned, f.gpu, (size_t)i), ZD_OK);
    cr_assert_eq(stream_copy(f.down, f.pinned, f.gpu, 0), ZD_OK);
    cr_assert_eq(stream_finish(f.down), ZD_OK);
    counters = stream_counters(f.down);
    cr_expect_eq(counters.bytes, 500500u);
    cr_expect_gt(counters.seconds, 0);
    cr_expect_eq(stream_counters(f.up).bytes, 0u);
    close_all(&f);
}

Test(stream_cuda, copies_are_spans_while_profiling)
{
    struct fixture f = open_all();
    struct spans *spans;
    static struct diary diary;
    size_t count;
    uint64_t dropped;
    cr_assert_eq(spans_create(16, &spans), ZD_OK);
    cr_assert_eq(stream_copy(f.up, f.gpu, f.pinned, BYTES), ZD_OK);
    double begin = clock_seconds();
    stream_set_spans(f.up, spans, LANE_UP);
    double slack = clock_seconds() - begin;
    cr_assert_eq(stream_copy(f.up, f.gpu, f.pinned, BYTES), ZD_OK);
    cr_assert_eq(stream_call(f.up, write_line, &diary, 0), ZD_OK);
    stream_set_spans(f.up, NULL, 0);
    cr_assert_eq(stream_copy(f.up, f.gpu, f.pinned, BYTES), ZD_OK);
    cr_assert_eq(stream_finish(f.up), ZD_OK);
    double end = clock_seconds();
    const struct span *all = spans_get(spans, &count, &dropped);
    cr_assert_eq(count, 2u);
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(all[i].lane, LANE_UP);
        cr_expect_leq(all[i].begin, all[i].end);
        /* two clocks, laid side by side within stream_set_spans: as near as
         * the host came back from there; and events are in fp32 */
        cr_expect_geq(all[i].begin, begin - slack - 1e-3);
        cr_expect_leq(all[i].end, end + slack + 1e-3);
    }
    spans_destroy(spans);
    close_all(&f);
}

static void *wait_elsewhere(void *ctx)
{
    return event_wait(ctx) == ZD_OK ? ctx : NULL;
}

Test(stream_cuda, a_thread_without_a_device_may_wait)
{
    struct fixture f = open_all();
    struct gate gate = GATE;
    struct event *event = event_of();
    pthread_t thread;
    void *result;
    cr_assert_eq(stream_call(f.down, gate_pass, &gate, 0), ZD_OK);
    cr_assert_eq(stream_record(f.down, event), ZD_OK);
    pthread_create(&thread, NULL, wait_elsewhere, event);
    gate_open(&gate);
    pthread_join(thread, &result);
    cr_expect_eq(result, event);
    cr_expect(event_is_done(event));
    event_destroy(event);
    close_all(&f);
}
