/* test_offload.c - a whole job with and without offload: the same losses,
 * norms, checkpoints and model, to the bit; bytes on the wire and in memory as
 * planned.
 *
 *   test_offload runs     layouts, threads, streams, optimizers, micro-batches
 *   test_offload resume   saved with offload, resumed without, or reversed
 *   test_offload tsan     a few jobs, for a thread sanitizer */
#include "base/file/fs.h"
#include "offload_case.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECIPE "tests/train/recipe.toml"
#define PLAIN  "tests/train/bytes.toml" /* says nothing of the optimizer */

/* --- layouts -------------------------------------------------------------- */

/* One run on the device; then every stage offloaded must equal it. */
static void layouts_agree(const char *job, const char *dtype, int world)
{
    static const char *const variants[][5] = {
            {"device.streams=threads", "offload.threads=3"},
            {"device.streams=inline", "offload.threads=1"},
            {"offload.clipping=undo", "offload.threads=3"},
            {"offload.chunk_bytes=2048", "zero.reduce_bucket_size=3000"},
            {"zero.overlap_comm=false", "device.streams=inline"},
    };
    struct sets common;
    bool ran, ran_too;
    static const char *const device[] = {"zero.stage=1", NULL};
    set_common(&common, dtype);
    const char *base = run(job, &common, device, world, &ran);
    tap_ok(ran, "%s, world %d: not offloaded", dtype, world);
    for (int i = 0; i < 5; i++) {
        struct sets sets = {0};
        char stage[32];
        int at = i < 4 ? i : 3;
        snprintf(stage, sizeof stage, "zero.stage=%d", at);
        set(&sets, stage);
        set(&sets, "offload.optimizer=cpu");
        if (i == 4)
            set(&sets, "offload.params=cpu");
        set_all(&sets, variants[(i + world) % 5]);
        const char *dir = run(job, &common, sets.list, world, &ran_too);
        tap_ok(ran_too && same_run(base, dir, world) && as_planned(dir),
               "%s, world %d, stage %d%s: offloaded, the same bits", dtype,
               world, at, i == 4 ? " with parameters" : "");
        fs_remove_tree(dir);
    }
    fs_remove_tree(base);
}

static void optimizers_agree(void)
{
    static const char *const names[] = {
            "adamw_8bit", "adam_mini", "adam_mini_8bit", "lion",
            "lion_8bit",  "sgd",       "adamw"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[32], stage[32], what[64];
        const char *layout[] = {name, stage, NULL, NULL};
        static const char *const offload[] = {
                "offload.optimizer=cpu", "offload.chunk_bytes=4096", NULL};
        struct sets common;
        snprintf(name, sizeof name, "optim.name=%s", names[i]);
        snprintf(stage, sizeof stage, "zero.stage=%d", (int)i % 4);
        if (i == 6) /* bf16 states, no masters */
            layout[2] = "optim.master=none";
        set_common(&common, "bf16");
        snprintf(
                what, sizeof what, "%s%s", names[i],
                i == 6 ? " without masters" : "");
        compare(PLAIN, &common, layout, offload, 1 + (int)i % 2, what);
    }
}

/* Several micro-batches: on the device as without offload; on the host what
 * stages 2 and 3 add up on the device. */
static void micro_batches_agree(void)
{
    for (int on_host = 0; on_host <= 1; on_host++)
        for (int stage = on_host ? 2 : 0; stage <= 3; stage++) {
            char text[32], what[64];
            const char *layout[] = {
                    text, "train.per_device_train_batch_size=4", NULL};
            const char *offload[] = {
                    "offload.optimizer=cpu",
                    on_host ? "offload.accumulate=host"
                            : "offload.accumulate=device",
                    stage == 3 ? "offload.params=cpu" : NULL, NULL};
            struct sets common;
            snprintf(text, sizeof text, "zero.stage=%d", stage);
            snprintf(
                    what, sizeof what, "stage %d, 3 micro-batches on the %s",
                    stage, on_host ? "host" : "device");
            set_common(&common, stage % 2 ? "bf16" : "fp32");
            compare(LLAMA, &common, layout, offload, 2, what);
        }
}

/* The recipe of docs/offload.md as it is, with a model that fits any device:
 * its sixteen micro-batches are added up there. */
static void recipe_agrees(void)
{
    static const char *const device[] = {"offload.optimizer=none", NULL};
    struct sets common;
    bool ran, ran_too;
    double *down = NULL, *none = NULL;
    set_common(&common, "fp16");
    const char *a = run(RECIPE, &common, device, 1, &ran);
    const char *b = run(RECIPE, &common, NULL, 1, &ran_too);
    tap_ok(ran && ran_too && same_run(a, b, 1) && as_planned(b) &&
                   job_threads_column(b, "offload.down_bytes", &down) ==
                           STEPS &&
                   job_threads_column(a, "offload.down_bytes", &none) == 0,
           "the recipe for GPT-2 XL with a small GPT-2: the same bits");
    free(down);
    free(none);
    fs_remove_tree(a);
    fs_remove_tree(b);
}

/* On one rank, and at stage 1, the host adds rounded sums of its own: near. */
static void host_sums_are_near(void)
{
    static const char *const layout[] = {
            "train.per_device_train_batch_size=4", "zero.stage=1", NULL};
    static const char *const offload[] = {
            "train.per_device_train_batch_size=4", "zero.stage=1",
            "offload.optimizer=cpu", "offload.accumulate=host", NULL};
    for (int world = 1; world <= 2; world++) {
        struct sets common;
        bool ran, ran_too;
        double *x, *y, worst = 0;
        set_common(&common, "fp32");
        const char *a = run(LLAMA, &common, layout, world, &ran);
        const char *b = run(LLAMA, &common, offload, world, &ran_too);
        int m = job_threads_column(a, "loss", &x);
        int n = job_threads_column(b, "loss", &y);
        for (int i = 0; i < m && i < n; i++)
            worst = fmax(worst, fabs(x[i] - y[i]) / fabs(x[i]));
        tap_ok(ran && ran_too && m == STEPS && n == STEPS && worst <= 1e-5 &&
                       as_planned(b),
               "world %d: summed on the host as on the device (%.2g)", world,
               worst);
        free(x);
        free(y);
    }
}

/* fp16: the first steps overflow at this scale and are skipped, by all ranks.
 */
static void overflow_is_skipped(void)
{
    static const char *const offloads[][5] = {
            {"offload.optimizer=cpu", "zero.stage=2"},
            {"offload.optimizer=cpu", "offload.params=cpu", "zero.stage=3"},
            {"offload.optimizer=cpu", "offload.clipping=undo", "zero.stage=1"},
    };
    static const char *const layout[] = {
            "train.fp16.initial_scale_power=22", "train.fp16.hysteresis=1",
            "zero.stage=2", NULL};
    static const char *const scale[] = {
            "train.fp16.initial_scale_power=22", "train.fp16.hysteresis=1",
            NULL};
    struct sets common;
    bool ran, ran_too;
    double *skipped;
    set_common(&common, "fp16");
    const char *base = run(LLAMA, &common, layout, 2, &ran);
    int skips = job_threads_column(base, "skipped", &skipped);
    tap_ok(ran && skips > 0, "fp16: %d steps are skipped", skips);
    free(skipped);
    set_all(&common, scale);
    for (size_t i = 0; i < sizeof offloads / sizeof offloads[0]; i++) {
        const char *dir = run(LLAMA, &common, offloads[i], 2, &ran_too);
        tap_ok(ran_too && same_run(base, dir, 2),
               "fp16, offload %zu: the same steps skipped, the same bits",
               i + 1);
    }
}

/* "auto" adds micro-batches up on the device if that fits, else on the host. */
static bool accumulates_on_host(
        const char *limit, bool *ran_out, double *device)
{
    static const char *const base[] = {
            "train.per_device_train_batch_size=4",
            "offload.optimizer=cpu",
            "zero.stage=1",
            "train.max_steps=1",
            "optim.warmup_steps=0",
            "checkpoint.save_strategy=no",
            "checkpoint.export=none",
            "device.host_memory_limit=1GiB",
            NULL};
    struct sets sets = {0};
    const char *dir = job_threads_dir();
    bool on_host = false;
    size_t a, i;
    json_t *arena, *span;
    set_all(&sets, base);
    set(&sets, limit);
    *ran_out = job_threads_run(LLAMA, sets.list, 1, dir) == ZD_OK;
    json_t *plan = plan_check_open(dir);
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    json_array_foreach(json_object_get(rank, "arenas"), a, arena)
    {
        if (a == 0)
            *device =
                    json_number_value(json_object_get(arena, "planned_bytes"));
        json_array_foreach(json_object_get(arena, "spans"), i, span) on_host |=
                !strcmp(json_string_value(json_object_get(span, "name")),
                        "offload.accumulators");
    }
    json_decref(plan);
    return on_host;
}

static void accumulates_where_it_fits(void)
{
    char limit[64];
    bool ran, ran_too;
    double most = 0, less = 0;
    bool first = accumulates_on_host("device.memory_limit=1GiB", &ran, &most);
    snprintf(limit, sizeof limit, "device.memory_limit=%.0f", most - 1);
    bool second = accumulates_on_host(limit, &ran_too, &less);
    tap_ok(ran && ran_too && !first && second && less < most,
           "micro-batches are added up on the device (%.0f bytes), or on the "
           "host where that does not fit (%.0f)",
           most, less);
}

/* --- resume --------------------------------------------------------------- */

/* Save at a ranks, resume at b: offloaded or not, the same. */
static void resumes_agree(int a, int b, const char *dtype)
{
    static const char *const offload[] = {
            "offload.optimizer=cpu", "zero.stage=3", NULL};
    static const char *const params[] = {
            "offload.optimizer=cpu", "offload.params=cpu", "zero.stage=3",
            NULL};
    static const char *const device[] = {"zero.stage=2", NULL};
    const char *dirs[2];
    bool ran = true, half;
    for (int i = 0; i < 2; i++) {
        struct sets first, second = {0};
        char resume[PATH_MAX];
        set_common(&first, dtype);
        set(&first, "run.stop_after=3");
        set_all(&first, i ? offload : device);
        const char *saved = run(LLAMA, &first, NULL, a, &half);
        ran = ran && half;
        set_common(&first, dtype);
        set_all(&second, first.list);
        set_all(&second, i ? (a > b ? params : device) : offload);
        snprintf(
                resume, sizeof resume, "run.resume=%s/out/checkpoint-000003",
                saved);
        set(&second, resume);
        dirs[i] = run(LLAMA, &second, NULL, b, &half);
        ran = ran && half;
    }
    tap_ok(ran && same_column(dirs[0], dirs[1], "loss", 0) &&
                   same_column(dirs[0], dirs[1], "grad_norm", 0) &&
                   same_model(dirs[0], dirs[1]),
           "%s: saved at %d ranks, resumed at %d, offloaded before or after",
           dtype, a, b);
}

/* --- thread sanitizer ----------------------------------------------------- */

/* Residual streams go to the host where there are layers between the first and
 * the last. */
#define DEEP "tests/fixtures/deep.toml"

static void jobs_race_nowhere(void)
{
    static const struct {
        const char *job, *sets[8];
    } jobs[] = {
            {LLAMA,
             {"offload.optimizer=cpu", "zero.stage=2", "offload.threads=2"}},
            {LLAMA,
             {"offload.optimizer=cpu", "offload.params=cpu", "zero.stage=3",
              "offload.threads=2"}},
            {LLAMA,
             {"offload.optimizer=cpu", "zero.stage=1", "offload.clipping=undo",
              "optim.name=adamw_8bit"}},
            {LLAMA,
             {"offload.optimizer=cpu", "zero.stage=3",
              "offload.accumulate=host",
              "train.per_device_train_batch_size=4"}},
            {DEEP,
             {"offload.optimizer=nvme", "offload.params=nvme",
              "offload.activations=cpu", "train.gradient_checkpointing=full",
              "zero.stage=3", "offload.nvme_path=/tmp", "offload.threads=2"}},
            {DEEP,
             {"offload.optimizer=cpu", "offload.params=cpu",
              "offload.activations=cpu", "train.gradient_checkpointing=full",
              "zero.stage=3", "optim.name=adam_mini_8bit",
              "offload.threads=2"}},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct sets common;
        bool ran;
        set_common(&common, i % 2 ? "bf16" : "fp32");
        if (strcmp(jobs[i].job, DEEP) == 0) /* has data of its own for that */
            set(&common, "data.val_split=0.0");
        set(&common, "device.streams=threads");
        set(&common, "offload.chunk_bytes=4096");
        run(jobs[i].job, &common, jobs[i].sets, 2, &ran);
        tap_ok(ran, "job %zu with threads for streams and updates", i + 1);
    }
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
