/* test_one_training.c - a resumed run equals an unbroken one to the bit at
 * every cut; what was saved in one mesh is the same state in another. */
#include "base/number/rng.h"
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <stdio.h>

enum { STEPS = 12 };
/* Settings are words; a dir that exists is resumed. */
#define run(dir, world, ...)                                                   \
    job_runs(                                                                  \
            "tests/fixtures/llama_odd/job.toml", dir, world,                   \
            "train.max_steps=12 " __VA_ARGS__)

static bool same_bits(const char *a, const char *b)
{
    return same_training(a, b, STEPS) && same_model(a, b);
}

static void cuts_resume(const char *dtype, int stride)
{
    const char *whole = job_threads_dir();
    tap_ok(run(whole, 2, "zero.stage=2 train.dtype=%s", dtype),
           "%s: the unbroken run", dtype);
    for (int cut = 1; cut < STEPS; cut += stride) {
        const char *dir = job_threads_dir();
        bool ran = run(dir, 2, "zero.stage=2 train.dtype=%s run.stop_after=%d",
                       dtype, cut) &&
                   run(dir, 2, "zero.stage=2 train.dtype=%s", dtype);
        tap_ok(ran && same_bits(whole, dir),
               "%s: cut after step %d, the rest has the same bits", dtype, cut);
    }
}

/* Who cuts what, and where it lies. */
struct layout {
    int world, replicate, stage;
    bool on_host;
};

static const char *words_of(struct layout layout, char out[128])
{
    snprintf(
            out, 128,
            "zero.stage=%d parallel.dp_replicate_size=%d offload.optimizer=%s",
            layout.stage, layout.replicate, layout.on_host ? "cpu" : "none");
    return out;
}

/* Load into another folder and save at once: nothing is computed. */
static bool moves_unchanged(const char *from, struct layout a, struct layout b)
{
    char words[128];
    const char *dir = job_threads_dir();
    return run(dir, b.world,
               "%s run.stop_after=6 run.resume=%s/out/checkpoint-000006",
               words_of(b, words), from) &&
           same_saved_state(from, a.world, dir, b.world, 6);
}

/* Saved as a, loaded as b: the state is the same and the losses go on. */
static void try_pair(const char *whole, struct layout a, struct layout b)
{
    char was[128], is[128];
    const char *dir = job_threads_dir();
    bool ran = run(dir, a.world, "%s run.stop_after=6", words_of(a, was));
    bool moved = ran && moves_unchanged(dir, a, b);
    ran = ran && run(dir, b.world, "%s", words_of(b, is));
    double worst = column_difference(whole, dir, "loss");
    tap_ok(moved && ran && worst <= 1e-5,
           "%d ranks (%s), then %d (%s): the same states, losses %.2g", a.world,
           was, b.world, is, worst);
}

static struct layout random_layout(uint64_t number)
{
    struct layout layout;
    layout.world = 1 + (int)(8 * rng_uniform(1, number, 0));
    do
        layout.replicate = 1 + (int)(8 * rng_uniform(1, number++, 1));
    while (layout.world % layout.replicate);
    layout.stage = (int)(4 * rng_uniform(1, number, 2));
    layout.on_host = rng_uniform(1, number, 3) < 0.5F;
    return layout;
}

/* One rank to four, the last two by two; in the suite `long` any. */
static void worlds_mix(bool all)
{
    const char *whole = job_threads_dir();
    tap_ok(run(whole, 1, ""), "the unbroken run on one rank");
    for (int a = 1; a <= 4; a++)
        for (int b = 1; b <= 4; b++) {
            struct layout from = {a, a == 4 ? 2 : 1, a - 1, false};
            struct layout to = {b, b == 4 ? 2 : 1, b - 1, b == 2};
            if (all || a == b || (a + b) % 2)
                try_pair(whole, from, to);
        }
    for (uint64_t i = 0; all && i < 60; i++)
        try_pair(
                whole, random_layout(2000 * i), random_layout(2000 * i + 1000));
}

int main(int argc, char **argv)
{
    const bool all = argc > 1; /* every cut, and every pair of worlds */
    cuts_resume("fp32", all ? 1 : 2);
    cuts_resume("bf16", all ? 1 : 3);
    worlds_mix(all);
    return tap_done();
}
