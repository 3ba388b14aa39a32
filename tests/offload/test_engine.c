#include "base/must.h"
#include "tests/offload/small_engine.h"
#include "tests/support/gate.h"
#include "tests/support/scratch_suite.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(offload_engine, IN_SCRATCH);

/* Shards of a small model at a large world: padding and nothing else. */
static void owns_nothing(
        enum offload_tier tier, bool params_on_host,
        enum offload_clipping clipping)
{
    struct small_engine e;
    small_engine_init(&e, 2, 256, 512);
    struct optim_step step = {.options = &e.optim, .t = 1, .grad_scale = 1};
    struct exact_sum sum = {0};
    float device[512] = {0};
    e.request.extent_count = 0;
    e.request.params_on_host = params_on_host;
    e.place.file_name = "rank0";
    e.options.nvme_path = scratch.dir;
    e.options.optimizer = tier;
    e.options.params = params_on_host ? tier : OFFLOAD_NONE;
    e.options.clipping = clipping;
    MUST(small_engine_make(&e));
    for (int turn = 0; turn < 2; turn++) {
        offload_step_begin(e.offload, &step);
        for (int s = 0; s < 2; s++)
            MUST(offload_grads_down(
                    e.offload, s, device, (struct token){0}, 0, true));
        MUST(offload_squares(e.offload, &sum));
        MUST(turn ? offload_skip(e.offload)
                  : offload_update(e.offload, &step, NULL));
        for (int s = 0; s < 2; s++)
            MUST(params_on_host ? offload_params_up(e.offload, s, device, NULL)
                                : offload_params_wait(e.offload, s));
    }
    MUST(offload_masters_written(e.offload));
    MUST(offload_finish(e.offload));
    cr_assert_eq(exact_sum_value(&sum), 0);
    small_engine_end(&e);
}

Test(offload_engine, serves_a_rank_that_owns_nothing, .timeout = 100)
{
    for (int host = 0; host < 2; host++) {
        owns_nothing(OFFLOAD_CPU, host, OFFLOAD_CLIP_WAIT);
        owns_nothing(OFFLOAD_CPU, host, OFFLOAD_CLIP_UNDO);
        owns_nothing(OFFLOAD_NVME, host, OFFLOAD_CLIP_WAIT);
    }
}

/* --- sums of micro-batches ------------------------------------------------ */

/* One chunk, to which several workers could add micro-batches at once: in fp32
 * their order shows, 2^24 + 1 - 2^24 being 0. Constants, so that the trainer is
 * faster than the workers. */
Test(offload_engine, micro_batches_are_added_in_their_order, .timeout = 100)
{
    enum { COUNT = 1 << 16, MICROS = 60 };
    static const float values[] = {0x1p24f, 1, -0x1p24f};
    static float grads[3][COUNT];
    struct small_engine e;
    struct exact_sum sum = {0};
    for (int i = 0; i < 3 * COUNT; i++)
        grads[i / COUNT][i % COUNT] = values[i / COUNT];
    small_engine_init(&e, 1, COUNT, 0);
    e.request.accumulates = true;
    e.place.worker_threads = 4;
    MUST(small_engine_make(&e));
    for (int micro = 0; micro < MICROS; micro++)
        MUST(offload_grads_down(
                e.offload, 0, grads[micro % 3], (struct token){0}, micro,
                micro == MICROS - 1));
    MUST(offload_squares(e.offload, &sum));
    cr_expect_eq(exact_sum_value(&sum), 0);
    small_engine_end(&e);
}

/* --- copies up that are late ---------------------------------------------- */

enum { LATE = 4096 };

static void *open_late(void *ctx)
{
    usleep(30000); /* time for who does not wait to go wrong */
    gate_open(ctx);
    return NULL;
}

struct late {
    bool on_host, accumulates;
    enum offload_clipping clipping;
};

/* Two steps on a slow stream up: what the device gets of the first. With
 * `goes_on` the second step does not wait for it. */
static void two_steps(const struct late *of, bool goes_on, float got[LATE])
{
    struct small_engine e;
    small_engine_init(&e, 1, LATE, 0);
    struct optim_step step = {
            .options = &e.optim,
            .t = 1,
            .grad_scale = 1,
            .learning_rate = 0.5f};
    struct gate gate = GATE;
    struct token now = {0};
    ZD_FREED float *grads = calloc(2 * LATE, sizeof *grads);
    struct exact_sum sum = {0};
    pthread_t opener;
    for (int i = 0; i < 2 * LATE; i++)
        grads[i] = i < LATE ? 1 + (float)(i % 7) : -3;
    e.request.accumulates = of->accumulates;
    e.request.params_on_host = of->on_host;
    e.options.params = of->on_host ? OFFLOAD_CPU : OFFLOAD_NONE;
    e.options.clipping = of->clipping;
    e.options.chunk_bytes = 4096;
    MUST(small_engine_streams(&e, STREAM_THREAD));
    MUST(small_engine_make(&e));
    if (!of->on_host)
        offload_params_to(e.offload, 0, got);
    for (int k = 0; k < 1 + goes_on; k++) {
        offload_step_begin(e.offload, &step);
        MUST(offload_grads_down(e.offload, 0, grads + k * LATE, now, 0, true));
        if (k > 0 && !of->on_host)
            break; /* the next update would go up after the first */
        MUST(offload_squares(e.offload, &sum));
        if (k == 0) {
            stream_call(e.place.up, gate_pass, &gate, 0);
            pthread_create(&opener, NULL, open_late, &gate);
        }
        MUST(offload_update(e.offload, &step, NULL));
        if (k == 0 && of->on_host)
            MUST(offload_params_up(e.offload, 0, got, NULL));
        step.t++;
    }
    MUST(offload_finish(e.offload));
    pthread_join(opener, NULL);
    small_engine_end(&e);
}

/* No one waits for parameters of the first step; the second, wherever it writes
 * to, leaves what still goes up. */
Test(offload_engine, a_step_does_not_wait_for_copies_up, .timeout = 100)
{
    static const struct late cases[] = {
            {false, false, OFFLOAD_CLIP_WAIT}, {false, true, OFFLOAD_CLIP_WAIT},
            {false, false, OFFLOAD_CLIP_UNDO}, {true, false, OFFLOAD_CLIP_WAIT},
            {true, false, OFFLOAD_CLIP_UNDO},  {true, true, OFFLOAD_CLIP_WAIT},
            {true, true, OFFLOAD_CLIP_UNDO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float want[LATE] = {0}, got[LATE] = {0};
        two_steps(&cases[i], false, want);
        two_steps(&cases[i], true, got);
        cr_expect(want[5] != 0);
        cr_expect_eq(memcmp(want, got, sizeof got), 0, "case %zu", i);
    }
}
