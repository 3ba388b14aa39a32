/* test_parity.c - 20 AdamW steps of a fixture against PyTorch, at every stage
 * and at worlds 1 to 4: losses, gradient norms, final weights; losses in bf16,
 * and in fp16 against those of fp32.
 *
 *   test_parity FIXTURE        the folder below tests/fixtures */
#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct expected {
    json_t *json;
    const json_t *steps, *bf16, *tolerance, *excepted;
};

static double tolerance(const struct expected *expected, const char *name)
{
    return json_real_value(json_object_get(expected->tolerance, name));
}

/* The largest relative difference of a column; infinite when rows are missing.
 */
static double worst_of(
        const struct expected *expected, const char *dir, const char *key,
        bool bf16)
{
    double *values, worst = 0;
    int count = job_threads_column(dir, key, &values);
    size_t steps = json_array_size(expected->steps);
    if (count != (int)steps)
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        const json_t *want =
                bf16 ? json_array_get(
                               json_object_get(expected->bf16, key), (size_t)i)
                     : json_object_get(
                               json_array_get(expected->steps, (size_t)i), key);
        double w = json_number_value(want);
        double difference = fabs(values[i] - w) / fabs(w);
        if (!(difference <= worst))
            worst = isnan(difference) ? INFINITY : difference;
    }
    free(values);
    return worst;
}

static bool is_excepted(
        const struct expected *expected, const char *name, uint64_t element)
{
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(expected->excepted, name), i, run)
    {
        uint64_t begin = (uint64_t)json_integer_value(json_array_get(run, 0));
        uint64_t end = (uint64_t)json_integer_value(json_array_get(run, 1));
        if (element >= begin && element < end)
            return true;
    }
    return false;
}

static int compare_tensor(
        const struct expected *expected, const struct st_file *want,
        const struct st_file *got, int t)
{
    const struct st_tensor *a = &want->tensors[t];
    const struct st_tensor *b = st_find(got, a->name);
    float *x = malloc(a->count * sizeof *x), *y = malloc(a->count * sizeof *y);
    int wrong = 0;
    double absolute = tolerance(expected, "weight_absolute");
    double relative = tolerance(expected, "weight_relative");

    if (!b || b->count != a->count ||
        st_read_float(want, a, 0, a->count, x) != ZD_OK ||
        st_read_float(got, b, 0, a->count, y) != ZD_OK) {
        printf("# %s cannot be compared\n", a->name);
        wrong = 1;
    }
    for (uint64_t i = 0; i < a->count && b && !wrong; i++)
        if (!(fabs((double)x[i] - y[i]) <= absolute + relative * fabs(x[i])) &&
            !is_excepted(expected, a->name, i)) {
            printf("# %s[%llu] is %.9g, not %.9g\n", a->name,
                   (unsigned long long)i, y[i], x[i]);
            wrong++;
        }
    free(x);
    free(y);
    return wrong;
}

static bool weights_agree(
        const struct expected *expected, const char *fixture, const char *dir)
{
    char want_path[PATH_MAX], got_path[PATH_MAX];
    struct st_file *want, *got;
    int wrong = 0;
    snprintf(
            want_path, sizeof want_path, "tests/fixtures/%s/final.safetensors",
            fixture);
    snprintf(got_path, sizeof got_path, "%s/out/hf/model.safetensors", dir);
    if (st_open(want_path, &want) != ZD_OK || st_open(got_path, &got) != ZD_OK)
        return false;
    for (int t = 0; t < want->tensor_count && wrong < 10; t++)
        wrong += compare_tensor(expected, want, got, t);
    bool same = want->tensor_count == got->tensor_count;
    st_close(want);
    st_close(got);
    return wrong == 0 && same;
}

static void check_fp32(
        const struct expected *expected, const char *fixture, int world,
        int stage)
{
    char job[PATH_MAX], set[32];
    const char *dir = job_threads_dir();
    const char *sets[] = {set, NULL};
    snprintf(job, sizeof job, "tests/fixtures/%s/job.toml", fixture);
    snprintf(set, sizeof set, "zero.stage=%d", stage);
    if (job_threads_run(job, sets, world, dir) != ZD_OK) {
        tap_ok(false, "%s fp32 world %d stage %d runs", fixture, world, stage);
        return;
    }
    double loss = worst_of(expected, dir, "loss", false);
    double norm = worst_of(expected, dir, "grad_norm", false);
    double rate = worst_of(expected, dir, "learning_rate", false);
    double tokens = worst_of(expected, dir, "tokens", false);
    tap_ok(loss <= tolerance(expected, "loss") &&
                   norm <= tolerance(expected, "grad_norm") && rate < 1e-12 &&
                   tokens == 0,
           "%s fp32 world %d stage %d: loss %.2g, norm %.2g, rate %.2g, "
           "tokens %g",
           fixture, world, stage, loss, norm, rate, tokens);
    tap_ok(weights_agree(expected, fixture, dir),
           "%s fp32 world %d stage %d: final weights", fixture, world, stage);
    fs_remove_tree(dir);
}

static void check_bf16(
        const struct expected *expected, const char *fixture, int world,
        int stage)
{
    char job[PATH_MAX], set[32];
    const char *dir = job_threads_dir();
    const char *sets[] = {
            set, "train.dtype=bf16", "checkpoint.export=none",
            "checkpoint.save_strategy=no", NULL};
    snprintf(job, sizeof job, "tests/fixtures/%s/job.toml", fixture);
    snprintf(set, sizeof set, "zero.stage=%d", stage);
    bool ran = job_threads_run(job, sets, world, dir) == ZD_OK;
    double loss = ran ? worst_of(expected, dir, "loss", true) : INFINITY;
    tap_ok(loss <= tolerance(expected, "bf16_loss"),
           "%s bf16 world %d stage %d: loss %.2g", fixture, world, stage, loss);
    fs_remove_tree(dir);
}

/* fp16 with its loss scale loses so little that fp32 is its reference: within
 * one rounding, 2^-11. */
static void check_fp16(
        const struct expected *expected, const char *fixture, int stage)
{
    char job[PATH_MAX], set[32];
    const char *dir = job_threads_dir();
    const char *sets[] = {
            set, "train.dtype=fp16", "checkpoint.export=none",
            "checkpoint.save_strategy=no", NULL};
    snprintf(job, sizeof job, "tests/fixtures/%s/job.toml", fixture);
    snprintf(set, sizeof set, "zero.stage=%d", stage);
    bool ran = job_threads_run(job, sets, 2, dir) == ZD_OK;
    double loss = ran ? worst_of(expected, dir, "loss", false) : INFINITY;
    double norm = ran ? worst_of(expected, dir, "grad_norm", false) : INFINITY;
    tap_ok(loss <= 0x1p-11 && norm <= 0.01,
           "%s fp16 world 2 stage %d: loss %.2g, norm %.2g", fixture, stage,
           loss, norm);
    fs_remove_tree(dir);
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    struct expected expected;
    if (argc != 2)
        return 64;
    snprintf(path, sizeof path, "tests/fixtures/%s/expected.json", argv[1]);
    if (json_parse_file(path, 1 << 22, &expected.json) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
    expected.steps = json_object_get(expected.json, "steps");
    expected.bf16 = json_object_get(expected.json, "bf16");
    expected.tolerance = json_object_get(expected.json, "tolerance");
    expected.excepted = json_object_get(expected.json, "excepted");
    for (int world = 1; world <= 4; world++)
        for (int stage = 0; stage <= 3; stage++) {
            check_fp32(&expected, argv[1], world, stage);
            if (world <= 2 && (stage == 0 || stage == 3))
                check_bf16(&expected, argv[1], world, stage);
        }
    check_fp16(&expected, argv[1], 3);
    json_decref(expected.json);
    return tap_done();
}
