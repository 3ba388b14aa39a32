/* test_offload.c - what a job of five steps with offload tells: that its bits
 * and bytes are those without, and as planned, is in same_runs.txt. */
#include "base/must.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

#define LLAMA "tests/fixtures/llama_odd/job.toml"
#define HOST  "offload.optimizer=cpu "

/* "auto" adds micro-batches up on the device if that fits, else on the host.
 * *device_out: bytes planned there. */
static bool accumulates_on_host(double limit, double *device_out)
{
    const char *dir = job_threads_dir();
    bool on_host = false;
    bool ran = job_runs(
            LLAMA, dir, 1,
            "train.per_device_train_batch_size=4 " HOST
            "zero.stage=1 train.max_steps=1 optim.warmup_steps=0 "
            "checkpoint.save_strategy=no checkpoint.export=none "
            "device.host_memory_limit=1GiB device.memory_limit=%.0f",
            limit);
    json_auto_t *plan = plan_check_open(dir);
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    const json_t *arenas = json_object_get(rank, "arenas");
    *device_out = ran ? (double)json_integer_at(
                                json_array_get(arenas, 0), "planned_bytes")
                      : 0;
    JSON_EACH(arena, arenas)
        JSON_EACH(span, json_object_get(arena, "spans"))
            on_host |= strcmp(json_string_at(span, "name"),
                              "offload.accumulators") == 0;
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
        ZD_FREED double *wait = column(dir, keys[k], &ok);
        for (int i = 0; i < STEPS && ok; i++) {
            ok = wait[i] >= 0;
            sum[i] += wait[i];
        }
    }
    for (int i = 0; i < STEPS && ok; i++)
        ok = sum[i] <= step[i];
    free(step);
    return ok;
}

/* What evaluations and saves move between steps is in no row. */
static void reports_are_of_steps(void)
{
    static const char *const tiers[] = {
            HOST,
            HOST "offload.params=cpu offload.activations=cpu "
                 "train.gradient_checkpointing=full",
            "offload.optimizer=nvme offload.params=nvme "
            "offload.nvme_path=/tmp"};
    for (int world = 1; world <= 2; world++)
        for (int i = 0; i < 3; i++) {
            const char *dir = job_threads_dir();
            bool ran = job_runs(
                    LLAMA, dir, world,
                    "train.dtype=bf16 train.max_steps=5 data.val_split=0.2 "
                    "eval.eval_strategy=steps eval.eval_steps=2 "
                    "eval.max_batches=1 checkpoint.save_strategy=steps "
                    "checkpoint.save_steps=3 %s",
                    tiers[i]);
            tap_ok(ran && waits_add_up(dir),
                   "world %d, %s: the waits of a step are a part of it", world,
                   tiers[i]);
        }
}

int main(void)
{
    accumulates_where_it_fits();
    reports_are_of_steps();
    return tap_done();
}
