/* Copies of a GPU and who is told of them: with the stand-ins. */
#include "base/clock.h"
#include "offload/feed.h"
#include "tests/base/device/gpu_case.h"
#include "tests/cuda/stand_in/stand_in.h"
#include "tests/offload/small_engine.h"
#include "tests/support/gate.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

TestSuite(feed_cuda, ON_GPU);

/* Ten seconds, for a machine that is busy. */
static bool comes_to_pass(struct event *event)
{
    double end = clock_seconds() + 10;
    while (!event_is_done(event) && clock_seconds() < end)
        sched_yield();
    return event_is_done(event);
}

Test(feed_cuda, copies_do_not_wait_for_later_callbacks)
{
    struct gate gate = GATE;
    struct stream *stream;
    struct timeline timeline;
    struct token token;
    struct feed feed;
    char *pinned, *gpu;
    MUST(stream_create("down", STREAM_CUDA, &stream));
    MUST(timeline_create(&timeline));
    MUST(device_take_pinned(2, (void **)&pinned));
    MUST(device_take(2, (void **)&gpu));
    MUST(device_write(gpu, "ab", 2));
    MUST(device_finish());
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        memset(pinned, 0, 2);
        gate.open = false;
        MUST(feed_init(&feed, stream, has_thread));
        feed_copy(&feed, pinned, gpu, 1);
        feed_call(&feed, gate_pass, &gate, 0);
        feed_copy(&feed, pinned + 1, gpu + 1, 1);
        feed_record(&feed, &timeline, &token);
        MUST(feed_await(&feed, token));
        cr_expect(comes_to_pass(token.of->event), "the second copy waits");
        gate_open(&gate);
        MUST(feed_finish(&feed));
        cr_expect_eq(memcmp(pinned, "ab", 2), 0);
        feed_fini(&feed);
    }
    timeline_destroy(&timeline);
    stream_destroy(stream);
    device_give(gpu, 2);
    device_give_pinned(pinned, 2);
}

static void count_call(void *ctx, int64_t arg)
{
    (void)arg;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* All are told before feed_finish returns. */
Test(feed_cuda, finishing_waits_for_callbacks)
{
    struct stream *stream;
    struct feed feed;
    atomic_int calls = 0;
    MUST(stream_create("down", STREAM_CUDA, &stream));
    MUST(feed_init(&feed, stream, false));
    for (int i = 0; i < 3 * FEED_OPERATIONS; i++)
        MUST(feed_call(&feed, count_call, &calls, 0));
    MUST(feed_finish(&feed));
    cr_expect_eq(atomic_load(&calls), 3 * FEED_OPERATIONS);
    feed_fini(&feed);
    stream_destroy(stream);
}

enum { COUNT = 6 << 20, CHUNKS = 48, PIECES = 2 };

/* A segment of COUNT elements in fp32, and a small one. */
struct engine {
    struct small_engine small;
    void *grads;
};

static void make_engine(struct engine *e, enum offload_clipping clipping)
{
    small_engine_init(&e->small, 2, COUNT, 256);
    e->small.options.clipping = clipping;
    e->small.options.chunk_bytes = sizeof(float) * COUNT / CHUNKS;
    MUST(small_engine_streams(&e->small, STREAM_CUDA));
    MUST(small_engine_make(&e->small));
    MUST(device_take(4 * COUNT, &e->grads));
    MUST(device_clear(e->grads, 4 * COUNT));
    MUST(device_finish());
}

static void end_engine(struct engine *e)
{
    small_engine_end(&e->small);
    device_give(e->grads, 4 * COUNT);
}

/* Gradients of both segments, which are ready. */
static void send_grads(const struct engine *e)
{
    for (int s = 0; s < 2; s++)
        MUST(offload_grads_down(
                e->small.offload, s, e->grads, (struct token){0}, 0, true));
}

/* 24 MiB in 48 chunks: two copies and two calls, not 48 of each. */
Test(feed_cuda, a_segment_comes_down_in_pieces_of_16_mib)
{
    struct exact_sum sum = {0};
    struct engine e;
    make_engine(&e, OFFLOAD_CLIP_WAIT);
    struct zd_standin_counters before = zd_standin_counters();
    send_grads(&e);
    MUST(offload_squares(e.small.offload, &sum));
    struct zd_standin_counters after = zd_standin_counters();
    cr_expect_eq(after.copies - before.copies, PIECES + 1);
    cr_expect_eq(after.host_calls - before.host_calls, PIECES + 1);
    MUST(offload_skip(e.small.offload));
    MUST(offload_finish(e.small.offload));
    end_engine(&e);
}

/* New parameters of chunks that are there go up in as few copies. All are there
 * at once when the update that was made as gradients arrived is kept. */
Test(feed_cuda, parameters_that_are_there_go_up_in_pieces_of_16_mib)
{
    struct exact_sum sum = {0};
    struct engine e;
    void *params[2];
    float *ones = malloc(sizeof(float) * COUNT);
    float *back = malloc(sizeof(float) * COUNT);
    size_t wrong = 0;
    make_engine(&e, OFFLOAD_CLIP_UNDO);
    struct optim_step step = {
            .options = &e.small.optim,
            .learning_rate = 0.5,
            .t = 1,
            .grad_scale = 1};
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    MUST(device_write(e.grads, ones, sizeof(float) * COUNT));
    for (int s = 0; s < 2; s++) {
        MUST(device_take(sizeof(float) * COUNT, &params[s]));
        offload_params_to(e.small.offload, s, params[s]);
    }
    MUST(device_finish());
    offload_step_begin(e.small.offload, &step);
    send_grads(&e);
    MUST(offload_squares(e.small.offload, &sum));
    struct zd_standin_counters before = zd_standin_counters();
    MUST(offload_update(e.small.offload, &step, NULL));
    for (int s = 0; s < 2; s++)
        MUST(offload_params_wait(e.small.offload, s));
    MUST(device_finish());
    struct zd_standin_counters after = zd_standin_counters();
    cr_expect_eq(after.copies - before.copies, PIECES + 1);
    MUST(device_read(back, params[0], sizeof(float) * COUNT));
    for (int i = 0; i < COUNT; i++) /* Adam's first step, from 0 */
        wrong += !(back[i] < -0.49f && back[i] > -0.51f);
    cr_expect_eq(wrong, 0);
    MUST(offload_finish(e.small.offload));
    for (int s = 0; s < 2; s++)
        device_give(params[s], sizeof(float) * COUNT);
    free(ones);
    free(back);
    end_engine(&e);
}
