/* test_paged - states that do not fit lie on the host and visit the device for
 * the update: the bits are those of the run that has them all there, at every
 * stage and world, whatever is spilled. A plain program that prints TAP, so
 * that it can run under a thread sanitizer, which finds a missing wait. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 3, CHUNK = 1024 /* elements */ };
static const char *const part_names[PARTS] = {"one chunk", "a half", "all"};

static struct scenario scenario(int stage, int world, enum dtype dtype)
{
    struct scenario s = scenario_default(stage, world, dtype);
    s.shape.scale = 12;
    s.streams = STREAM_THREAD;
    s.optim.paged = true;
    s.offload.chunk_bytes = 4 * CHUNK; /* a tensor is several chunks */
    s.replicate = world == 4 || (world == 2 && stage == 2) ? 2 : 1;
    return s;
}

static bool same_run(const struct outcome *a, const struct outcome *b)
{
    return outcome_sound(a) && outcome_sound(b) && outcome_same_run(a, b);
}

/* What a part of the whole is in bytes. */
static size_t spill_of(size_t all, int part)
{
    return part == 0 ? 1 : part == 1 ? all / 2 : all;
}

static size_t all_of(const struct scenario *s)
{
    struct scenario all = *s;
    all.steps = 0;
    all.spill_bytes = SIZE_MAX;
    struct outcome outcome = world_run(&all);
    size_t bytes = outcome.paged;
    outcome_fini(&outcome);
    return bytes;
}

/* One part spilled, against nothing spilled. */
static bool spill_changes_nothing(const struct scenario *s, int part)
{
    struct scenario paged = *s;
    size_t all = all_of(s);
    paged.spill_bytes = spill_of(all, part);
    struct outcome want = world_run(s), got = world_run(&paged);
    uint64_t moved = (uint64_t)got.paged * (uint64_t)s->steps;
    /* the largest of all ranks is planned, a rank may have less */
    bool counted = s->world == 1 || s->options.stage == 0
                           ? got.offload.up_bytes == moved
                           : got.offload.up_bytes <= moved;
    bool ok = same_run(&want, &got) && counted && want.paged == 0 &&
              want.offload.up_bytes == 0 && all > 0 &&
              got.paged >= paged.spill_bytes &&
              got.offload.down_bytes == got.offload.up_bytes &&
              (part < 2 || got.paged == all);
    if (!ok)
        printf("# stage %d, world %d, %s, %s: %zu of %zu bytes, %llu up\n",
               s->options.stage, s->world, dtype_name(s->dtype),
               part_names[part], got.paged, all,
               (unsigned long long)got.offload.up_bytes);
    outcome_fini(&want);
    outcome_fini(&got);
    return ok;
}

/* --- stages, worlds, types ------------------------------------------------ */

static void vary(struct scenario *s, int variant)
{
    s->shape.tied = variant & 1;
    s->shape.freeze_low = (variant & 6) == 6;
    s->streams = variant % 3 ? STREAM_THREAD : STREAM_INLINE;
    s->clip = variant % 4 ? 1 : 1e9;
    s->dawdle_us = variant % 5 == 1 ? 2000 : 0;
    if (variant % 7 == 4)
        s->offload.chunk_bytes = 0; /* a chunk is a whole run */
}

static void test_worlds(void)
{
    static const int worlds[] = {1, 2, 4};
    int variant = 0;
    for (int w = 0; w < 3; w++)
        for (int half = 0; half <= 1; half++) {
            bool ok = true;
            for (int stage = 0; stage <= 3; stage++)
                for (int part = 0; part < PARTS; part++) {
                    if ((stage + part + half) % 2)
                        continue;
                    struct scenario s = scenario(
                            stage, worlds[w], half ? DTYPE_BF16 : DTYPE_FP32);
                    vary(&s, variant++);
                    ok &= spill_changes_nothing(&s, part);
                }
            tap_ok(ok, "states spilled: %d ranks, %s", worlds[w],
                   half ? "bf16" : "fp32");
        }
}

static void test_optimizers(void)
{
    static const struct {
        const char *name;
        struct optim_options options;
    } cases[] = {
            {"adamw 8 bit",
             {.name = OPTIM_ADAMW, .state_type = OPTIM_STATE_8BIT}},
            {"adamw 8 bit, embeddings 32 bit",
             {.name = OPTIM_ADAMW,
              .state_type = OPTIM_STATE_8BIT,
              .stable_embedding = true}},
            {"adamw bf16",
             {.name = OPTIM_ADAMW, .state_type = OPTIM_STATE_BF16}},
            {"adam_mini", {.name = OPTIM_ADAM_MINI}},
            {"adam_mini 8 bit",
             {.name = OPTIM_ADAM_MINI, .state_type = OPTIM_STATE_8BIT}},
            {"lion", {.name = OPTIM_LION}},
            {"lion 8 bit",
             {.name = OPTIM_LION, .state_type = OPTIM_STATE_8BIT}},
            {"sgd with momentum", {.name = OPTIM_SGD, .momentum = 0.9}},
            {"adamw without masters",
             {.name = OPTIM_ADAMW, .master = OPTIM_MASTER_NONE}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool ok = true;
        for (int part = 0; part < PARTS; part++) {
            struct scenario s =
                    scenario((int)(i + (size_t)part) % 4, 1 + part, DTYPE_BF16);
            vary(&s, (int)(7 * i) + part);
            s.optim.name = cases[i].options.name;
            s.optim.state_type = cases[i].options.state_type;
            s.optim.stable_embedding = cases[i].options.stable_embedding;
            s.optim.master = cases[i].options.master;
            s.optim.momentum = cases[i].options.momentum;
            ok &= spill_changes_nothing(&s, part);
        }
        tap_ok(ok, "%s", cases[i].name);
    }
}

/* An optimizer without states has nothing to spill. */
static void test_stateless(void)
{
    struct scenario s = scenario(1, 2, DTYPE_BF16);
    s.optim.name = OPTIM_SGD;
    s.spill_bytes = SIZE_MAX;
    struct outcome outcome = world_run(&s);
    tap_ok(outcome_sound(&outcome) && outcome.paged == 0,
           "sgd without momentum");
    outcome_fini(&outcome);
}

/* --- memory --------------------------------------------------------------- */

/* What leaves the device is on the host; the buffers of three chunks and the
 * chunks' padding come on top. */
static void test_bytes(void)
{
    bool shrinks = true, whole = true;
    for (int half = 0; half <= 1; half++) {
        struct scenario s = scenario(0, 1, half ? DTYPE_BF16 : DTYPE_FP32);
        s.steps = 0;
        s.optim.state_type = half ? OPTIM_STATE_8BIT : OPTIM_STATE_FP32;
        struct outcome none = world_run(&s);
        size_t all = all_of(&s), last = SIZE_MAX;
        size_t staging = 3 * CHUNK * 8 + 3 * 256;
        for (int i = 1; i <= 16; i++) {
            s.spill_bytes = all / 16 * (size_t)i;
            struct outcome part = world_run(&s);
            shrinks &= part.device <= last && part.paged >= s.spill_bytes &&
                       part.paged < s.spill_bytes + CHUNK * 8 + 256;
            whole &= part.device + part.paged >= none.device &&
                     part.device + part.paged <=
                             none.device + staging + part.paged / 16;
            last = part.device;
            outcome_fini(&part);
        }
        outcome_fini(&none);
    }
    tap_ok(shrinks, "more spilled is less on the device");
    tap_ok(whole, "what is spilled lies on the host once");
}

/* --- what may happen ------------------------------------------------------ */

/* Saved with one part spilled, loaded at another world with another. */
static void test_moves(void)
{
    bool equal = true, unbroken = true;
    for (int k = 0; k < 6; k++) {
        struct scenario whole =
                scenario(k % 4, 1 + k % 3, k & 1 ? DTYPE_BF16 : DTYPE_FP32);
        whole.steps = 4;
        whole.optim.state_type = k < 3 ? OPTIM_STATE_FP32 : OPTIM_STATE_8BIT;
        whole.spill_bytes = spill_of(all_of(&whole), k % PARTS);
        whole.dawdle_us = k & 1 ? 2000 : 0;
        struct scenario part = whole;
        part.steps = 2;
        struct outcome all = world_run(&whole), half_way = world_run(&part);
        struct scenario moved = part;
        moved.steps = 0;
        moved.world = 1 + (k + 1) % 4;
        moved.replicate = moved.world % 2 ? 1 : 2;
        moved.options.stage = (k + 2) % 4;
        moved.spill_bytes = k % 2 ? part.spill_bytes * 2 : 0;
        moved.offload.chunk_bytes = 8 * CHUNK;
        moved.resume = &half_way;
        struct outcome loaded = world_run(&moved);
        equal &= outcome_sound(&loaded) && outcome_same(&half_way, &loaded);
        struct scenario rest = part;
        rest.first_step = 2;
        rest.spill_bytes = k < 3 ? 0 : part.spill_bytes;
        rest.resume = &half_way;
        struct outcome resumed = world_run(&rest);
        unbroken &= outcome_sound(&resumed) && outcome_same(&all, &resumed) &&
                    resumed.norms[1] == all.norms[3];
        outcome_fini(&all);
        outcome_fini(&half_way);
        outcome_fini(&loaded);
        outcome_fini(&resumed);
    }
    tap_ok(equal, "states move between worlds, spilled or not");
    tap_ok(unbroken, "a resumed run equals an unbroken one");
}

int main(void)
{
    test_worlds();
    test_optimizers();
    test_stateless();
    test_bytes();
    test_moves();
    return tap_done();
}
