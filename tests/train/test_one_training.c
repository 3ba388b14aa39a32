/* test_one_training.c - one training, whatever the layout.
 *
 * Stages 0-3 give equal bits at the same world; a resumed run equals an
 * unbroken one to the bit at every cut; what was saved at a ranks is the same
 * state at b; accumulation and checkpointing change nothing that they should
 * not. */
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <string.h>

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

static void stages_agree(const char *dtype)
{
    for (int world = 1; world <= 4; world++) {
        const char *first = NULL;
        for (int stage = 0; stage <= 3; stage++) {
            const char *dir = job_threads_dir();
            bool ran = run(
                    dir, world, "zero.stage=%d train.dtype=%s", stage, dtype);
            first = first ? first : dir;
            tap_ok(ran && same_bits(first, dir),
                   "%s world %d: stage %d has the bits of stage 0", dtype,
                   world, stage);
        }
    }
}

static void options_change_nothing(void)
{
    static const struct {
        const char *name, *sets;
    } cases[] = {
            {"overlap_comm = false", "zero.overlap_comm=false"},
            {"prefetch of many units", "zero.prefetch_bucket_size=5e8"},
            {"persistent tensors", "zero.param_persistence_threshold=3000"},
            {"units kept", "zero.max_live_parameters=1e9"},
            {"round robin", "zero.round_robin_gradients=true"},
            {"checkpointing none", "train.gradient_checkpointing=none"},
            {"checkpointing selective",
             "train.gradient_checkpointing=selective"},
            {"checkpointing full", "train.gradient_checkpointing=full"},
            {"checkpointing every:2", "train.gradient_checkpointing=every:2"},
            {"checkpointing sqrt", "train.gradient_checkpointing=sqrt"},
    };
    const char *plain = job_threads_dir();
    tap_ok(run(plain, 3, "zero.stage=3"), "stage 3 at world 3 runs");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *dir = job_threads_dir();
        bool ran = run(dir, 3, "zero.stage=3 %s", cases[i].sets);
        tap_ok(ran && same_bits(plain, dir), "%s gives the same bits",
               cases[i].name);
    }
}

static void accumulation_agrees(void)
{
    static const int sizes[] = {64, 8, 1};
    for (int stage = 1; stage <= 3; stage++) {
        const char *whole = NULL;
        for (int i = 0; i < 3; i++) {
            const char *dir = job_threads_dir();
            bool ran =
                    run(dir, 1,
                        "zero.stage=%d train.per_device_train_batch_size=%d "
                        "train.global_batch_size=64",
                        stage, sizes[i]);
            whole = whole ? whole : dir;
            double worst = column_difference(whole, dir, "loss");
            tap_ok(ran && worst <= 1e-5,
                   "stage %d: %d x %d samples as in one batch (%.2g)", stage,
                   64 / sizes[i], sizes[i], worst);
        }
    }
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
    const char *part = argc > 1 ? argv[1] : "";
    const bool all = argc > 2; /* every cut, and every pair of worlds */
    if (strcmp(part, "stages") == 0) {
        stages_agree("fp32");
        stages_agree("bf16");
    } else if (strcmp(part, "options") == 0) {
        options_change_nothing();
        accumulation_agrees();
    } else if (strcmp(part, "resume") == 0) {
        cuts_resume("fp32", all ? 1 : 2);
        cuts_resume("bf16", all ? 1 : 3);
        worlds_mix(all);
    } else {
        return 64;
    }
    return tap_done();
}
