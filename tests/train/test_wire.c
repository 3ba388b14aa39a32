/* test_wire.c - bytes on the wire and bytes in memory are the plan's, exactly.
 *
 *   wire     every row of metrics.jsonl against plan.json, all stages, worlds 1
 * to 8, one and four micro-batches; and the plan against the table of the
 *            papers: stages 0 and 1 send 2 elements per parameter, stage 2 n +
 * 1, stage 3 at most 3 n, and hardly less in a model of many layers
 *            (Rajbhandari et al. 2020, section 7)
 *   memory   taken bytes against planned bytes, in the same runs */
#include "base/fs.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct wire {
    double reduce_scatter, all_gather, all_reduce;
};

static json_t *plan_of(const char *dir)
{
    char path[PATH_MAX];
    json_t *plan = NULL;
    snprintf(path, sizeof path, "%s/out/plan.json", dir);
    return json_parse_file(path, 1 << 24, &plan) == ZD_OK ? plan : NULL;
}

static struct wire planned_wire(const json_t *plan)
{
    const json_t *wire = json_object_get(plan, "wire_bytes_per_step");
    return (struct wire){
            json_number_value(json_object_get(wire, "reduce_scatter")),
            json_number_value(json_object_get(wire, "all_gather")),
            json_number_value(json_object_get(wire, "all_reduce"))};
}

/* Does every row have `want` under wire_bytes.`key`? */
static bool rows_have(const char *dir, const char *key, double want, int rows)
{
    char path[64];
    double *values;
    snprintf(path, sizeof path, "wire_bytes.%s", key);
    int count = job_threads_column(dir, path, &values);
    bool same = count == rows;
    for (int i = 0; i < count; i++)
        same = same && values[i] == want;
    free(values);
    return same;
}

static bool taken_as_planned(const json_t *plan)
{
    size_t r, a;
    json_t *rank, *arena;
    bool same = true;
    json_array_foreach(json_object_get(plan, "ranks"), r, rank)
    {
        json_array_foreach(json_object_get(rank, "arenas"), a, arena)
        {
            size_t i;
            json_t *span;
            json_int_t spans = 0, planned = json_integer_value(json_object_get(
                                          arena, "planned_bytes"));
            json_array_foreach(json_object_get(arena, "spans"), i, span)
                    spans += json_integer_value(json_object_get(span, "bytes"));
            same = same &&
                   planned == json_integer_value(
                                      json_object_get(arena, "taken_bytes")) &&
                   spans <= planned && planned <= spans + 64 * (json_int_t)i;
        }
    }
    return same && r > 0;
}

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
        struct wire wire, int world, int stage, int micros, double kept,
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
        const char *job, int world, int stage, int micros, double kept,
        double *padded)
{
    char sets[4][64];
    const char *dir = job_threads_dir();
    const char *list[] = {
            sets[0],
            sets[1],
            sets[2],
            sets[3],
            "train.max_steps=2",
            "optim.warmup_steps=0",
            "checkpoint.save_strategy=no",
            "checkpoint.export=none",
            NULL};
    snprintf(sets[0], 64, "zero.stage=%d", stage);
    snprintf(sets[1], 64, "train.global_batch_size=%d", world * micros);
    snprintf(sets[2], 64, "train.gradient_accumulation_steps=%d", micros);
    snprintf(sets[3], 64, "train.per_device_train_batch_size=1");
    bool ran = job_threads_run(job, list, world, dir) == ZD_OK;
    json_t *plan = ran ? plan_of(dir) : NULL;
    if (!plan) {
        tap_ok(false, "world %d stage %d micros %d runs", world, stage, micros);
        return;
    }
    struct wire wire = planned_wire(plan);
    tap_ok(rows_have(dir, "reduce_scatter", wire.reduce_scatter, 2) &&
                   rows_have(dir, "all_gather", wire.all_gather, 2) &&
                   rows_have(dir, "all_reduce", wire.all_reduce, 2),
           "world %d stage %d micros %d: sent as planned (%.0f + %.0f + %.0f)",
           world, stage, micros, wire.reduce_scatter, wire.all_gather,
           wire.all_reduce);
    tap_ok(taken_as_planned(plan),
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
                check("tests/fixtures/llama_odd/job.toml", world, stage, micros,
                      0.8, &padded);
    }
    for (int stage = 0; stage <= 3; stage++) {
        static double padded;
        check("tests/train/deep.toml", 2, stage, 1, 0.2, &padded);
        check("tests/train/deep.toml", 2, stage, 4, 0.2, &padded);
    }
    return tap_done();
}
