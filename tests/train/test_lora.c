/* test_lora.c - one training of adapters, whatever the layout: stages,
 * checkpointing, offload, paging and resuming give the same bits, with dropout;
 * bytes on the wire and in memory are the plan's. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"
#include "tests/support/saved_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/llama_odd/job.toml"
enum { SETS = 24, MORE = 8 };

static bool run(const char *dir, int world, const char *const *more)
{
    const char *sets[SETS] = {
            "lora.enabled=true",
            "lora.r=3",
            "lora.lora_dropout=0.25",
            "lora.use_rslora=true",
            "lora.modules_to_save=[\"model.norm\"]",
            "train.max_steps=6",
            "train.global_batch_size=12",
            "checkpoint.save_steps=6",
            "optim.learning_rate=0.01",
            "optim.warmup_steps=0",
    };
    int count = 10;
    for (; *more; more++)
        sets[count++] = *more;
    return job_threads_run(JOB, sets, world, dir) == ZD_OK;
}

static bool same_run(const char *a, const char *b)
{
    return same_column(a, b, "loss", 6) && same_column(a, b, "grad_norm", 6) &&
           same_output(a, b, "peft/adapter_model.safetensors");
}

/* Every case has the bits of the first. */
static void layouts_agree(int world, const char *dtype, bool dora)
{
    static const struct {
        const char *name, *sets[MORE];
    } cases[] = {
            {"stage 0", {"zero.stage=0"}},
            {"stage 1", {"zero.stage=1"}},
            {"stage 2", {"zero.stage=2"}},
            {"stage 3", {"zero.stage=3"}},
            {"checkpointing selective",
             {"zero.stage=2", "train.gradient_checkpointing=selective"}},
            {"checkpointing full",
             {"zero.stage=3", "train.gradient_checkpointing=full"}},
            {"checkpointing every:2",
             {"zero.stage=1", "train.gradient_checkpointing=every:2"}},
            {"the optimizer on the host",
             {"zero.stage=2", "offload.optimizer=cpu"}},
            {"everything on the host",
             {"zero.stage=3", "offload.optimizer=cpu", "offload.params=cpu",
              "offload.activations=cpu", "train.gradient_checkpointing=full"}},
    };
    const char *first = NULL;
    char type[32];
    snprintf(type, sizeof type, "train.dtype=%s", dtype);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *dir = job_threads_dir();
        const char *sets[SETS] = {
                type, dora ? "lora.use_dora=true" : "lora.use_dora=false"};
        for (int k = 0; k < MORE && cases[i].sets[k]; k++)
            sets[k + 2] = cases[i].sets[k];
        bool ran = run(dir, world, sets);
        if (!first)
            first = dir;
        tap_ok(ran && same_run(first, dir), "%s%s world %d: %s", dtype,
               dora ? " DoRA" : "", world, cases[i].name);
    }
}

static double last_loss(const char *dir)
{
    double *values, last = NAN;
    int count = job_threads_column(dir, "loss", &values);
    if (count)
        last = values[count - 1];
    free(values);
    return last;
}

/* What is dropped depends on the sample: another world drops the same. (On what
 * else it depends: tests/model/test_adapted.c.) */
static void dropout_is_of_samples(void)
{
    const char *one = job_threads_dir(), *four = job_threads_dir();
    const char *other = job_threads_dir(), *without = job_threads_dir();
    const char *none[] = {NULL},
               *split[] = {"train.per_device_train_batch_size=1", NULL};
    const char *seed[] = {"job.seed=2", "job.data_seed=1", NULL};
    const char *off[] = {"lora.lora_dropout=0", NULL};
    bool ran = run(one, 1, none) && run(four, 4, split) &&
               run(other, 1, seed) && run(without, 1, off);
    double a = last_loss(one), b = last_loss(four);
    tap_ok(ran && fabs(a - b) <= 1e-5 * a,
           "4 ranks and 3 micro-batches drop what one does: %.7f, %.7f", a, b);
    tap_ok(ran && fabs(a - last_loss(other)) > 1e-4 * a,
           "another seed, which A is drawn by too, is another training");
    tap_ok(ran && fabs(a - last_loss(without)) > 1e-4 * a,
           "without dropout it is another training");
}

static void resumes(void)
{
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *moved = job_threads_dir();
    char from[PATH_MAX + 32];
    const char *all[] = {"zero.stage=2", "optim.name=adamw_8bit", NULL};
    const char *half[] = {
            "zero.stage=2", "optim.name=adamw_8bit", "run.stop_after=3", NULL};
    const char *there[] = {
            "zero.stage=3",
            "optim.name=adamw_8bit",
            "run.stop_after=3",
            "offload.optimizer=cpu",
            from,
            NULL};
    snprintf(from, sizeof from, "run.resume=%s/out/checkpoint-000003", cut);
    bool ran = run(whole, 2, all) && run(cut, 2, half);
    tap_ok(ran && run(moved, 4, there) && same_saved_state(cut, 2, moved, 4, 3),
           "saved at 2 ranks, loaded at 4: the same bits");
    tap_ok(ran && run(cut, 2, all) && same_run(whole, cut),
           "cut after step 3, the rest has the same bits");
    const char *base[] = {
            "zero.stage=2", "optim.name=adamw_8bit", "train.max_steps=8",
            "model.init=random", NULL};
    bool refused = !run(cut, 2, base);
    tap_ok(refused && zd_error_get()->status == ZD_ERR_DATA &&
                   strcmp(zd_error_get()->code, "E0327") == 0,
           "an adapter does not go on with another base");
}

/* What the trained A and B mean stays as it was; how they are trained may
 * change. */
static void resumes_as_what_it_is(void)
{
    static const struct {
        const char *set, *says;
    } rows[] = {
            {"lora.enabled=false", "without [lora]"},
            {"lora.r=4", "rank 3"},
            {"lora.rank_pattern={\".*q_proj\" = 2}", "rank 2"},
            {"lora.lora_alpha=5", "lora_alpha"},
            {"lora.use_rslora=false", "use_rslora"},
            {"lora.alpha_pattern={\".*q_proj\" = 1}", "alpha_pattern"},
            {"lora.use_dora=true", "use_dora"},
            {"lora.target_modules=[\"q_proj\"]", "asks for none"},
            {"lora.quantize_base=int8", "\"int8\""},
    };
    const char *dir = job_threads_dir(), *whole = job_threads_dir();
    const char *half[] = {"run.stop_after=3", NULL};
    const char *other[] = {
            "lora.lora_dropout=0.5", "lora.loraplus_lr_ratio=2", NULL};
    const char *off[] = {"lora.enabled=false", "run.stop_after=3", NULL};
    const char *none[] = {NULL};
    bool ran = run(dir, 1, half);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *sets[] = {rows[i].set, NULL};
        bool refused = ran && !run(dir, 1, sets);
        const struct zd_error *error = zd_error_get();
        tap_ok(refused && error->status == ZD_ERR_CONFIG &&
                       strcmp(error->code, "E0817") == 0 &&
                       strstr(error->what, rows[i].says),
               "a checkpoint does not go on with %s: %s", rows[i].set,
               refused ? error->what : "it did");
    }
    tap_ok(ran && run(dir, 1, other), "with another dropout it does");
    tap_ok(run(whole, 1, off) && !run(whole, 1, none) &&
                   strcmp(zd_error_get()->code, "E0817") == 0,
           "nor does one of the model itself with adapters");
}

/* Counted is planned, taken is planned; a checkpoint holds no base. */
static void plan_is_true(bool dora)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int world = 1; world <= 3; world += 2) {
            char set[32];
            const char *dir = job_threads_dir();
            const char *sets[] = {
                    set, "train.dtype=bf16",
                    dora ? "lora.use_dora=true" : "lora.use_dora=false", NULL};
            snprintf(set, sizeof set, "zero.stage=%d", stage);
            bool ran = run(dir, world, sets);
            json_t *plan = ran ? plan_check_open(dir) : NULL;
            tap_ok(plan && plan_check_sent(plan, dir, 6) &&
                           plan_check_taken(plan),
                   "%sworld %d stage %d: sent and taken as planned",
                   dora ? "DoRA " : "", world, stage);
            json_decref(plan);
        }
}

int main(void)
{
    layouts_agree(2, "fp32", false);
    layouts_agree(3, "bf16", false);
    layouts_agree(2, "bf16", true);
    dropout_is_of_samples();
    resumes();
    resumes_as_what_it_is();
    plan_is_true(false);
    plan_is_true(true);
    return tap_done();
}
