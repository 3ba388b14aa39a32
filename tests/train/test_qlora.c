/* test_qlora.c - adapters on a base in codes: stages, worlds, checkpointing,
 * offload and resuming give the same bits, in every format; bytes on the wire
 * and in memory are the plan's; models that are stored in codes train as what
 * they decode to.
 *
 *   test_qlora
 *   test_qlora tsan    two layouts, for a thread sanitizer */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"
#include "tests/support/saved_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 24, MORE = 8, STEPS = 4 };

static bool run(
        const char *fixture, const char *dir, int world,
        const char *const *more)
{
    char job[96];
    const char *sets[SETS] = {
            "lora.enabled=true",       "lora.r=3",
            "train.max_steps=4",       "train.global_batch_size=12",
            "checkpoint.save_steps=4", "optim.learning_rate=0.01",
            "optim.warmup_steps=0",    "data.val_split=0.3",
            "eval.eval_steps=2",
    };
    int count = 9;
    for (; *more; more++)
        sets[count++] = *more;
    snprintf(job, sizeof job, "tests/fixtures/%s/job.toml", fixture);
    return job_threads_run(job, sets, world, dir) == ZD_OK;
}

static bool same_run(const char *a, const char *b)
{
    return same_column(a, b, "loss", STEPS) &&
           same_column(a, b, "grad_norm", STEPS) &&
           same_column(a, b, "eval_loss", 3) &&
           same_output(a, b, "peft/adapter_model.safetensors");
}

struct layout {
    bool on_disk;
    const char *name, *sets[MORE];
};

/* Every layout has the bits of the first. */
static void layouts_agree(
        const char *fixture, int world, const char *base, const char *dtype,
        const struct layout *layouts, int count)
{
    const char *first = NULL;
    char type[32], format[40];
    snprintf(type, sizeof type, "train.dtype=%s", dtype);
    snprintf(format, sizeof format, "lora.quantize_base=%s", base);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        const char *dir = job_threads_dir();
        const char *sets[SETS] = {type, format, path};
        snprintf(path, sizeof path, "offload.nvme_path=%s", dir);
        int count_of_sets = layouts[i].on_disk ? 3 : 2;
        for (int k = 0; k < MORE && layouts[i].sets[k]; k++)
            sets[count_of_sets++] = layouts[i].sets[k];
        sets[count_of_sets] = NULL;
        bool ran = run(fixture, dir, world, sets);
        if (!first)
            first = dir;
        tap_ok(ran && same_run(first, dir), "%s %s %s world %d: %s", fixture,
               base, dtype, world, layouts[i].name);
    }
}

static const struct layout many[] = {
        {false, "stage 0", {"zero.stage=0"}},
        {false, "stage 1", {"zero.stage=1"}},
        {false, "stage 2", {"zero.stage=2"}},
        {false, "stage 3", {"zero.stage=3"}},
        {false,
         "checkpointing full",
         {"zero.stage=3", "train.gradient_checkpointing=full"}},
        {false,
         "checkpointing every:2",
         {"zero.stage=1", "train.gradient_checkpointing=every:2"}},
        {false,
         "copies in line",
         {"zero.stage=3", "offload.optimizer=cpu", "offload.params=cpu",
          "device.streams=inline"}},
        {true,
         "states on disk, parameters on the host",
         {"zero.stage=3", "offload.optimizer=nvme", "offload.params=nvme"}},
        {false,
         "everything on the host",
         {"zero.stage=3", "offload.optimizer=cpu", "offload.params=cpu",
          "offload.activations=cpu", "train.gradient_checkpointing=full",
          "device.streams=threads"}},
};
static const struct layout few[] = {
        {false, "stage 0", {"zero.stage=0"}},
        {false, "stage 3", {"zero.stage=3"}},
};
#define DORA "lora.use_dora=true"
static const struct layout of_dora[] = {
        {false, "DoRA, stage 0", {DORA, "zero.stage=0"}},
        {false, "DoRA, stage 2", {DORA, "zero.stage=2"}},
        {false,
         "DoRA, stage 3, checkpointing full",
         {DORA, "zero.stage=3", "train.gradient_checkpointing=full"}},
        {true,
         "DoRA, states on disk, parameters on the host",
         {DORA, "zero.stage=3", "offload.optimizer=nvme",
          "offload.params=nvme"}},
};

static void sets_of_world(
        const char *sets[SETS], const char *base, const char *stage)
{
    sets[0] = base;
    sets[1] = stage;
    sets[2] = "train.per_device_train_batch_size=1";
}

static double last_of(const char *dir, const char *key)
{
    double *values, last = NAN;
    int count = job_threads_column(dir, key, &values);
    if (count)
        last = values[count - 1];
    free(values);
    return last;
}

static double first_of(const char *dir, const char *key)
{
    double *values, first = NAN;
    if (job_threads_column(dir, key, &values))
        first = values[0];
    free(values);
    return first;
}

/* What is written has the lengths of the rows that were trained on, and so has
 * what goes on from it. */
static void written_dora_goes_on(const char *fixture, const char *base)
{
    char format[40], path[PATH_MAX + 32];
    const char *wrote = job_threads_dir(), *read = job_threads_dir();
    const char *first[] = {format, DORA, NULL}, *then[] = {format, path, NULL};
    snprintf(format, sizeof format, "lora.quantize_base=%s", base);
    snprintf(path, sizeof path, "lora.path=%s/out/peft", wrote);
    bool ran = run(fixture, wrote, 2, first) && run(fixture, read, 1, then);
    double was = last_of(wrote, "eval_loss"), is = first_of(read, "eval_loss");
    tap_ok(ran && fabs(is - was) <= 1e-6 * was,
           "%s %s: DoRA goes on from what was written: %.8f, %.8f", fixture,
           base, was, is);
}

static json_t *manifest_of(const char *dir)
{
    char path[PATH_MAX];
    json_t *manifest = NULL;
    snprintf(path, sizeof path, "%s/out/checkpoint-000004/manifest.json", dir);
    if (json_parse_file(path, 1 << 24, &manifest) != ZD_OK)
        return NULL;
    return manifest;
}

/* The base's digest is that of its codes and scales, however they are cut. */
static void worlds_agree(const char *base)
{
    char format[40], digest[64] = "";
    double loss = NAN;
    snprintf(format, sizeof format, "lora.quantize_base=%s", base);
    for (int world = 1; world <= 4; world++) {
        const char *dir = job_threads_dir(), *sets[SETS] = {NULL};
        sets_of_world(sets, format, "zero.stage=3");
        bool ran = run("llama_odd", dir, world, sets);
        json_t *manifest = ran ? manifest_of(dir) : NULL;
        const char *own = json_string_value(
                json_object_get(json_object_get(manifest, "base"), "digest"));
        if (own && world == 1)
            snprintf(digest, sizeof digest, "%s", own);
        double last = last_of(dir, "loss");
        loss = world == 1 ? last : loss;
        tap_ok(ran && own && strcmp(own, digest) == 0 &&
                       fabs(last - loss) <= 1e-5 * loss,
               "%s world %d: the codes of one rank: %.7f", base, world, last);
        json_decref(manifest);
    }
}

static void resumes(void)
{
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *moved = job_threads_dir();
    char from[PATH_MAX + 32];
    const char *nf4 = "lora.quantize_base=nf4";
    const char *all[] = {nf4, "zero.stage=2", NULL};
    const char *half[] = {nf4, "zero.stage=2", "run.stop_after=2", NULL};
    const char *there[] = {
            nf4,
            "zero.stage=3",
            "run.stop_after=2",
            "offload.optimizer=cpu",
            "offload.params=cpu",
            from,
            NULL};
    const char *other[] = {
            "lora.quantize_base=int8", "zero.stage=2", "train.max_steps=6",
            NULL};
    snprintf(from, sizeof from, "run.resume=%s/out/checkpoint-000002", cut);
    bool ran =
            run("llama_odd", whole, 2, all) && run("llama_odd", cut, 2, half);
    tap_ok(ran && run("llama_odd", moved, 4, there) &&
                   same_saved_state(cut, 2, moved, 4, 2),
           "saved at 2 ranks, loaded at 4: the same bits");
    tap_ok(ran && run("llama_odd", cut, 2, all) && same_run(whole, cut),
           "cut after step 2, the rest has the same bits");
    bool refused = ran && !run("llama_odd", cut, 2, other);
    tap_ok(refused && strcmp(zd_error_get()->code, "E0817") == 0,
           "it does not go on with a base in other codes");
}

/* Counted is planned, taken is planned. */
static void plan_is_true(const char *base)
{
    char format[40];
    snprintf(format, sizeof format, "lora.quantize_base=%s", base);
    for (int stage = 0; stage <= 3; stage++)
        for (int world = 1; world <= 3; world += 2) {
            char set[32];
            const char *dir = job_threads_dir();
            const char *sets[] = {set, format, "train.dtype=bf16", NULL};
            snprintf(set, sizeof set, "zero.stage=%d", stage);
            bool ran = run("llama_odd", dir, world, sets);
            json_t *plan = ran ? plan_check_open(dir) : NULL;
            tap_ok(plan && plan_check_sent(plan, dir, STEPS) &&
                           plan_check_taken(plan),
                   "%s world %d stage %d: sent and taken as planned", base,
                   world, stage);
            json_decref(plan);
        }
}

/* A base in codes under streams and host workers that are threads. */
static void jobs_race_nowhere(void)
{
    static const struct layout both[] = {
            {false,
             "DoRA, stage 2, saves in the background",
             {DORA, "zero.stage=2", "checkpoint.save_steps=2"}},
            {false,
             "DoRA, everything on the host, by threads",
             {DORA, "zero.stage=3", "offload.optimizer=cpu",
              "offload.params=cpu", "offload.activations=cpu",
              "train.gradient_checkpointing=full", "device.streams=threads",
              "offload.threads=2"}},
    };
    layouts_agree("llama_odd", 2, "nf4", "bf16", both, 2);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (strcmp(argv[1], "tsan") != 0)
            return 64;
        jobs_race_nowhere();
        return tap_done();
    }
    static const char *const formats[] = {"nf4", "fp4", "int8", "fp8"};
    int most = sizeof many / sizeof many[0], some = sizeof few / sizeof few[0];
    layouts_agree("llama_odd", 2, "nf4", "fp32", many, most);
    layouts_agree("gpt2", 3, "fp4", "bf16", many, most);
    layouts_agree("llama_odd", 3, "int8", "bf16", few, some);
    layouts_agree("qwen3", 3, "fp8", "bf16", few, some);
    layouts_agree("gpt2", 2, "fp8", "fp32", few, some);
    layouts_agree("gpt2", 2, "int8", "fp32", few, some);
    layouts_agree("llama_odd", 2, "nf4", "bf16", of_dora, 4);
    layouts_agree("gpt2", 3, "fp8", "fp32", of_dora, 4);
    for (int i = 0; i < 4; i++) {
        worlds_agree(formats[i]);
        written_dora_goes_on(i % 2 ? "gpt2" : "llama_odd", formats[i]);
    }
    resumes();
    plan_is_true("nf4");
    plan_is_true("fp8");
    return tap_done();
}
