/* The whole engine for the thread sanitizer: streams that are threads, workers,
 * the feeds, both strategies, parameters on both sides. Prints TAP. */
#include "tests/offload/engine_case.h"
#include "tests/offload/small_engine.h"
#include "tests/support/tap.h"

#include <stdlib.h>

/* One chunk, to which several workers could add micro-batches at once: in fp32
 * their order shows, 2^24 + 1 - 2^24 being 0. */
enum { COUNT = 1 << 16, MICROS = 60 };

/* (3, COUNT) constants, so that the trainer is faster than the workers. */
static float *make_constants(void)
{
    static const float values[] = {0x1p24f, 1, -0x1p24f};
    float *grads = malloc(3 * COUNT * sizeof *grads);
    for (int i = 0; i < 3 * COUNT; i++)
        grads[i] = values[i / COUNT];
    return grads;
}

static enum zd_status add_up(struct offload *offload, const float *grads)
{
    for (int micro = 0; micro < MICROS; micro++)
        ZD_TRY(offload_grads_down(
                offload, 0, grads + micro % 3 * COUNT, (struct token){0}, micro,
                micro == MICROS - 1));
    return ZD_OK;
}

static bool micros_are_added_in_order(void)
{
    struct small_engine e;
    struct exact_sum sum;
    float *grads = make_constants();
    small_engine_init(&e, 1, COUNT, 0);
    e.request.accumulates = true;
    e.place.worker_threads = 4;
    exact_sum_clear(&sum);
    bool ok = small_engine_make(&e) == ZD_OK &&
              add_up(e.offload, grads) == ZD_OK &&
              offload_squares(e.offload, &sum) == ZD_OK &&
              exact_sum_value(&sum) == 0;
    small_engine_end(&e);
    free(grads);
    return ok;
}

int main(void)
{
    static const uint64_t chunk_bytes[] = {1024, 12000, 0};
    tap_ok(micros_are_added_in_order(),
           "micro-batches are added in their order");
    for (int tier = HOST_DEVICE; tier < ENGINE_TIERS; tier++)
        for (int m = 0; m < 3; m++)
            for (int undo = 0; undo < 2; undo++)
                for (int chunk = 0; chunk < 3; chunk++) {
                    if (undo && tier >= NVME_DEVICE)
                        continue;
                    struct engine_setting setting = {
                            /* Adam-mini has its own pass */
                            .variant = &engine_variants[undo ? 1 : 3],
                            .dtype = DTYPE_BF16,
                            .tier = (enum engine_tier)tier,
                            .micros = m == 2 ? 3 : m,
                            .clipping = undo ? OFFLOAD_CLIP_UNDO
                                             : OFFLOAD_CLIP_WAIT,
                            .threads = 4 - chunk,
                            .chunk_bytes = chunk_bytes[chunk],
                            .streams = STREAMS_THREAD,
                    };
                    char text[256];
                    const char *wrong = engine_case_run(&setting);
                    engine_setting_print(&setting, text, sizeof text);
                    tap_ok(!wrong, "%s%s%s", text, wrong ? ": " : "",
                           wrong ? wrong : "");
                }
    return tap_done();
}
