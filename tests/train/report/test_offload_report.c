/* test_offload_report.c - what a job that offloads tells of each step: who
 * waited how long, and which bytes were moved. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/train/offload_case.h"

#include <stdlib.h>

static double *column(const char *dir, const char *key, bool *ok)
{
    double *values = NULL;
    *ok = job_threads_column(dir, key, &values) == STEPS && *ok;
    return values;
}

/* Nobody waits for less than nothing or longer than the step. */
static bool waits_add_up(const char *dir)
{
    static const char *const keys[] = {
            "offload.wait_seconds.down", "offload.wait_seconds.host_step",
            "offload.wait_seconds.up", "offload.wait_seconds.activations"};
    bool ok = true;
    double sum[STEPS] = {0}, *step = column(dir, "step_seconds", &ok);
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
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
    static const char *const tiers[][5] = {
            {"offload.optimizer=cpu"},
            {"offload.optimizer=cpu", "offload.params=cpu",
             "offload.activations=cpu", "train.gradient_checkpointing=full"},
            {"offload.optimizer=nvme", "offload.params=nvme",
             "offload.nvme_path=/tmp"}};
    for (int world = 1; world <= 2; world++)
        for (int i = 0; i < 3; i++) {
            struct sets common;
            bool ran;
            set_common(&common, "bf16");
            const char *dir = run(LLAMA, &common, tiers[i], world, &ran);
            tap_ok(ran && waits_add_up(dir),
                   "world %d, tier %d: the waits of a step are a part of it",
                   world, i);
            tap_ok(each_step_moves_the_same(dir, "offload.down_bytes") &&
                           (i == 0 ||
                            each_step_moves_the_same(dir, "offload.up_bytes")),
                   "world %d, tier %d: each row has the bytes of one step",
                   world, i);
            fs_remove_tree(dir);
        }
}

int main(void)
{
    reports_are_of_steps();
    return tap_done();
}
