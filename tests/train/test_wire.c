/* test_wire.c - bytes on the wire and bytes in memory are the plan's, exactly.
 *
 *   wire     every row of metrics.jsonl against plan.json, all stages, worlds 1
 * to 8, one and four micro-batches; and the plan against the table of the
 *            papers: stages 0 and 1 send 2 elements per parameter, stage 2 n +
 * 1, stage 3 at most 3 n, and hardly less in a model of many layers
 *            (Rajbhandari et al. 2020, section 7)
 *   memory   taken bytes against planned bytes, in the same runs */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Padded elements that a plan's bytes stand for: bytes / ((N-1)/N * size * n).
 */
static double elements(double bytes, int world, int times)
{
    return bytes * world / (world - 1) / sizeof(float) / times;
}

/* The table, given padded elements of one pass P. Worlds above 1. A unit that
 * is still there when it is used again is not gathered: `kept` bounds that
 * share. */
static bool follows_table(
        struct planned_wire wire, int world, int stage, int micros, double kept,
        double *padded)
{
    int reduces = stage <= 1 ? 1 : micros;
    double P = elements(wire.reduce_scatter, world, reduces);
    double gathered = elements(wire.all_gather, world, 1);
    if (*padded == 0)
        *padded = P;
    if (P != *padded) /* the same elements at every stage */
        return false;
    if (stage <= 2)
        return gathered == P;
    return gathered >= (1 - kept) * 2 * micros * P &&
           gathered <= 2 * micros * P;
}

static void check(
        const char *job, const char *optimizer, int world, int stage,
        int micros, double kept, double *padded)
{
    const char *dir = job_threads_dir();
    bool ran = job_runs(
            job, dir, world,
            "zero.stage=%d train.global_batch_size=%d "
            "train.gradient_accumulation_steps=%d "
            "train.per_device_train_batch_size=1 optim.name=%s "
            "train.max_steps=2 optim.warmup_steps=0 "
            "checkpoint.save_strategy=no checkpoint.export=none",
            stage, world * micros, micros, optimizer);
    json_t *plan = ran ? plan_check_open(dir) : NULL;
    if (!plan) {
        tap_ok(false, "world %d stage %d micros %d runs", world, stage, micros);
        return;
    }
    struct planned_wire wire = plan_check_wire(plan);
    tap_ok(plan_check_sent(plan, dir, 2),
           "world %d stage %d micros %d: sent as planned (%.0f + %.0f + %.0f)",
           world, stage, micros, wire.reduce_scatter, wire.all_gather,
           wire.all_reduce);
    tap_ok(plan_check_taken(plan),
           "world %d stage %d micros %d: memory taken as planned", world, stage,
           micros);
    if (world > 1)
        tap_ok(follows_table(wire, world, stage, micros, kept, padded),
               "world %d stage %d micros %d: the table holds", world, stage,
               micros);
    else
        tap_ok(wire.reduce_scatter + wire.all_gather + wire.all_reduce == 0,
               "one rank sends nothing");
    json_decref(plan);
    fs_remove_tree(dir);
}

int main(void)
{
    for (int world = 1; world <= 8; world++) {
        double padded = 0;
        for (int stage = 0; stage <= 3; stage++)
            for (int micros = 1; micros <= 4; micros += 3)
                check("tests/fixtures/llama_odd/job.toml", "adamw", world,
                      stage, micros, 0.8, &padded);
    }
    for (int stage = 0; stage <= 3; stage++) {
        static double padded;
        check("tests/train/deep.toml", "adamw", 2, stage, 1, 0.2, &padded);
        check("tests/train/deep.toml", "adamw", 2, stage, 4, 0.2, &padded);
    }
    /* block sums are added up over ranks from stage 1 on */
    for (int stage = 0; stage <= 3; stage++) {
        static double padded;
        check("tests/fixtures/llama_odd/job.toml", "adam_mini_8bit", 3, stage,
              1, 0.8, &padded);
    }
    return tap_done();
}
