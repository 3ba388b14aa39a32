/* test_parity.c - 20 AdamW steps of a fixture, or of its adapter, against
 * PyTorch and PEFT (tests/reference/make_models.py, make_adapters.py).
 *
 *   test_parity FIXTURE          the folder below tests/fixtures: every stage
 *                                at worlds 1 to 4, of which the last
 *                                replicates shards: losses, gradient norms,
 *                                final weights; losses in bf16, and in fp16
 *                                against those of fp32
 *   test_parity FIXTURE diagonal the same at fewer of both
 *   test_parity FIXTURE axes     two ranks of tensor and of context parallelism
 *   test_parity FIXTURE KIND [few]  its folder KIND, lora, or dora and few at
 *                                fewer worlds and stages: losses, norms, the
 * adapter that is written, the merged model; the same bits at every stage;
 * losses in bf16; losses over a quantized base against PEFT over what that
 *                                decodes to (make_qlora.py) */
#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct expected {
    json_t *json;
    const json_t *steps;
    const char *fixture, *kind; /* kind NULL: the model itself */
    bool is_few;
    char job[96], dir[128]; /* the fixture's job; folder of what is expected */
    char sets[256];         /* of all its runs */
};

#define NO_FILES "checkpoint.export=none checkpoint.save_strategy=no"

static bool run(
        const struct expected *expected, const char *dir, int world, int stage,
        const char *more, const char *still_more)
{
    int replicas = world == 4 ? 2 : 1; /* of shards */
    return job_runs(
            expected->job, dir, world,
            "zero.stage=%d parallel.dp_replicate_size=%d %s %s %s", stage,
            replicas, expected->sets, more, still_more);
}

static double tolerance(const struct expected *expected, const char *name)
{
    return json_real_value(json_object_get(
            json_object_get(expected->json, "tolerance"), name));
}

/* `steps`: a list of rows, or a list for each column. */
static double want_of(const json_t *steps, int i, const char *key)
{
    return json_number_value(
            json_is_array(steps)
                    ? json_object_get(json_array_get(steps, (size_t)i), key)
                    : json_array_get(json_object_get(steps, key), (size_t)i));
}

/* The largest relative difference of a column; infinite when rows are missing.
 */
static double worst_of(
        const struct expected *expected, const json_t *steps, const char *dir,
        const char *key)
{
    double *values, worst = 0;
    int count = job_threads_column(dir, key, &values);
    if (count != (int)json_array_size(expected->steps))
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        double want = want_of(steps, i, key);
        double difference = fabs(values[i] - want) / fabs(want);
        if (!(difference <= worst))
            worst = isnan(difference) ? INFINITY : difference;
    }
    free(values);
    return worst;
}

static bool is_excepted(
        const struct expected *expected, const char *name, uint64_t element)
{
    const json_t *excepted = json_object_get(expected->json, "excepted");
    JSON_EACH(part, json_object_get(excepted, name)) {
        uint64_t begin = (uint64_t)json_integer_value(json_array_get(part, 0));
        uint64_t end = (uint64_t)json_integer_value(json_array_get(part, 1));
        if (element >= begin && element < end)
            return true;
    }
    return false;
}

/* Within the tolerances times `loose`; 0: the same bits. */
static bool tensor_agrees(
        const struct expected *expected, const struct st_tensor *a,
        const struct st_file *want, const struct st_file *got, double loose)
{
    const struct st_tensor *b = st_find(got, a->name);
    float *x = malloc(a->count * sizeof *x), *y = malloc(a->count * sizeof *y);
    double absolute = loose * tolerance(expected, "weight_absolute");
    double relative = loose * tolerance(expected, "weight_relative");
    bool ok = b && b->count == a->count &&
              st_read_float(want, a, 0, a->count, x) == ZD_OK &&
              st_read_float(got, b, 0, a->count, y) == ZD_OK;
    if (!ok)
        printf("# %s cannot be compared\n", a->name);
    for (uint64_t i = 0; i < a->count && ok; i++)
        if (!(fabs((double)x[i] - y[i]) <= absolute + relative * fabs(x[i])) &&
            !is_excepted(expected, a->name, i)) {
            printf("# %s[%llu] is %.9g, not %.9g\n", a->name,
                   (unsigned long long)i, y[i], x[i]);
            ok = false;
        }
    free(x);
    free(y);
    return ok;
}

/* Every tensor of `want_path` is in the other file, and where `whole` no
 * more. */
static bool files_agree(
        const struct expected *expected, const char *want_path,
        const char *got_path, double loose, bool whole)
{
    struct st_file *want, *got;
    if (st_open(want_path, &want) != ZD_OK || st_open(got_path, &got) != ZD_OK)
        return false;
    bool ok = !whole || want->tensor_count == got->tensor_count;
    for (int t = 0; t < want->tensor_count; t++)
        ok &= tensor_agrees(expected, &want->tensors[t], want, got, loose);
    st_close(want);
    st_close(got);
    return ok;
}

/* --- checks --------------------------------------------------------------- */

/* `first`: where the adapter of stage 0 is kept for the other stages; NULL. */
static void check_fp32(
        const struct expected *expected, int world, int stage,
        const char *first)
{
    char want[PATH_MAX], got[PATH_MAX];
    const char *dir = job_threads_dir();
    bool ran = run(expected, dir, world, stage, "", "");
    double loss = worst_of(expected, expected->steps, dir, "loss");
    double norm = worst_of(expected, expected->steps, dir, "grad_norm");
    double rate = worst_of(expected, expected->steps, dir, "learning_rate");
    double tokens = worst_of(expected, expected->steps, dir, "tokens");
    tap_ok(ran && loss <= tolerance(expected, "loss") &&
                   norm <= tolerance(expected, "grad_norm") &&
                   (expected->kind || (rate < 1e-12 && tokens == 0)),
           "%s fp32 %sworld %d stage %d: loss %.2g, norm %.2g, rate %.2g, "
           "tokens %g",
           expected->fixture, expected->kind ? "" : expected->sets, world,
           stage, loss, norm, rate, tokens);
    ZD_PRINT(want, "%s/final.safetensors", expected->dir);
    ZD_PRINT(
            got, "%s/out/%s", dir,
            expected->kind ? "peft/adapter_model.safetensors"
                           : "hf/model.safetensors");
    tap_ok(files_agree(expected, want, got, 1, true), "  the final weights");
    if (first && stage == 0)
        rename(got, first);
    else if (first)
        tap_ok(files_agree(expected, first, got, 0, true),
               "  with the bits of stage 0");
    fs_remove_tree(dir);
}

/* Losses alone, in another type or over another base; `not_those`: farther
 * than 3e-5 from what is expected without that. */
static void check_losses(
        const struct expected *expected, const char *sets, int world, int stage,
        const json_t *steps, double limit, bool not_those)
{
    const char *dir = job_threads_dir();
    bool ran = run(expected, dir, world, stage, NO_FILES, sets);
    double loss = worst_of(expected, steps, dir, "loss");
    double other = worst_of(expected, expected->steps, dir, "loss");
    tap_ok(ran && loss <= limit && (!not_those || other > 3e-5),
           "%s %s world %d stage %d: loss %.2g, and %.2g from fp32's",
           expected->fixture, sets, world, stage, loss, other);
    fs_remove_tree(dir);
}

/* The model with the adapter in it, of as little training as there is. */
static void check_merged(const struct expected *expected)
{
    char want[PATH_MAX], got[PATH_MAX];
    const char *dir = job_threads_dir();
    bool ran = run(expected, dir, 1, 0, "checkpoint.export=hf", "");
    ZD_PRINT(want, "%s/merged.safetensors", expected->dir);
    ZD_PRINT(got, "%s/out/hf/model.safetensors", dir);
    tap_ok(ran && files_agree(expected, want, got, 1, false),
           "%s: the merged model", expected->fixture);
    fs_remove_tree(dir);
}

static void check_quantized(const struct expected *expected)
{
    static const char *const formats[] = {"nf4", "fp4", "int8", "fp8"};
    char path[PATH_MAX], sets[64];
    json_auto_t *all = NULL;
    ZD_PRINT(path, "%s/quantized.json", expected->dir);
    if (!fs_exists(path)) /* make_qlora.py makes it of the first families */
        return;
    if (json_parse_file(path, 1 << 22, &all) != ZD_OK)
        all = NULL;
    for (int i = 0; i < 4; i++) {
        ZD_PRINT(sets, "lora.quantize_base=%s", formats[i]);
        check_losses(
                expected, sets, 2, 3, json_object_get(all, formats[i]), 1e-5,
                true);
    }
}

static void check_adapter(struct expected *expected)
{
    char first[PATH_MAX];
    bool all = strcmp(expected->kind, "lora") == 0 && !expected->is_few;
    ZD_PRINT(
            expected->sets, "lora.path=%s lora.loraplus_lr_ratio=%g ",
            expected->dir,
            json_number_value(
                    json_object_get(expected->json, "loraplus_lr_ratio")));
    ZD_PRINT(first, "%s.first", job_threads_dir());
    check_fp32(expected, 1, 0, NULL);
    for (int stage = 0; stage <= 3; stage += all ? 1 : 3)
        check_fp32(expected, 2, stage, first);
    if (all) {
        check_fp32(expected, 3, 3, NULL);
        check_fp32(expected, 4, 1, NULL);
    }
    check_merged(expected);
    check_losses(
            expected, "train.dtype=bf16", 2, 3, expected->steps, 0.01, false);
    check_quantized(expected);
    remove(first);
}

/* fp16 with its loss scale loses so little that fp32 is its reference: within
 * one rounding, 2^-11. */
static void check_fp16(const struct expected *expected)
{
    const char *dir = job_threads_dir();
    bool ran = run(expected, dir, 2, 3, NO_FILES, "train.dtype=fp16");
    double loss = worst_of(expected, expected->steps, dir, "loss");
    double norm = worst_of(expected, expected->steps, dir, "grad_norm");
    tap_ok(ran && loss <= 0x1p-11 && norm <= 0.01,
           "%s fp16 world 2 stage 3: loss %.2g, norm %.2g", expected->fixture,
           loss, norm);
}

/* The ranks share each sample's layers, or its tokens. */
static void check_axes(struct expected *expected)
{
    static const char *const axes[] = {"tp", "cp"};
    for (int i = 0; i < 2; i++) {
        ZD_PRINT(expected->sets, "parallel.%s_size=2 ", axes[i]);
        check_fp32(expected, 2, 3, NULL);
    }
    expected->sets[0] = '\0';
}

/* Each world and each stage once: of a family whose arithmetic alone is new. */
static void check_diagonal(const struct expected *expected)
{
    const json_t *bf16 = json_object_get(expected->json, "bf16");
    for (int stage = 0; stage <= 3; stage++)
        check_fp32(expected, stage + 1, stage, NULL);
    check_losses(
            expected, "train.dtype=bf16", 2, 3, bf16,
            tolerance(expected, "bf16_loss"), false);
    check_losses(
            expected, "train.dtype=bf16 train.gradient_checkpointing=selective",
            1, 0, bf16, tolerance(expected, "bf16_loss"), false);
}

static void check_model(const struct expected *expected)
{
    const json_t *bf16 = json_object_get(expected->json, "bf16");
    for (int world = 1; world <= 4; world++)
        for (int stage = 0; stage <= 3; stage++) {
            check_fp32(expected, world, stage, NULL);
            if (world <= 2 && (stage == 0 || stage == 3))
                check_losses(
                        expected, "train.dtype=bf16", world, stage, bf16,
                        tolerance(expected, "bf16_loss"), false);
        }
    check_fp16(expected);
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];
    if (argc < 2 || argc > 4)
        return 64;
    bool is_diagonal = argc > 2 && strcmp(argv[2], "diagonal") == 0;
    bool is_axes = argc > 2 && strcmp(argv[2], "axes") == 0;
    struct expected expected = {
            .fixture = argv[1],
            .kind = is_diagonal || is_axes ? NULL : argv[2],
            .is_few = argc > 3};
    ZD_PRINT(expected.job, "tests/fixtures/%s/job.toml", argv[1]);
    ZD_PRINT(
            expected.dir, "tests/fixtures/%s%s%s", argv[1],
            expected.kind ? "/" : "", expected.kind ? expected.kind : "");
    ZD_PRINT(path, "%s/expected.json", expected.dir);
    if (json_parse_file(path, 1 << 22, &expected.json) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
    expected.steps = json_object_get(expected.json, "steps");
    if (expected.kind)
        check_adapter(&expected);
    else if (is_axes)
        check_axes(&expected);
    else if (is_diagonal)
        check_diagonal(&expected);
    else
        check_model(&expected);
    json_decref(expected.json);
    return tap_done();
}
