/* test_fp16.c - whole fp16 trainings with ranks as threads: overflow is seen by
 * all ranks and costs only its step, stages agree to the bit, a resumed run
 * follows the same scales, and losses are near those of fp32. */
#include "base/file/fs.h"
#include "base/file/json.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { STEPS = 14, SETS_MAX = 12 };

/* At 2^22 gradients of this fixture are infinite: steps are skipped at the
 * start, and again where the scale has grown after three good steps. */
static const char *const overflowing[] = {
        "train.dtype=fp16", "train.fp16.initial_scale_power=22",
        "train.fp16.loss_scale_window=3", NULL};
static const char *const calm[] = {"train.dtype=fp16", NULL};
static const char *const fp32[] = {"train.dtype=fp32", NULL};

struct curve {
    double *loss, *norm, *scale;
    int count, scales, skipped;
};

static struct curve curve_of(const char *dir)
{
    double *skipped;
    struct curve curve;
    curve.count = job_threads_column(dir, "loss", &curve.loss);
    job_threads_column(dir, "grad_norm", &curve.norm);
    curve.scales = job_threads_column(dir, "loss_scale", &curve.scale);
    curve.skipped = job_threads_column(dir, "skipped", &skipped);
    free(skipped);
    return curve;
}

static void curve_free(struct curve *curve)
{
    free(curve->loss);
    free(curve->norm);
    free(curve->scale);
}

static bool same_bits(const struct curve *a, const struct curve *b)
{
    size_t bytes = (size_t)a->count * sizeof(double);
    bool same = a->count == STEPS && b->count == STEPS && a->scales == STEPS &&
                b->scales == STEPS && memcmp(a->loss, b->loss, bytes) == 0 &&
                memcmp(a->scale, b->scale, bytes) == 0;
    for (int i = 0; i < a->count && same; i++) /* NaN where it overflowed */
        same = a->norm[i] == b->norm[i] ||
               (isnan(a->norm[i]) && isnan(b->norm[i]));
    return same;
}

static double worst(const struct curve *a, const struct curve *b)
{
    double most = a->count == STEPS && b->count == STEPS ? 0 : INFINITY;
    for (int i = 0; i < STEPS && most < INFINITY; i++)
        most = fmax(most, fabs(a->loss[i] / b->loss[i] - 1));
    return most;
}

/* `base`, and up to three more sets, each of which may be NULL. */
static enum zd_status run(
        const char *dir, int world, const char *const *base, const char *a,
        const char *b, const char *c)
{
    const char *sets[SETS_MAX] = {"train.max_steps=14", "run.resume=auto"};
    const char *more[] = {a, b, c};
    int count = 2;
    for (; *base; base++)
        sets[count++] = *base;
    for (int i = 0; i < 3; i++)
        if (more[i])
            sets[count++] = more[i];
    return job_threads_run(JOB, sets, world, dir);
}

static void stages_agree(void)
{
    for (int world = 1; world <= 4; world++) {
        const char *first = NULL;
        struct curve base = {0};
        for (int stage = 0; stage <= 3; stage++) {
            char set[32];
            const char *dir = job_threads_dir();
            snprintf(set, sizeof set, "zero.stage=%d", stage);
            bool ran = run(dir, world, overflowing, set, NULL, NULL) == ZD_OK;
            struct curve curve = curve_of(dir);
            if (!first) {
                first = dir;
                base = curve;
                tap_ok(ran && curve.skipped >= 3 && curve.skipped < STEPS / 2,
                       "world %d stage 0: %d steps overflow", world,
                       curve.skipped);
                continue;
            }
            tap_ok(ran && same_bits(&base, &curve) && same_model(first, dir),
                   "world %d: stage %d has the bits of stage 0", world, stage);
            curve_free(&curve);
        }
        curve_free(&base);
    }
}

static int64_t applied_steps(const char *dir)
{
    char path[PATH_MAX];
    json_t *manifest = NULL;
    snprintf(
            path, sizeof path, "%s/out/checkpoint-%06d/manifest.json", dir,
            STEPS);
    if (json_parse_file(path, 1 << 22, &manifest) != ZD_OK)
        return -1;
    int64_t applied = json_integer_value(json_object_get(
            json_object_get(manifest, "progress"), "applied_steps"));
    json_decref(manifest);
    return applied;
}

/* The scale of every step follows from which steps overflowed. */
static bool scales_follow(const struct curve *curve)
{
    struct fp16_options options = train_job_default().train.fp16;
    options.initial_scale_power = 22;
    options.loss_scale_window = 3;
    struct loss_scale state = loss_scale_start(&options);
    for (int i = 0; i < curve->scales; i++) {
        if (curve->scale[i] != state.scale)
            return false;
        loss_scale_update(&state, &options, isnan(curve->norm[i]));
    }
    return curve->scales == STEPS;
}

static void overflow_costs_its_step(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    bool ran = run(dir, 3, overflowing, "zero.stage=2", NULL, NULL) == ZD_OK;
    ran = ran && run(plain, 3, fp32, "zero.stage=2", NULL, NULL) == ZD_OK;
    struct curve curve = curve_of(dir), wide = curve_of(plain);
    tap_ok(ran && isnan(curve.norm[0]) && scales_follow(&curve),
           "the scale of each step follows from the overflows before it");
    tap_ok(ran && applied_steps(dir) == STEPS - curve.skipped,
           "the optimizer counts %d of %d steps", STEPS - curve.skipped, STEPS);
    tap_ok(ran && curve.loss[STEPS - 1] < curve.loss[0] - 0.3 &&
                   fabs(curve.loss[STEPS - 1] / wide.loss[STEPS - 1] - 1) < 0.1,
           "after overflows it still learns: %.4f (fp32 without: %.4f)",
           curve.loss[STEPS - 1], wide.loss[STEPS - 1]);
    curve_free(&curve);
    curve_free(&wide);
}

/* Without overflow the losses are near fp32's, whatever the scale, world and
 * micro-batches: the bound is 2^-11, one rounding of fp16. */
static void is_near_fp32(void)
{
    static const struct {
        int world;
        const char *name, *a, *b;
    } cases[] = {
            {1, "one rank", NULL, NULL},
            {3, "stage 3, three ranks", "zero.stage=3", NULL},
            {2, "stage 1, micro-batches of 3", "zero.stage=1",
             "train.per_device_train_batch_size=3"},
            {2, "stage 2, micro-batches of 3", "zero.stage=2",
             "train.per_device_train_batch_size=3"},
            {1, "a fixed scale of 1000", "train.fp16.loss_scale=1000", NULL},
    };
    const char *plain = job_threads_dir();
    run(plain, 1, fp32, NULL, NULL, NULL);
    struct curve wide = curve_of(plain);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *dir = job_threads_dir();
        bool ran = run(dir, cases[i].world, calm, cases[i].a, cases[i].b,
                       NULL) == ZD_OK;
        struct curve curve = curve_of(dir);
        tap_ok(ran && curve.skipped == 0 && worst(&curve, &wide) < 0x1p-11,
               "%s: losses within %.2g of fp32", cases[i].name,
               worst(&curve, &wide));
        curve_free(&curve);
    }
    curve_free(&wide);
}

/* AdamW forgives a wrong size of gradients unless epsilon is large: then the
 * update is only right if the scale is taken out of it. */
static void update_is_unscaled(void)
{
    const char *epsilon = "optim.adam_epsilon=0.01";
    const char *rate = "optim.learning_rate=0.02";
    const char *plain = job_threads_dir(), *dir = job_threads_dir();
    bool ran = run(plain, 1, fp32, epsilon, rate, NULL) == ZD_OK &&
               run(dir, 1, calm, epsilon, rate, NULL) == ZD_OK;
    struct curve wide = curve_of(plain), curve = curve_of(dir);
    tap_ok(ran && wide.loss[STEPS - 1] < wide.loss[0] - 0.2 &&
                   worst(&curve, &wide) < 0x1p-11,
           "the update sees unscaled gradients: from %.3f to %.3f, within %.2g "
           "of fp32",
           wide.loss[0], wide.loss[STEPS - 1], worst(&curve, &wide));
    curve_free(&curve);
    curve_free(&wide);
}

/* The host's update sees the gradients, scale and overflows of the device's. */
static void offload_agrees(void)
{
    static const struct {
        const char *name, *optimizer, *a, *b;
    } cases[] = {
            {"adamw", "optim.name=adamw", NULL, NULL},
            {"adamw, undo", "optim.name=adamw", "offload.clipping=undo", NULL},
            {"adamw_8bit, micro-batches of 3", "optim.name=adamw_8bit",
             "train.per_device_train_batch_size=3", NULL},
            {"adam_mini", "optim.name=adam_mini", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *plain = job_threads_dir(), *dir = job_threads_dir();
        const char *micro =
                cases[i].a && strstr(cases[i].a, "train.") ? cases[i].a : NULL;
        const char *base[SETS_MAX] = {overflowing[0], overflowing[1],
                                      overflowing[2], "offload.optimizer=cpu",
                                      "zero.stage=2", NULL};
        bool ran = run(plain, 2, overflowing, "zero.stage=2",
                       cases[i].optimizer, micro) == ZD_OK;
        ran = ran && run(dir, 2, base, cases[i].optimizer, cases[i].a,
                         cases[i].b) == ZD_OK;
        struct curve a = curve_of(plain), b = curve_of(dir);
        tap_ok(ran && a.skipped > 0 && same_bits(&a, &b) &&
                       same_model(plain, dir),
               "%s: offloaded, the same bits", cases[i].name);
        curve_free(&a);
        curve_free(&b);
    }
}

static void cuts_resume(void)
{
    const char *whole = job_threads_dir();
    bool ran = run(whole, 2, overflowing, "zero.stage=2", NULL, NULL) == ZD_OK;
    struct curve base = curve_of(whole);
    tap_ok(ran, "the unbroken run");
    for (int cut = 1; cut < STEPS; cut += 2) {
        char stop[32];
        const char *dir = job_threads_dir();
        snprintf(stop, sizeof stop, "run.stop_after=%d", cut);
        ran = run(dir, 2, overflowing, "zero.stage=2", stop, NULL) == ZD_OK &&
              run(dir, 2, overflowing, "zero.stage=2", NULL, NULL) == ZD_OK;
        struct curve curve = curve_of(dir);
        tap_ok(ran && same_bits(&base, &curve) && same_model(whole, dir),
               "cut after step %d (scale %g), the rest has the same bits", cut,
               cut < base.scales ? base.scale[cut] : 0);
        curve_free(&curve);
    }
    curve_free(&base);
}

/* A bf16 run goes on in fp16, and an fp16 run in bf16. */
static void types_mix(void)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, 2, fp32, "train.dtype=bf16", "run.stop_after=5",
                   NULL) == ZD_OK &&
               run(dir, 2, calm, "run.stop_after=10", NULL, NULL) == ZD_OK &&
               run(dir, 2, fp32, "train.dtype=bf16", NULL, NULL) == ZD_OK;
    struct curve curve = curve_of(dir);
    tap_ok(ran && curve.count == STEPS && curve.scales == 5 &&
                   curve.scale[0] == 65536,
           "a run changes its type at a checkpoint");
    curve_free(&curve);
}

static void ends_with(
        const char *name, const char *const *base, const char *a, const char *b,
        const char *code, int steps)
{
    const char *dir = job_threads_dir();
    enum zd_status status = run(dir, 2, base, "zero.stage=1", a, b);
    struct zd_error error = *zd_error_get();
    zd_error_clear();
    struct curve curve = curve_of(dir);
    tap_ok(status == ZD_ERR_NUMERICS && strcmp(error.code, code) == 0 &&
                   curve.count == steps && curve.skipped == steps,
           "%s: %s after %d steps", name, error.code, curve.count);
    curve_free(&curve);
}

int main(void)
{
    stages_agree();
    overflow_costs_its_step();
    is_near_fp32();
    update_is_unscaled();
    offload_agrees();
    cuts_resume();
    types_mix();
    ends_with(
            "overflows at the smallest scale", overflowing,
            "train.fp16.min_loss_scale=4194304", NULL, "E0621", 2);
    ends_with(
            "overflows at a fixed scale", calm,
            "train.fp16.loss_scale=16777216", NULL, "E0620", 5);
    return tap_done();
}
