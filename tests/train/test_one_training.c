/* test_one_training.c - one training, whatever the layout.
 *
 * Stages 0-3 give equal bits at the same world; a resumed run equals an
 * unbroken one to the bit at every cut; what was saved at a ranks is the same
 * state at b; accumulation and checkpointing change nothing that they should
 * not. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { STEPS = 12, SETS = 12 };

struct curve {
    double *loss, *norm;
    int count;
};

static struct curve curve_of(const char *dir)
{
    struct curve curve;
    curve.count = job_threads_column(dir, "loss", &curve.loss);
    job_threads_column(dir, "grad_norm", &curve.norm);
    return curve;
}

static void curve_free(struct curve *curve)
{
    free(curve->loss);
    free(curve->norm);
}

static bool same_bits(const struct curve *a, const struct curve *b)
{
    return a->count > 0 && a->count == b->count &&
           memcmp(a->loss, b->loss, (size_t)a->count * sizeof(double)) == 0 &&
           memcmp(a->norm, b->norm, (size_t)a->count * sizeof(double)) == 0;
}

static double worst(const struct curve *a, const struct curve *b)
{
    double most = a->count > 0 && a->count == b->count ? 0 : INFINITY;
    for (int i = 0; i < a->count && i < b->count; i++) {
        double d = fabs(a->loss[i] - b->loss[i]) / fabs(a->loss[i]);
        if (!(d <= most))
            most = d;
    }
    return most;
}

/* Run with up to a few sets; a dir that exists is resumed. */
static bool run(const char *dir, int world, const char *const *more)
{
    const char *sets[SETS + 4] = {"train.max_steps=12", NULL};
    int count = 1;
    for (; more && *more; more++)
        sets[count++] = *more;
    sets[count] = NULL;
    return job_threads_run(JOB, sets, world, dir) == ZD_OK;
}

static void stages_agree(const char *dtype)
{
    char stage_set[32], dtype_set[32];
    snprintf(dtype_set, sizeof dtype_set, "train.dtype=%s", dtype);
    for (int world = 1; world <= 4; world++) {
        const char *first = NULL;
        struct curve base = {0};
        for (int stage = 0; stage <= 3; stage++) {
            const char *dir = job_threads_dir();
            const char *sets[] = {stage_set, dtype_set, NULL};
            snprintf(stage_set, sizeof stage_set, "zero.stage=%d", stage);
            bool ran = run(dir, world, sets);
            struct curve curve = curve_of(dir);
            if (!first) {
                first = dir;
                base = curve;
                tap_ok(ran, "%s world %d stage 0 runs", dtype, world);
                continue;
            }
            tap_ok(ran && same_bits(&base, &curve) && same_model(first, dir),
                   "%s world %d: stage %d has the bits of stage 0", dtype,
                   world, stage);
            curve_free(&curve);
        }
        curve_free(&base);
    }
}

/* Sets that make two runs of several short tests comparable. */
static void options_change_nothing(void)
{
    static const struct {
        const char *name, *sets[4];
    } cases[] = {
            {"overlap_comm = false", {"zero.overlap_comm=false"}},
            {"prefetch of many units", {"zero.prefetch_bucket_size=5e8"}},
            {"one bucket", {"zero.reduce_bucket_size=5e8"}},
            {"small buckets and tiles",
             {"zero.reduce_bucket_size=1000", "zero.allgather_bucket_size=1000",
              "zero.sub_group_size=1000"}},
            {"persistent tensors", {"zero.param_persistence_threshold=3000"}},
            {"units kept",
             {"zero.max_reuse_distance=1e9", "zero.max_live_parameters=1e9"}},
            {"round robin", {"zero.round_robin_gradients=true"}},
            {"checkpointing none", {"train.gradient_checkpointing=none"}},
            {"checkpointing selective",
             {"train.gradient_checkpointing=selective"}},
            {"checkpointing full", {"train.gradient_checkpointing=full"}},
            {"checkpointing every:2", {"train.gradient_checkpointing=every:2"}},
            {"checkpointing sqrt", {"train.gradient_checkpointing=sqrt"}},
    };
    const char *plain = job_threads_dir();
    const char *base_sets[] = {"zero.stage=3", NULL};
    bool ran = run(plain, 3, base_sets);
    struct curve base = curve_of(plain);
    tap_ok(ran, "stage 3 at world 3 runs");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *sets[SETS] = {"zero.stage=3"};
        const char *dir = job_threads_dir();
        for (int k = 0; k < 4 && cases[i].sets[k]; k++)
            sets[k + 1] = cases[i].sets[k];
        ran = run(dir, 3, sets);
        struct curve curve = curve_of(dir);
        tap_ok(ran && same_bits(&base, &curve) && same_model(plain, dir),
               "%s gives the same bits", cases[i].name);
        curve_free(&curve);
    }
    curve_free(&base);
}

static void accumulation_agrees(void)
{
    static const char *const splits[][2] = {
            {"train.per_device_train_batch_size=64", "1 x 64"},
            {"train.per_device_train_batch_size=8", "8 x 8"},
            {"train.per_device_train_batch_size=1", "64 x 1"},
    };
    for (int stage = 1; stage <= 3; stage++) {
        struct curve base = {0};
        char stage_set[32];
        snprintf(stage_set, sizeof stage_set, "zero.stage=%d", stage);
        for (int i = 0; i < 3; i++) {
            const char *dir = job_threads_dir();
            const char *sets[] = {
                    stage_set, splits[i][0], "train.global_batch_size=64",
                    NULL};
            bool ran = run(dir, 1, sets);
            struct curve curve = curve_of(dir);
            if (i == 0)
                base = curve;
            else
                tap_ok(ran && worst(&base, &curve) <= 1e-5,
                       "stage %d: %s samples as in one batch (%.2g)", stage,
                       splits[i][1], worst(&base, &curve));
            if (i)
                curve_free(&curve);
        }
        curve_free(&base);
    }
}

static void every_cut_resumes(const char *dtype)
{
    char dtype_set[32];
    snprintf(dtype_set, sizeof dtype_set, "train.dtype=%s", dtype);
    const char *whole = job_threads_dir();
    const char *base_sets[] = {"zero.stage=2", dtype_set, NULL};
    bool ran = run(whole, 2, base_sets);
    struct curve base = curve_of(whole);
    tap_ok(ran, "%s: the unbroken run", dtype);
    for (int cut = 1; cut < STEPS; cut++) {
        char stop[32];
        const char *dir = job_threads_dir();
        const char *sets[] = {"zero.stage=2", dtype_set, stop, NULL};
        snprintf(stop, sizeof stop, "run.stop_after=%d", cut);
        ran = run(dir, 2, sets) && run(dir, 2, base_sets);
        struct curve curve = curve_of(dir);
        tap_ok(ran && same_bits(&base, &curve) && same_model(whole, dir),
               "%s: cut after step %d, the rest has the same bits", dtype, cut);
        curve_free(&curve);
    }
    curve_free(&base);
}

/* Load at b ranks into another folder and save at once: nothing is computed. */
static bool moves_unchanged(const char *from, int a, int b)
{
    char resume[PATH_MAX], stage[32];
    const char *dir = job_threads_dir();
    const char *sets[] = {stage, resume, "run.stop_after=6", NULL};
    snprintf(stage, sizeof stage, "zero.stage=%d", b - 1);
    snprintf(
            resume, sizeof resume, "run.resume=%s/out/checkpoint-000006", from);
    if (!run(dir, b, sets))
        return false;
    return same_saved_state(from, a, dir, b, 6);
}

/* Save at a ranks, load at b: the state is the same and the losses go on. */
static void worlds_mix(void)
{
    const char *whole = job_threads_dir();
    const char *none[] = {NULL};
    bool ran = run(whole, 1, none);
    struct curve base = curve_of(whole);
    tap_ok(ran, "the unbroken run on one rank");
    for (int a = 1; a <= 4; a++)
        for (int b = 1; b <= 4; b++) {
            char stage_a[32], stage_b[32];
            const char *dir = job_threads_dir();
            const char *save[] = {stage_a, "run.stop_after=6", NULL};
            const char *load[] = {stage_b, NULL};
            snprintf(stage_a, sizeof stage_a, "zero.stage=%d", a - 1);
            snprintf(stage_b, sizeof stage_b, "zero.stage=%d", b - 1);
            ran = run(dir, a, save);
            tap_ok(ran && moves_unchanged(dir, a, b),
                   "saved at %d ranks, loaded at %d: the same bits", a, b);
            ran = run(dir, b, load);
            struct curve curve = curve_of(dir);
            tap_ok(ran && worst(&base, &curve) <= 1e-5,
                   "saved at %d ranks (stage %d), resumed at %d (stage %d): "
                   "%.2g",
                   a, a - 1, b, b - 1, worst(&base, &curve));
            curve_free(&curve);
        }
    curve_free(&base);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "stages") == 0) {
        stages_agree("fp32");
        stages_agree("bf16");
    } else if (strcmp(part, "options") == 0) {
        options_change_nothing();
        accumulation_agrees();
    } else if (strcmp(part, "resume") == 0) {
        every_cut_resumes("fp32");
        every_cut_resumes("bf16");
        worlds_mix();
    } else {
        return 64;
    }
    return tap_done();
}
