/* test_adapters.c - 20 AdamW steps of a fixture's adapter against PEFT and
 * PyTorch (tests/reference/make_adapters.py): losses, gradient norms, the
 * adapter that is written; the same bits at every stage; losses in bf16; losses
 * over a base in codes against PEFT over what they decode to (make_qlora.py).
 *
 *   test_adapters FIXTURE KIND
 *       the folders below tests/fixtures: KIND is lora, or dora, at fewer
 * worlds and stages */
#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct expected {
    json_t *json;
    const json_t *steps, *tolerance, *excepted;
    const char *fixture, *kind;
    char path[64], ratio[64];
};

static double tolerance(const struct expected *expected, const char *name)
{
    return json_real_value(json_object_get(expected->tolerance, name));
}

/* The largest relative difference of a column; infinite when rows are missing.
 */
static double worst_among(const json_t *steps, const char *dir, const char *key)
{
    double *values, worst = 0;
    int count = job_threads_column(dir, key, &values);
    if (count != (int)json_array_size(steps))
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        double want = json_number_value(
                json_object_get(json_array_get(steps, (size_t)i), key));
        double difference = fabs(values[i] - want) / fabs(want);
        if (!(difference <= worst))
            worst = isnan(difference) ? INFINITY : difference;
    }
    free(values);
    return worst;
}

static double worst_of(
        const struct expected *expected, const char *dir, const char *key)
{
    return worst_among(expected->steps, dir, key);
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

/* Within the tolerances times `loose`; 0: the same bits. */
static int compare_tensor(
        const struct expected *expected, const struct st_tensor *a,
        const struct st_file *want, const struct st_file *got, double loose)
{
    const struct st_tensor *b = st_find(got, a->name);
    float *x = malloc(a->count * sizeof *x), *y = malloc(a->count * sizeof *y);
    int wrong = 0;
    double absolute = loose * tolerance(expected, "weight_absolute");
    double relative = loose * tolerance(expected, "weight_relative");
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

/* Every tensor of `want_path` is in the other file, and where `whole` no
 * more. */
static bool files_agree(
        const struct expected *expected, const char *want_path,
        const char *got_path, double loose, bool whole)
{
    struct st_file *want, *got;
    int wrong = 0;
    if (st_open(want_path, &want) != ZD_OK || st_open(got_path, &got) != ZD_OK)
        return false;
    for (int t = 0; t < want->tensor_count && wrong < 10; t++)
        wrong += compare_tensor(expected, &want->tensors[t], want, got, loose);
    bool same = !whole || want->tensor_count == got->tensor_count;
    st_close(want);
    st_close(got);
    return wrong == 0 && same;
}

static enum zd_status run(
        const struct expected *expected, int world, int stage,
        const char *const *more, const char *dir)
{
    char job[PATH_MAX], set[32];
    const char *sets[16] = {set, expected->path, expected->ratio};
    snprintf(job, sizeof job, "tests/fixtures/%s/job.toml", expected->fixture);
    snprintf(set, sizeof set, "zero.stage=%d", stage);
    for (int i = 0; more[i]; i++)
        sets[3 + i] = more[i];
    return job_threads_run(job, sets, world, dir);
}

static void check_fp32(
        const struct expected *expected, int world, int stage,
        const char *first)
{
    char want[PATH_MAX], got[PATH_MAX];
    const char *dir = job_threads_dir(), *none[] = {NULL};
    if (run(expected, world, stage, none, dir) != ZD_OK) {
        tap_ok(false, "%s world %d stage %d runs", expected->fixture, world,
               stage);
        return;
    }
    double loss = worst_of(expected, dir, "loss");
    double norm = worst_of(expected, dir, "grad_norm");
    tap_ok(loss <= tolerance(expected, "loss") &&
                   norm <= tolerance(expected, "grad_norm"),
           "%s world %d stage %d: loss %.2g, norm %.2g", expected->fixture,
           world, stage, loss, norm);
    snprintf(
            want, sizeof want, "tests/fixtures/%s/%s/final.safetensors",
            expected->fixture, expected->kind);
    snprintf(got, sizeof got, "%s/out/peft/adapter_model.safetensors", dir);
    tap_ok(files_agree(expected, want, got, 1, true),
           "%s world %d stage %d: the adapter", expected->fixture, world,
           stage);
    if (first && stage == 0)
        rename(got, first);
    else if (first)
        tap_ok(files_agree(expected, first, got, 0, true),
               "%s world %d stage %d: the bits of stage 0", expected->fixture,
               world, stage);
    fs_remove_tree(dir);
}

/* The model with the adapter in it, of as little training as there is. */
static void check_merged(const struct expected *expected)
{
    char want[PATH_MAX], got[PATH_MAX];
    const char *dir = job_threads_dir();
    const char *sets[] = {"checkpoint.export=hf", NULL};
    snprintf(
            want, sizeof want, "tests/fixtures/%s/%s/merged.safetensors",
            expected->fixture, expected->kind);
    snprintf(got, sizeof got, "%s/out/hf/model.safetensors", dir);
    bool ran = run(expected, 1, 0, sets, dir) == ZD_OK;
    tap_ok(ran && files_agree(expected, want, got, 1, false),
           "%s: the merged model", expected->fixture);
    fs_remove_tree(dir);
}

static void check_bf16(const struct expected *expected, int world, int stage)
{
    const char *dir = job_threads_dir();
    const char *sets[] = {
            "train.dtype=bf16", "checkpoint.export=none",
            "checkpoint.save_strategy=no", NULL};
    bool ran = run(expected, world, stage, sets, dir) == ZD_OK;
    double loss = ran ? worst_of(expected, dir, "loss") : INFINITY;
    tap_ok(loss <= 0.01, "%s bf16 world %d stage %d: loss %.2g",
           expected->fixture, world, stage, loss);
    fs_remove_tree(dir);
}

static void check_quantized(const struct expected *expected)
{
    static const char *const formats[] = {"nf4", "fp4", "int8", "fp8"};
    char path[PATH_MAX];
    json_t *all = NULL;
    snprintf(
            path, sizeof path, "tests/fixtures/%s/%s/quantized.json",
            expected->fixture, expected->kind);
    bool is_read = json_parse_file(path, 1 << 22, &all) == ZD_OK;
    for (int i = 0; i < 4; i++) {
        char format[48];
        const char *dir = job_threads_dir();
        const char *sets[] = {
                format, "checkpoint.export=none", "checkpoint.save_strategy=no",
                NULL};
        const json_t *steps = json_object_get(all, formats[i]);
        snprintf(format, sizeof format, "lora.quantize_base=%s", formats[i]);
        bool ran = is_read && run(expected, 2, 3, sets, dir) == ZD_OK;
        double loss = ran ? worst_among(steps, dir, "loss") : INFINITY;
        double other = ran ? worst_of(expected, dir, "loss") : 0;
        tap_ok(loss <= 1e-5 && other > 3e-5,
               "%s over %s: loss %.2g, and %.2g from what it is over the base",
               expected->fixture, formats[i], loss, other);
        fs_remove_tree(dir);
    }
    json_decref(all);
}

int main(int argc, char **argv)
{
    char path[PATH_MAX], first[PATH_MAX];
    if (argc != 3)
        return 64;
    struct expected expected = {.fixture = argv[1], .kind = argv[2]};
    bool all = strcmp(expected.kind, "lora") == 0;
    snprintf(
            path, sizeof path, "tests/fixtures/%s/%s/expected.json",
            expected.fixture, expected.kind);
    if (json_parse_file(path, 1 << 22, &expected.json) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
    expected.steps = json_object_get(expected.json, "steps");
    expected.tolerance = json_object_get(expected.json, "tolerance");
    expected.excepted = json_object_get(expected.json, "excepted");
    snprintf(
            expected.path, sizeof expected.path,
            "lora.path=tests/fixtures/%s/%s", expected.fixture, expected.kind);
    snprintf(
            expected.ratio, sizeof expected.ratio, "lora.loraplus_lr_ratio=%g",
            json_number_value(
                    json_object_get(expected.json, "loraplus_lr_ratio")));
    const char *dir = job_threads_dir();
    snprintf(first, sizeof first, "%s.first", dir);
    check_fp32(&expected, 1, 0, NULL);
    for (int stage = 0; stage <= 3; stage += all ? 1 : 3)
        check_fp32(&expected, 2, stage, first);
    if (all) {
        check_fp32(&expected, 3, 3, NULL);
        check_fp32(&expected, 4, 1, NULL);
    }
    check_merged(&expected);
    check_bf16(&expected, 2, 3);
    check_quantized(&expected);
    remove(first);
    json_decref(expected.json);
    return tap_done();
}
