/* test_lora.c - adapters on a base as it is or quantized: what a resumed run
 * keeps. That layouts have the same bits, worlds agree, and dropout depends on
 * the sample, is in same_runs.txt.
 *
 *   test_lora lora | qlora */
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <math.h>
#include <string.h>

enum { STEPS = 4 };
#define DROPOUT                                                                \
    "lora.lora_dropout=0.25 lora.use_rslora=true "                             \
    "lora.modules_to_save=[\"model.norm\"] "
#define run_of(job, dir, world, ...)                                           \
    job_runs(                                                                  \
            job, dir, world,                                                   \
            "lora.enabled=true lora.r=3 train.max_steps=4 "                    \
            "train.global_batch_size=12 checkpoint.save_steps=4 "              \
            "optim.learning_rate=0.01 optim.warmup_steps=0 "                   \
            "data.val_split=0.3 eval.eval_steps=2 " __VA_ARGS__)
#define run(dir, world, ...)                                                   \
    run_of("tests/fixtures/llama_odd/job.toml", dir, world, __VA_ARGS__)

static bool same_run(const char *a, const char *b)
{
    return same_training(a, b, STEPS) && same_column(a, b, "eval_loss", 3) &&
           same_output(a, b, "peft/adapter_model.safetensors");
}

static bool failed_with(const char *code)
{
    return strcmp(zd_error_get()->code, code) == 0;
}

#define HOST "zero.stage=3 offload.optimizer=cpu offload.params=cpu "

/* --- resuming ------------------------------------------------------------- */

/* `other`: another base, which it does not go on with. */
static void resumes(const char *sets, const char *other, const char *code)
{
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *moved = job_threads_dir();
    bool ran = run(whole, 2, "zero.stage=2 %s", sets) &&
               run(cut, 2, "zero.stage=2 run.stop_after=2 %s", sets);
    tap_ok(ran &&
                   run(moved, 4,
                       HOST "run.stop_after=2 %s "
                            "run.resume=%s/out/checkpoint-000002",
                       sets, cut) &&
                   same_saved_state(cut, 2, moved, 4, 2),
           "saved at 2 ranks, loaded at 4: the same bits");
    tap_ok(ran && run(cut, 2, "zero.stage=2 %s", sets) && same_run(whole, cut),
           "cut after step 2, the rest has the same bits");
    bool refused = ran && !run(cut, 2, "zero.stage=2 train.max_steps=6 %s %s",
                               sets, other);
    tap_ok(refused && failed_with(code), "it does not go on with %s", other);
}

/* What the trained A and B mean stays as it was; how they are trained may
 * change. */
static void resumes_as_what_it_is(void)
{
    static const struct {
        const char *set, *says;
    } rows[] = {
            {"lora.enabled=false", "lora.enabled = true"},
            {"lora.r=4", "lora.r = 3"},
            {"lora.rank_pattern={\".*q_proj\"=2}", "rank_pattern"},
            {"lora.lora_alpha=5", "lora_alpha"},
            {"lora.use_rslora=false", "use_rslora"},
            {"lora.alpha_pattern={\".*q_proj\"=1}", "alpha_pattern"},
            {"lora.use_dora=true", "use_dora"},
            {"lora.target_modules=[\"q_proj\"]", "target_modules"},
            {"lora.quantize_base=int8",
             "lora.quantize_base = \"none\", which is \"int8\" now"},
    };
    const char *dir = job_threads_dir(), *whole = job_threads_dir();
    bool ran = run(dir, 1, DROPOUT "run.stop_after=3");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool refused = ran && !run(dir, 1, DROPOUT "%s", rows[i].set);
        const struct zd_error *error = zd_error_get();
        tap_ok(refused && error->status == ZD_ERR_CONFIG &&
                       failed_with("E0817") &&
                       strstr(error->what, rows[i].says),
               "a checkpoint does not go on with %s: %s", rows[i].set,
               refused ? error->what : "it did");
    }
    tap_ok(ran && run(dir, 1,
                      DROPOUT "lora.lora_dropout=0.5 "
                              "lora.loraplus_lr_ratio=2"),
           "with another dropout it does");
    tap_ok(run(whole, 1, DROPOUT "lora.enabled=false run.stop_after=3") &&
                   !run(whole, 1, DROPOUT) && failed_with("E0817"),
           "nor does one of the model itself with adapters");
}

/* --- what is trained ------------------------------------------------------ */

/* What is written has the lengths of the rows that were trained on, and so has
 * what goes on from it. */
static void written_dora_goes_on(const char *job, const char *base)
{
    const char *wrote = job_threads_dir(), *read = job_threads_dir();
    bool ran =
            run_of(job, wrote, 2, "lora.quantize_base=%s lora.use_dora=true",
                   base) &&
            run_of(job, read, 1, "lora.quantize_base=%s lora.path=%s/out/peft",
                   base, wrote);
    double was = last_of_column(wrote, "eval_loss");
    double is = first_of_column(read, "eval_loss");
    tap_ok(ran && fabs(is - was) <= 1e-6 * was,
           "%s %s: DoRA goes on from what was written: %.8f, %.8f", job, base,
           was, is);
}

int main(int argc, char **argv)
{
    static const char *const formats[] = {"nf4", "fp4", "int8", "fp8"};
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "lora") == 0) {
        resumes(DROPOUT "optim.name=adamw_8bit", "model.init=random", "E0327");
        resumes_as_what_it_is();
        return tap_done();
    }
    for (int i = 0; i < 4; i++) {
        written_dora_goes_on(
                i % 2 ? "tests/fixtures/gpt2/job.toml"
                      : "tests/fixtures/llama_odd/job.toml",
                formats[i]);
    }
    resumes("lora.quantize_base=nf4", "lora.quantize_base=int8", "E0817");
    return tap_done();
}
