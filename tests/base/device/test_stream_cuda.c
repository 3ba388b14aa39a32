/* Streams and events of a GPU: with stand-ins, or on a GPU. */
#include "base/spans.h"
#include "tests/base/device/gpu_case.h"
#include "tests/base/device/stream_case.h"

#include <string.h>

enum { BYTES = 1 << 16 };

static struct stream *down, *up;
static void *gpu, *pinned;

static void open_all(void)
{
    gpu_case_begin();
    MUST(stream_create("down", STREAM_CUDA, &down));
    MUST(stream_create("comm", STREAM_CUDA, &up));
    MUST(device_take(BYTES, &gpu));
    MUST(device_take_pinned(BYTES, &pinned));
}

static void close_all(void)
{
    stream_destroy(down);
    stream_destroy(up);
    device_give(gpu, BYTES);
    device_give_pinned(pinned, BYTES);
    gpu_case_end();
}

TestSuite(stream_cuda, .init = open_all, .fini = close_all);

Test(stream_cuda, a_gpu_has_its_own_streams)
{
    struct device_options options = device_options_default();
    cr_expect_eq(device_stream_mode(&options, false), STREAM_CUDA);
    device_use(NULL);
    cr_expect_eq(device_stream_mode(&options, false), STREAM_INLINE);
    device_use(*gpu_case());
}

Test(stream_cuda, the_host_goes_on_while_a_stream_is_held)
{
    struct gate gate = GATE;
    struct event *event = event_of();
    cr_expect(event_is_done(event), "never recorded");
    MUST(stream_call(down, gate_pass, &gate, 0));
    MUST(stream_copy(down, pinned, gpu, BYTES));
    MUST(stream_record(down, event));
    cr_expect_not(event_is_done(event));
    gate_open(&gate);
    MUST(event_wait(event));
    cr_expect(event_is_done(event));
    event_destroy(event);
}

/* The compute stream writes 2 after the copy has taken the 1. */
Test(stream_cuda, a_wait_holds_kernels_and_not_the_caller)
{
    struct gate gate = GATE;
    struct event *left = event_of();
    int one = 1, two = 2, now;
    MUST(device_write(gpu, &one, sizeof one));
    MUST(device_finish());
    MUST(stream_call(down, gate_pass, &gate, 0));
    MUST(stream_copy(down, pinned, gpu, sizeof now));
    MUST(stream_record(down, left));
    MUST(stream_wait(NULL, left));
    MUST(device_write(gpu, &two, sizeof two));
    gate_open(&gate);
    MUST(device_read(&now, gpu, sizeof now));
    cr_expect_eq(now, 2);
    memcpy(&now, pinned, sizeof now);
    cr_expect_eq(now, 1);
    event_destroy(left);
}

/* And a copy waits for what kernels have written. */
Test(stream_cuda, a_copy_waits_for_the_compute_stream)
{
    struct gate gate = GATE;
    struct event *written = event_of();
    int zero = 0, one = 1, now = 0;
    /* the first takes page-locked memory, for which a driver may wait */
    MUST(device_write(gpu, &zero, sizeof zero));
    MUST(device_finish());
    MUST(stream_call(NULL, gate_pass, &gate, 0));
    MUST(device_write(gpu, &one, sizeof one));
    MUST(stream_record(NULL, written));
    MUST(stream_wait(down, written));
    MUST(stream_copy(down, pinned, gpu, sizeof now));
    gate_open(&gate);
    MUST(stream_finish(down));
    memcpy(&now, pinned, sizeof now);
    cr_expect_eq(now, 1);
    event_destroy(written);
}

Test(stream_cuda, calls_come_in_order_and_once_however_many)
{
    static struct diary diary;
    for (int i = 0; i < 1000; i++)
        MUST(stream_call(up, write_line, &diary, i));
    MUST(stream_finish(up));
    expect_all(&diary, 1000);
}

Test(stream_cuda, counts_what_it_copies)
{
    struct stream_counters counters = stream_counters(down);
    cr_expect_eq(counters.bytes, 0u);
    for (int i = 1; i <= 1000; i++)
        MUST(stream_copy(down, pinned, gpu, (size_t)i));
    MUST(stream_copy(down, pinned, gpu, 0));
    MUST(stream_finish(down));
    counters = stream_counters(down);
    cr_expect_eq(counters.bytes, 500500u);
    cr_expect_gt(counters.seconds, 0);
    cr_expect_eq(stream_counters(up).bytes, 0u);
}

Test(stream_cuda, copies_are_spans_while_profiling)
{
    struct spans *spans;
    static struct diary diary;
    size_t count;
    uint64_t dropped;
    MUST(spans_create(16, &spans));
    MUST(stream_copy(up, gpu, pinned, BYTES));
    double begin = clock_seconds();
    stream_set_spans(up, spans, LANE_UP);
    double slack = clock_seconds() - begin;
    MUST(stream_copy(up, gpu, pinned, BYTES));
    MUST(stream_call(up, write_line, &diary, 0));
    stream_set_spans(up, NULL, 0);
    MUST(stream_copy(up, gpu, pinned, BYTES));
    MUST(stream_finish(up));
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
}

static void *wait_elsewhere(void *ctx)
{
    return event_wait(ctx) == ZD_OK ? ctx : NULL;
}

Test(stream_cuda, a_thread_without_a_device_may_wait)
{
    struct gate gate = GATE;
    struct event *event = event_of();
    pthread_t thread;
    void *result;
    MUST(stream_call(down, gate_pass, &gate, 0));
    MUST(stream_record(down, event));
    pthread_create(&thread, NULL, wait_elsewhere, event);
    gate_open(&gate);
    pthread_join(thread, &result);
    cr_expect_eq(result, event);
    cr_expect(event_is_done(event));
    event_destroy(event);
}
