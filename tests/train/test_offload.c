/* test_offload.c - a whole job of five steps with and without offload: the same
 * losses, norms, checkpoints and model, to the bit; bytes on the wire and in
 * memory as planned.
 *
 *   test_offload runs     layouts, threads, streams, optimizers, micro-batches
 *   test_offload nvme     states and parameters in a file
 *   test_offload report   what a step's row says of waits and bytes
 *   test_offload resume   saved with offload, resumed without, or reversed
 *   test_offload tsan     a few jobs, for a thread sanitizer */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

#define LLAMA  "tests/fixtures/llama_odd/job.toml"
#define GPT2   "tests/fixtures/gpt2/job.toml"
#define RECIPE "tests/train/recipe.toml"
#define PLAIN  "tests/train/bytes.toml" /* says nothing of the optimizer */
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

/* The same losses, norms, checkpoint and model, to the bit. */
static bool same_run(const char *a, const char *b, int world)
{
    char name[96];
    bool same = same_training(a, b, 0) && same_column(a, b, "eval_loss", 0) &&
                same_model(a, b);
    for (int r = 1; r <= world; r++) {
        snprintf(
                name, sizeof name,
                "checkpoint-000003/shard-%05d-of-%05d.safetensors", r, world);
        same = same && same_output(a, b, name);
    }
    return same;
}

/* Bytes on the wire and in memory. */
static bool as_planned(const char *dir)
{
    json_t *plan = plan_check_open(dir);
    bool ok =
            plan && plan_check_sent(plan, dir, STEPS) && plan_check_taken(plan);
    json_decref(plan);
    return ok;
}

/* Is `layout` with `offload` the same run as without? */
static void compare(
        const char *job, int world, const char *dtype, const char *layout,
        const char *offload)
{
    const char *a = job_threads_dir(), *b = job_threads_dir();
    bool ran = run(job, a, world, "%s %s", dtype, layout);
    bool ran_too = run(job, b, world, "%s %s %s", dtype, layout, offload);
    tap_ok(ran && ran_too && same_run(a, b, world),
           "world %d, %s %s, %s: the same bits", world, dtype, layout, offload);
    tap_ok(ran_too && as_planned(b), "  wire and memory as planned");
    fs_remove_tree(a);
    fs_remove_tree(b);
}

/* --- layouts -------------------------------------------------------------- */

/* One run on the device; then every stage offloaded must equal it. */
static void layouts_agree(const char *job, const char *dtype, int world)
{
    static const char *const variants[] = {
            "device.streams=threads offload.threads=3",
            "device.streams=inline offload.threads=1",
            "offload.clipping=undo offload.threads=3",
            "offload.chunk_bytes=2048",
            "zero.overlap_comm=false device.streams=inline"};
    const char *base = job_threads_dir();
    tap_ok(run(job, base, world, "%s zero.stage=1", dtype),
           "%s, world %d: not offloaded", dtype, world);
    for (int i = 0; i < 5; i++) {
        const char *dir = job_threads_dir();
        int stage = i < 4 ? i : 3;
        bool ran =
                run(job, dir, world, "%s zero.stage=%d %s %s", dtype, stage,
                    i == 4 ? BOTH : HOST, variants[(i + world) % 5]);
        tap_ok(ran && same_run(base, dir, world) && as_planned(dir),
               "%s, world %d, stage %d%s: offloaded, the same bits", dtype,
               world, stage, i == 4 ? " with parameters" : "");
        fs_remove_tree(dir);
    }
    fs_remove_tree(base);
}

static void optimizers_agree(void)
{
    static const char *const names[] = {
            "adamw_8bit", "adam_mini", "adam_mini_8bit",         "lion",
            "lion_8bit",  "sgd",       "adamw optim.master=none"};
    for (int i = 0; i < 7; i++) {
        char layout[96];
        snprintf(
                layout, sizeof layout, "optim.name=%s zero.stage=%d", names[i],
                i % 4);
        compare(PLAIN, 1 + i % 2, "bf16", layout,
                HOST "offload.chunk_bytes=4096");
    }
}

/* Several micro-batches: on the device as without offload; on the host what
 * stages 2 and 3 add up on the device. */
static void micro_batches_agree(void)
{
    for (int on_host = 0; on_host <= 1; on_host++)
        for (int stage = on_host ? 2 : 0; stage <= 3; stage++) {
            char layout[96], offload[96];
            snprintf(
                    layout, sizeof layout,
                    "zero.stage=%d train.per_device_train_batch_size=4", stage);
            snprintf(
                    offload, sizeof offload, "%s offload.accumulate=%s",
                    stage == 3 ? BOTH : HOST, on_host ? "host" : "device");
            compare(LLAMA, 2, stage % 2 ? "bf16" : "fp32", layout, offload);
        }
}

static int rows_of(const char *dir, const char *key)
{
    double *values;
    int count = job_threads_column(dir, key, &values);
    free(values);
    return count;
}

/* The recipe of docs/offload.md as it is, with a model that fits any device:
 * its sixteen micro-batches are added up there. */
static void recipe_agrees(void)
{
    const char *a = job_threads_dir(), *b = job_threads_dir();
    bool ran = run(RECIPE, a, 1, "fp16 offload.optimizer=none") &&
               run(RECIPE, b, 1, "fp16");
    tap_ok(ran && same_run(a, b, 1) && as_planned(b) &&
                   rows_of(b, "offload.down_bytes") == STEPS &&
                   rows_of(a, "offload.down_bytes") == 0,
           "the recipe for GPT-2 XL with a small GPT-2: the same bits");
}

/* On one rank, and at stage 1, the host adds rounded sums of its own: near. */
static void host_sums_are_near(void)
{
    for (int world = 1; world <= 2; world++) {
        const char *a = job_threads_dir(), *b = job_threads_dir();
        bool ran = true;
        for (int host = 0; host < 2; host++)
            ran &=
                    run(LLAMA, host ? b : a, world,
                        "fp32 train.per_device_train_batch_size=4 "
                        "zero.stage=1 %s",
                        host ? HOST "offload.accumulate=host" : "");
        double worst = column_difference(a, b, "loss");
        tap_ok(ran && rows_of(b, "loss") == STEPS && worst <= 1e-5 &&
                       as_planned(b),
               "world %d: summed on the host as on the device (%.2g)", world,
               worst);
    }
}

/* fp16: the first steps overflow at this scale and are skipped, by all ranks.
 */
static void overflow_is_skipped(void)
{
    static const char *const offloads[] = {
            "zero.stage=2", HOST "zero.stage=2", BOTH "zero.stage=3",
            HOST "offload.clipping=undo zero.stage=1"};
    const char *base = NULL;
    for (int i = 0; i < 4; i++) {
        const char *dir = job_threads_dir();
        bool ran =
                run(LLAMA, dir, 2,
                    "fp16 train.fp16.initial_scale_power=22 "
                    "train.fp16.hysteresis=1 %s",
                    offloads[i]);
        base = base ? base : dir;
        tap_ok(ran && rows_of(dir, "skipped") > 0 && same_run(base, dir, 2),
               "fp16, %s: the same steps skipped, the same bits", offloads[i]);
    }
}

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

/* --- a file --------------------------------------------------------------- */

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count - 2; /* . and .. */
}

static void nvme_agrees(void)
{
    static const struct {
        const char *job, *dtype;
        int world;
        const char *layout, *offload;
    } cases[] = {
            {LLAMA, "fp32", 1, "optim.name=adamw",
             "offload.params=nvme offload.chunk_bytes=2048 "
             "aio.block_size=4096"},
            {LLAMA, "bf16", 2,
             "zero.stage=1 train.per_device_train_batch_size=4",
             "offload.accumulate=device offload.threads=3"},
            {GPT2, "bf16", 2, "zero.stage=3 optim.name=adamw_8bit",
             "offload.params=nvme offload.chunk_bytes=4096 "
             "aio.queue_depth=3"},
            {GPT2, "fp16", 3,
             "zero.stage=2 train.per_device_train_batch_size=2 "
             "optim.name=adamw_8bit",
             "offload.accumulate=host device.streams=inline"},
            {LLAMA, "bf16", 2,
             "zero.stage=3 train.per_device_train_batch_size=4 "
             "optim.name=adam_mini_8bit",
             "offload.params=nvme offload.accumulate=host "
             "offload.chunk_bytes=4096 device.streams=threads"},
            {LLAMA, "fp32", 2, "zero.stage=3",
             "offload.params=cpu offload.threads=2 aio.queue_depth=1"},
    };
    const char *disk = job_threads_dir();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char offload[256];
        snprintf(
                offload, sizeof offload,
                "offload.optimizer=nvme offload.nvme_path=%s %s", disk,
                cases[i].offload);
        compare(cases[i].job, cases[i].world, cases[i].dtype, cases[i].layout,
                offload);
    }
    tap_ok(entries(disk) == 0, "nothing is left on the disk");
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
    if (strcmp(part, "runs") == 0) {
        for (int world = 1; world <= 4; world += world)
            for (int half = 0; half <= 1; half++)
                layouts_agree(
                        half == (world == 2) ? LLAMA : GPT2,
                        half ? "bf16" : "fp32", world);
        optimizers_agree();
        micro_batches_agree();
        recipe_agrees();
        host_sums_are_near();
        overflow_is_skipped();
        accumulates_where_it_fits();
    } else if (strcmp(part, "nvme") == 0) {
        nvme_agrees();
    } else if (strcmp(part, "report") == 0) {
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
