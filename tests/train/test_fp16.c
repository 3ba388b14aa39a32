/* test_fp16.c - whole fp16 trainings with ranks as threads: overflow costs only
 * its step, and losses are near those of fp32. That stages, offload and resumed
 * runs agree to the bit is in same_runs.txt. */
#include "tests/support/job_threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 14 };
#define run(dir, world, ...)                                                   \
    job_runs(                                                                  \
            "tests/fixtures/llama_odd/job.toml", dir, world,                   \
            "train.max_steps=14 " __VA_ARGS__)
/* At 2^22 gradients of this fixture are infinite: steps are skipped at the
 * start, and again where the scale has grown after three good steps. */
#define OVERFLOWING                                                            \
    "train.dtype=fp16 train.fp16.initial_scale_power=22 "                      \
    "train.fp16.loss_scale_window=3 "
#define CALM "train.dtype=fp16 "
#define FP32 "train.dtype=fp32 "

static int64_t applied_steps(const char *dir)
{
    json_auto_t *manifest = job_manifest(dir, STEPS);
    int64_t applied = json_integer_at(
            json_object_get(manifest, "progress"), "applied_steps");
    return applied;
}

/* The scale of every step follows from which steps overflowed. */
static bool scales_follow(const char *dir)
{
    struct fp16_options options = train_job_default().train.fp16;
    options.initial_scale_power = 22;
    options.loss_scale_window = 3;
    struct loss_scale state = loss_scale_start(&options);
    double *scales, *norms;
    int count = job_threads_column(dir, "loss_scale", &scales);
    job_threads_column(dir, "grad_norm", &norms);
    bool follow = count == STEPS && isnan(norms[0]);
    for (int i = 0; i < count; i++) {
        follow = follow && scales[i] == state.scale;
        loss_scale_update(&state, &options, isnan(norms[i]));
    }
    free(scales);
    free(norms);
    return follow;
}

static void overflow_costs_its_step(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    bool ran = run(dir, 3, OVERFLOWING "zero.stage=2") &&
               run(plain, 3, FP32 "zero.stage=2");
    int skipped = rows_of(dir, "skipped");
    double first = first_of_column(dir, "loss");
    double last = last_of_column(dir, "loss");
    double wide = last_of_column(plain, "loss");
    tap_ok(ran && scales_follow(dir),
           "the scale of each step follows from the overflows before it");
    tap_ok(ran && applied_steps(dir) == STEPS - skipped,
           "the optimizer counts %d of %d steps", STEPS - skipped, STEPS);
    tap_ok(ran && last < first - 0.3 && fabs(last / wide - 1) < 0.1,
           "after overflows it still learns: %.4f (fp32 without: %.4f)", last,
           wide);
}

/* Without overflow the losses are near fp32's, whatever the scale, world and
 * micro-batches: the bound is 2^-11, one rounding of fp16. AdamW forgives a
 * wrong size of gradients unless epsilon is large: then the update is only
 * right if the scale is taken out of it. */
static void is_near_fp32(void)
{
    static const struct {
        int world;
        const char *name, *sets;
    } cases[] = {
            {1, "one rank", ""},
            {3, "stage 3, three ranks", "zero.stage=3"},
            {2, "stage 1, micro-batches of 3",
             "zero.stage=1 train.per_device_train_batch_size=3"},
            {2, "stage 2, micro-batches of 3",
             "zero.stage=2 train.per_device_train_batch_size=3"},
            {1, "a fixed scale of 1000", "train.fp16.loss_scale=1000"},
            {1, "a large epsilon",
             "optim.adam_epsilon=0.01 optim.learning_rate=0.02"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *plain = job_threads_dir(), *dir = job_threads_dir();
        bool is_last = strstr(cases[i].sets, "epsilon") != NULL;
        bool ran = run(plain, 1, FP32 "%s", is_last ? cases[i].sets : "") &&
                   run(dir, cases[i].world, CALM "%s", cases[i].sets);
        double worst = column_difference(plain, dir, "loss");
        double learned =
                first_of_column(plain, "loss") - last_of_column(plain, "loss");
        tap_ok(ran && rows_of(dir, "skipped") == 0 && worst < 0x1p-11 &&
                       learned > 0.2,
               "%s: losses within %.2g of fp32", cases[i].name, worst);
    }
}

/* A bf16 run goes on in fp16, and an fp16 run in bf16. */
static void types_mix(void)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, 2, "train.dtype=bf16 run.stop_after=5") &&
               run(dir, 2, CALM "run.stop_after=10") &&
               run(dir, 2, "train.dtype=bf16");
    tap_ok(ran && rows_of(dir, "loss") == STEPS &&
                   rows_of(dir, "loss_scale") == 5 &&
                   first_of_column(dir, "loss_scale") == 65536,
           "a run changes its type at a checkpoint");
}

static void ends_with(
        const char *name, const char *sets, const char *code, int steps)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, 2, "zero.stage=1 %s", sets);
    struct zd_error error = *zd_error_get();
    zd_error_clear();
    tap_ok(!ran && error.status == ZD_ERR_NUMERICS &&
                   strcmp(error.code, code) == 0 &&
                   rows_of(dir, "loss") == steps &&
                   rows_of(dir, "skipped") == steps,
           "%s: %s after %d steps", name, error.code, rows_of(dir, "loss"));
}

int main(void)
{
    overflow_costs_its_step();
    is_near_fp32();
    types_mix();
    ends_with(
            "overflows at the smallest scale",
            OVERFLOWING "train.fp16.min_loss_scale=4194304", "E0621", 2);
    ends_with(
            "overflows at a fixed scale", CALM "train.fp16.loss_scale=16777216",
            "E0620", 5);
    return tap_done();
}
