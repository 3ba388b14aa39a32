/* test_offload - the optimizer's states on the host, and parameters too: the
 * bits are those of the run on the device, at every stage and world, the wire
 * is the planned one. A plain program that prints TAP, so that it can run under
 * a thread sanitizer, which finds a missing wait for a stream. */
#include "world.h"

#include <math.h>
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

/* --- optimizers ----------------------------------------------------------- */

static void test_optimizers(void)
{
    static const struct {
        const char *name;
        struct optim_options options;
    } cases[] = {
            {"adamw 8 bit",
             {.name = OPTIM_ADAMW, .state_type = OPTIM_STATE_8BIT}},
            {"adamw bf16",
             {.name = OPTIM_ADAMW, .state_type = OPTIM_STATE_BF16}},
            {"adam_mini", {.name = OPTIM_ADAM_MINI}},
            {"adam_mini 8 bit",
             {.name = OPTIM_ADAM_MINI, .state_type = OPTIM_STATE_8BIT}},
            {"lion", {.name = OPTIM_LION}},
            {"lion 8 bit",
             {.name = OPTIM_LION, .state_type = OPTIM_STATE_8BIT}},
            {"sgd", {.name = OPTIM_SGD}},
            {"sgd with momentum", {.name = OPTIM_SGD, .momentum = 0.9}},
            {"adamw without masters",
             {.name = OPTIM_ADAMW, .master = OPTIM_MASTER_NONE}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool ok = true;
        for (int k = 0; k < 4; k++) {
            struct scenario s =
                    scenario((int)(i + (size_t)k) % 4, 1 + k % 3, DTYPE_BF16);
            vary(&s, (int)(7 * i) + k);
            s.shape.scale = 12; /* matrices of more than 4096 elements */
            s.optim.name = cases[i].options.name;
            s.optim.state_type = cases[i].options.state_type;
            s.optim.master = cases[i].options.master;
            s.optim.momentum = cases[i].options.momentum;
            s.offload.optimizer = OFFLOAD_CPU;
            if (s.optim.name == OPTIM_ADAM_MINI) /* needs the norm first */
                s.offload.clipping = OFFLOAD_CLIP_WAIT;
            if (s.world == 1)
                s.offload.params = OFFLOAD_CPU;
            ok &= offload_changes_nothing(&s);
        }
        report(ok, cases[i].name, "see above");
    }
}

/* --- what may happen ------------------------------------------------------ */

/* A step that is not finite leaves all as it was, and the next one goes on. */
static void test_skipped(void)
{
    bool ok = true;
    for (int k = 0; k < 12; k++) {
        struct scenario s =
                scenario(k % 4, 1 + k % 3, k & 1 ? DTYPE_BF16 : DTYPE_FP32);
        vary(&s, 3 * k + 1);
        s.offload.optimizer = OFFLOAD_CPU;
        if (s.world == 1 || s.options.stage == 3)
            s.offload.params = k & 4 ? OFFLOAD_CPU : OFFLOAD_NONE;
        s.evaluates = true; /* parameters are read after the skipped step */
        s.broken = true;
        struct scenario before = s;
        struct outcome outcome = world_run(&s);
        before.broken = false;
        before.steps--;
        struct outcome good = world_run(&before);
        ok &= outcome.status == ZD_OK && outcome.ranks_agree &&
              isnan(outcome.norms[2]) && outcome_same(&outcome, &good);
        outcome_fini(&outcome);
        outcome_fini(&good);
    }
    report(ok, "a step that is not finite changes nothing", "something moved");
}

/* Saved offloaded at one world and stage, loaded at another with or without. */
static void test_moves(void)
{
    bool equal = true, unbroken = true;
    for (int k = 0; k < 6; k++) {
        enum dtype dtype = k & 1 ? DTYPE_BF16 : DTYPE_FP32;
        struct scenario whole = scenario(k % 4, 1 + k % 3, dtype);
        whole.steps = 4;
        whole.offload.optimizer = OFFLOAD_CPU;
        whole.optim.state_type = k < 3 ? OPTIM_STATE_FP32 : OPTIM_STATE_8BIT;
        struct scenario part = whole;
        part.steps = 2;
        struct outcome all = world_run(&whole), half_way = world_run(&part);
        struct scenario moved = part;
        moved.steps = 0;
        moved.world = 1 + (k + 1) % 4;
        moved.options.stage = (k + 2) % 4;
        moved.offload.optimizer = k % 3 ? OFFLOAD_CPU : OFFLOAD_NONE;
        moved.resume = &half_way;
        struct outcome loaded = world_run(&moved);
        equal &= outcome_sound(&loaded) && outcome_same(&half_way, &loaded);
        struct scenario rest = part;
        rest.first_step = 2;
        rest.resume = &half_way;
        struct outcome resumed = world_run(&rest);
        unbroken &= outcome_sound(&resumed) && outcome_same(&all, &resumed) &&
                    resumed.norms[1] == all.norms[3];
        outcome_fini(&all);
        outcome_fini(&half_way);
        outcome_fini(&loaded);
        outcome_fini(&resumed);
    }
    report(equal, "states move between worlds, on and off the host",
           "they changed");
    report(unbroken, "a resumed run equals an unbroken one",
           "it went another way");
}

int main(void)
{
    test_optimizer_on_host();
    test_params_on_host();
    test_accumulation();
    test_reduced_in_fp32();
    test_optimizers();
    test_skipped();
    test_moves();
    return report_done();
}
