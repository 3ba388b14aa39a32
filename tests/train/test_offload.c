/* test_offload.c - what a job of five steps with offload tells and saves; that
 * its bits are those without is in same_runs.txt.
 *
 *   test_offload report   what a step's row says of waits and bytes
 *   test_offload resume   saved with offload, resumed without, or reversed
 *   test_offload tsan     a few jobs, for a thread sanitizer */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

#define LLAMA "tests/fixtures/llama_odd/job.toml"
/* Residual streams go to the host where there are layers between the first and
 * the last. */
#define DEEP "tests/fixtures/deep.toml"

/* Evaluation and a checkpoint lie between the steps: both read parameters and
 * states while updates may still be under way. */
#define run(job, dir, world, ...)                                              \
    job_runs(                                                                  \
            job, dir, world,                                                   \
            "train.max_steps=5 data.val_split=0.2 eval.eval_strategy=steps "   \
            "eval.eval_steps=2 eval.max_batches=1 "                            \
            "checkpoint.save_strategy=steps checkpoint.save_steps=3 "          \
            "train.dtype=" __VA_ARGS__)

#define HOST "offload.optimizer=cpu "
#define BOTH HOST "offload.params=cpu "

/* "auto" adds micro-batches up on the device if that fits, else on the host.
 * *device_out: bytes planned there. */
static bool accumulates_on_host(double limit, double *device_out)
{
    const char *dir = job_threads_dir();
    bool on_host = false;
    size_t i;
    json_t *arena, *span;
    bool ran = job_runs(
            LLAMA, dir, 1,
            "train.per_device_train_batch_size=4 " HOST
            "zero.stage=1 train.max_steps=1 optim.warmup_steps=0 "
            "checkpoint.save_strategy=no checkpoint.export=none "
            "device.host_memory_limit=1GiB device.memory_limit=%.0f",
            limit);
    json_t *plan = plan_check_open(dir);
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    const json_t *arenas = json_object_get(rank, "arenas");
    *device_out = ran ? (double)json_integer_at(
                                json_array_get(arenas, 0), "planned_bytes")
                      : 0;
    for (size_t a = 0; (arena = json_array_get(arenas, a)); a++)
        json_array_foreach(json_object_get(arena, "spans"), i, span) on_host |=
                strcmp(json_string_at(span, "name"), "offload.accumulators") ==
                0;
    json_decref(plan);
    return on_host;
}

static void accumulates_where_it_fits(void)
{
    double most, less;
    bool first = accumulates_on_host(1 << 30, &most);
    bool second = accumulates_on_host(most - 1, &less);
    tap_ok(!first && second && less > 0 && less < most,
           "micro-batches are added up on the device (%.0f bytes), or on the "
           "host where that does not fit (%.0f)",
           most, less);
}

/* --- rows ----------------------------------------------------------------- */

static double *column(const char *dir, const char *key, bool *ok)
{
    double *values = NULL;
    *ok = job_threads_column(dir, key, &values) == STEPS && *ok;
    return values;
}

/* No wait is shorter than nothing or longer than the step. */
static bool waits_add_up(const char *dir)
{
    static const char *const keys[] = {
            "offload.wait_seconds.down", "offload.wait_seconds.host_step",
            "offload.wait_seconds.up", "offload.wait_seconds.activations"};
    bool ok = true;
    double sum[STEPS] = {0}, *step = column(dir, "step_seconds", &ok);
    for (int k = 0; k < 4; k++) {
        double *wait = column(dir, keys[k], &ok);
        for (int i = 0; i < STEPS && ok; i++) {
            ok = wait[i] >= 0;
            sum[i] += wait[i];
        }
        free(wait);
    }
    for (int i = 0; i < STEPS && ok; i++)
        ok = sum[i] <= step[i];
    free(step);
    return ok;
}

static bool each_step_moves_the_same(const char *dir, const char *key)
{
    bool ok = true;
    double *bytes = column(dir, key, &ok);
    for (int i = 0; i < STEPS && ok; i++)
        ok = bytes[i] > 0 && bytes[i] == bytes[0];
    free(bytes);
    return ok;
}

/* What evaluations and saves move between steps is in no row. */
static void reports_are_of_steps(void)
{
    static const char *const tiers[] = {
            HOST,
            BOTH "offload.activations=cpu train.gradient_checkpointing=full",
            "offload.optimizer=nvme offload.params=nvme "
            "offload.nvme_path=/tmp"};
    for (int world = 1; world <= 2; world++)
        for (int i = 0; i < 3; i++) {
            const char *dir = job_threads_dir();
            bool ran = run(LLAMA, dir, world, "bf16 %s", tiers[i]);
            tap_ok(ran && waits_add_up(dir),
                   "world %d, %s: the waits of a step are a part of it", world,
                   tiers[i]);
            tap_ok(each_step_moves_the_same(dir, "offload.down_bytes") &&
                           (i == 0 ||
                            each_step_moves_the_same(dir, "offload.up_bytes")),
                   "  each row has the bytes of one step");
        }
}

/* --- resume --------------------------------------------------------------- */

/* Save at a ranks, resume at b: offloaded or not, the same. */
static void resumes_agree(int a, int b, const char *dtype)
{
    static const char device[] = "zero.stage=2",
                      offload[] = HOST "zero.stage=3";
    const char *dirs[2];
    bool ran = true;
    for (int i = 0; i < 2; i++) {
        const char *saved = job_threads_dir();
        dirs[i] = job_threads_dir();
        ran = ran &&
              run(LLAMA, saved, a, "%s run.stop_after=3 %s", dtype,
                  i ? offload : device) &&
              run(LLAMA, dirs[i], b,
                  "%s %s run.resume=%s/out/checkpoint-000003", dtype,
                  !i      ? offload
                  : a > b ? BOTH "zero.stage=3"
                          : device,
                  saved);
    }
    tap_ok(ran && same_training(dirs[0], dirs[1], 0) &&
                   same_model(dirs[0], dirs[1]),
           "%s: saved at %d ranks, resumed at %d, offloaded before or after",
           dtype, a, b);
}

/* --- thread sanitizer ----------------------------------------------------- */

static void jobs_race_nowhere(void)
{
#define DEEP_SETS                                                              \
    "data.val_split=0.0 offload.activations=cpu offload.threads=2 "            \
    "train.gradient_checkpointing=full zero.stage=3 "
    static const struct {
        const char *job, *sets;
    } jobs[] = {
            {LLAMA, "fp32 " HOST "zero.stage=2 offload.threads=2"},
            {LLAMA, "bf16 " BOTH "zero.stage=3 offload.threads=2"},
            {LLAMA, "fp32 " HOST "zero.stage=1 offload.clipping=undo "
                    "optim.name=adamw_8bit"},
            {LLAMA, "bf16 " HOST "zero.stage=3 offload.accumulate=host "
                    "train.per_device_train_batch_size=4"},
            {DEEP, "fp32 " DEEP_SETS "offload.optimizer=nvme "
                   "offload.params=nvme offload.nvme_path=/tmp"},
            {DEEP, "bf16 " DEEP_SETS BOTH "optim.name=adam_mini_8bit"},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        tap_ok(run(jobs[i].job, job_threads_dir(), 2,
                   "%s device.streams=threads offload.chunk_bytes=4096",
                   jobs[i].sets),
               "job %zu with threads for streams and updates", i + 1);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "report") == 0) {
        accumulates_where_it_fits();
        reports_are_of_steps();
    } else if (strcmp(part, "resume") == 0) {
        resumes_agree(2, 3, "bf16");
        resumes_agree(3, 1, "bf16");
        resumes_agree(1, 2, "fp32");
        resumes_agree(4, 2, "fp32");
    } else if (strcmp(part, "tsan") == 0) {
        jobs_race_nowhere();
    } else {
        return 64;
    }
    return tap_done();
}
