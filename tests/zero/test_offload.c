/* test_offload - the optimizer's states on the host, and parameters too: the
 * bits are those of the run on the device, at every stage and world, the wire
 * is the planned one. A plain program that prints TAP, so that it can run under
 * a thread sanitizer, which finds a missing wait for a stream. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

static struct scenario scenario(int stage, int world, enum dtype dtype)
{
    struct scenario s = scenario_default(stage, world, dtype);
    s.streams = STREAM_THREAD;
    s.workers = 1;
    s.offload.chunk_bytes = 2048; /* a tensor is several chunks */
    return s;
}

/* Runs `s` as it is and without offload. */
static bool offload_changes_nothing(const struct scenario *s)
{
    struct scenario device = *s;
    device.offload = offload_options_default();
    device.accumulate_on_host = false;
    struct outcome want = world_run(&device), got = world_run(s);
    bool ok = outcome_sound(&want) && outcome_sound(&got);
    if (ok && !outcome_same_run(&want, &got)) {
        printf("# stage %d world %d %s: other bits\n", s->options.stage,
               s->world, dtype_name(s->dtype));
        ok = false;
    }
    outcome_fini(&want);
    outcome_fini(&got);
    return ok;
}

/* --- stages, worlds, types, ways to send ---------------------------------- */

static void vary(struct scenario *s, int variant)
{
    scenario_vary(s, variant);
    s->streams = variant % 3 ? STREAM_THREAD : STREAM_INLINE;
    s->workers = variant & 2 ? 3 : 1;
    s->clip = variant % 4 ? 1 : 1e9;
    s->offload.clipping =
            variant % 7 < 3 ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT;
}

static void test_optimizer_on_host(void)
{
    static const int worlds[] = {1, 2, 4};
    int variant = 0;
    for (int w = 0; w < 3; w++)
        for (int half = 0; half <= 1; half++) {
            char name[128];
            bool ok = true;
            for (int stage = 0; stage <= 3; stage++)
                for (int k = 0; k < 3; k++) {
                    struct scenario s = scenario(
                            stage, worlds[w], half ? DTYPE_BF16 : DTYPE_FP32);
                    vary(&s, variant++);
                    s.offload.optimizer = OFFLOAD_CPU;
                    ok &= offload_changes_nothing(&s);
                }
            snprintf(
                    name, sizeof name, "optimizer on the host: %d ranks, %s",
                    worlds[w], half ? "bf16" : "fp32");
            report(ok, name, "see above");
        }
}

static void test_params_on_host(void)
{
    static const int worlds[] = {1, 2, 4};
    int variant = 0;
    for (int w = 0; w < 3; w++)
        for (int half = 0; half <= 1; half++) {
            char name[128];
            bool ok = true;
            for (int k = 0; k < 5; k++) {
                int stage = worlds[w] > 1 ? 3 : k % 4;
                struct scenario s = scenario(
                        stage, worlds[w], half ? DTYPE_BF16 : DTYPE_FP32);
                vary(&s, variant++);
                s.offload.optimizer = s.offload.params = OFFLOAD_CPU;
                ok &= offload_changes_nothing(&s);
            }
            snprintf(
                    name, sizeof name, "parameters on the host: %d ranks, %s",
                    worlds[w], half ? "bf16" : "fp32");
            report(ok, name, "see above");
        }
}

/* Several micro-batches, added up on the device (at every stage) or on the
 * host, which adds what stages 2 and 3 add on the device. */
static void test_accumulation(void)
{
    int variant = 0;
    for (int on_host = 0; on_host <= 1; on_host++) {
        bool ok = true;
        for (int world = 1; world <= 3; world++)
            for (int stage = 0; stage <= 3; stage++)
                for (int half = 0; half <= 1; half++) {
                    struct scenario s = scenario(
                            stage, world, half ? DTYPE_BF16 : DTYPE_FP32);
                    bool equal = !on_host || (world > 1 && stage >= 2);
                    if (!equal)
                        continue;
                    vary(&s, variant++);
                    s.accumulation = 3;
                    s.steps = 2;
                    s.accumulate_on_host = on_host;
                    s.offload.optimizer = OFFLOAD_CPU;
                    if (variant % 3 == 0 && (world == 1 || stage == 3))
                        s.offload.params = OFFLOAD_CPU;
                    ok &= offload_changes_nothing(&s);
                }
        report(ok,
               on_host ? "micro-batches added up on the host"
                       : "micro-batches added up on the device",
               "see above");
    }
}

/* One micro-batch whose gradients are reduced in fp32, kept on the device and
 * passed on. */
static void test_reduced_in_fp32(void)
{
    int variant = 0;
    bool ok = true;
    for (int world = 1; world <= 3; world++)
        for (int stage = 0; stage <= 3; stage++) {
            struct scenario s = scenario(stage, world, DTYPE_BF16);
            vary(&s, variant++);
            s.reduce_fp32 = true;
            s.offload.optimizer = OFFLOAD_CPU;
            if (variant % 3 == 0 && (world == 1 || stage == 3))
                s.offload.params = OFFLOAD_CPU;
            ok &= offload_changes_nothing(&s);
        }
    report(ok, "gradients are reduced in fp32 and rounded once", "see above");
}

int main(void)
{
    test_optimizer_on_host();
    test_params_on_host();
    test_accumulation();
    test_reduced_in_fp32();
    return report_done();
}
