/* test_one_training.c - a resumed run equals an unbroken one to the bit at
 * every cut; what was saved at a ranks is the same state at b. */
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

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

/* Load at b ranks into another folder and save at once: nothing is computed. */
static bool moves_unchanged(const char *from, int a, int b)
{
    const char *dir = job_threads_dir();
    return run(dir, b,
               "zero.stage=%d run.stop_after=6 "
               "run.resume=%s/out/checkpoint-000006",
               b - 1, from) &&
           same_saved_state(from, a, dir, b, 6);
}

/* Save at a ranks, load at b: the state is the same and the losses go on. */
static void worlds_mix(bool all)
{
    const char *whole = job_threads_dir();
    tap_ok(run(whole, 1, ""), "the unbroken run on one rank");
    for (int a = 1; a <= 4; a++)
        for (int b = 1; b <= 4; b++) {
            if (!all && a != b && (a + b) % 2 == 0)
                continue;
            const char *dir = job_threads_dir();
            bool ran = run(dir, a, "zero.stage=%d run.stop_after=6", a - 1);
            tap_ok(ran && moves_unchanged(dir, a, b),
                   "saved at %d ranks, loaded at %d: the same bits", a, b);
            ran = run(dir, b, "zero.stage=%d", b - 1);
            double worst = column_difference(whole, dir, "loss");
            tap_ok(ran && worst <= 1e-5,
                   "saved at %d ranks (stage %d), resumed at %d (stage %d): "
                   "%.2g",
                   a, a - 1, b, b - 1, worst);
        }
}

int main(int argc, char **argv)
{
    const bool all = argc > 1; /* every cut, and every pair of worlds */
    cuts_resume("fp32", all ? 1 : 2);
    cuts_resume("bf16", all ? 1 : 3);
    worlds_mix(all);
    return tap_done();
}
