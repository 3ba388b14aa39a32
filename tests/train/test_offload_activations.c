/* test_offload_activations.c - offload.activations = "cpu" in whole jobs: the
 * bits of the run without it at every stage, with streams that are threads and
 * that are not; the bytes of memory and of copies are the plan's. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define JOB "tests/fixtures/deep.toml"
/* layers and elements of one input of that job; micro-batches of a step */
enum { LAYERS = 6, INPUT = 2 * 37 * 24, MICROS = 2, STEPS = 5 };

static bool same_run(const char *a, const char *b)
{
    return same_column(a, b, "loss", 0) && same_column(a, b, "grad_norm", 0) &&
           same_column(a, b, "eval_loss", 0) && same_model(a, b);
}

static bool column_is(const char *dir, const char *key, double want)
{
    double *values;
    int count = job_threads_column(dir, key, &values);
    bool same = count == STEPS;
    for (int i = 0; i < count; i++)
        same = same && values[i] == want;
    free(values);
    return same;
}

/* Bytes of every memory as planned; *pinned_out: planned bytes of the host's.
 */
static bool taken_as_planned(const char *dir, json_int_t *pinned_out)
{
    char path[PATH_MAX];
    json_t *plan, *rank, *arena;
    size_t r, a;
    bool same = true;
    snprintf(path, sizeof path, "%s/out/plan.json", dir);
    if (json_parse_file(path, 1 << 24, &plan) != ZD_OK)
        return false;
    json_array_foreach(json_object_get(plan, "ranks"), r, rank)
            json_array_foreach(json_object_get(rank, "arenas"), a, arena)
    {
        json_int_t planned =
                json_integer_value(json_object_get(arena, "planned_bytes"));
        const char *name = json_string_value(json_object_get(arena, "name"));
        if (!strcmp(name, arena_memory_name(ARENA_PINNED)))
            *pinned_out = planned;
        same = same && planned == json_integer_value(json_object_get(
                                          arena, "taken_bytes"));
    }
    json_decref(plan);
    return same;
}

static void stage_and_streams(int world, int stage)
{
    static const char *const modes[] = {"inline", "threads"};
    char stage_set[32], streams_set[40];
    const double bytes = 4.0 * (LAYERS - 2) * INPUT;
    const char *plain = job_threads_dir();
    const char *plain_sets[] = {
            stage_set, "train.gradient_checkpointing=none", NULL};
    snprintf(stage_set, sizeof stage_set, "zero.stage=%d", stage);
    bool plain_ran = job_threads_run(JOB, plain_sets, world, plain) == ZD_OK;
    for (int m = 0; m < 2; m++) {
        json_int_t pinned = 0;
        const char *dir = job_threads_dir();
        const char *sets[] = {
                stage_set, streams_set, "offload.activations=cpu",
                "train.gradient_checkpointing=full", NULL};
        snprintf(
                streams_set, sizeof streams_set, "device.streams=%s", modes[m]);
        bool ran = job_threads_run(JOB, sets, world, dir) == ZD_OK;
        tap_ok(plain_ran && ran && same_run(plain, dir),
               "%d ranks, stage %d, %s streams: the same bits", world, stage,
               modes[m]);
        bool planned = taken_as_planned(dir, &pinned);
        tap_ok(planned && (double)pinned == bytes &&
                       column_is(
                               dir, "offload.activations.down_bytes",
                               bytes * MICROS) &&
                       column_is(
                               dir, "offload.activations.up_bytes",
                               bytes * MICROS),
               "the bytes planned, %lld of them on the host",
               (long long)pinned);
    }
}

/* A frozen part below costs no copies; a resumed run copies as before. */
static void frozen_and_resumed(void)
{
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *plain = job_threads_dir();
    const char *sets[] = {
            "offload.activations=cpu", "train.gradient_checkpointing=full",
            "train.freeze=[\"embed_tokens\", \"layers.0.\"]",
            "run.stop_after=5", NULL};
    bool ran = job_threads_run(JOB, sets, 1, whole) == ZD_OK;
    sets[3] = "run.stop_after=2";
    ran = ran && job_threads_run(JOB, sets, 1, cut) == ZD_OK;
    sets[3] = "run.stop_after=5";
    ran = ran && job_threads_run(JOB, sets, 1, cut) == ZD_OK;
    sets[0] = "offload.activations=none";
    ran = ran && job_threads_run(JOB, sets, 1, plain) == ZD_OK;
    tap_ok(ran && same_run(plain, whole) &&
                   column_is(
                           whole, "offload.activations.down_bytes",
                           4.0 * (LAYERS - 3) * INPUT * MICROS),
           "layers below all that trains send nothing");
    tap_ok(ran && same_run(plain, cut), "a resumed run has the same bits");
}

static void automatic_mode(void)
{
    const char *dir = job_threads_dir(), *plain = job_threads_dir();
    const char *sets[] = {"offload.activations=cpu", NULL};
    const char *none[] = {NULL};
    bool ran = job_threads_run(JOB, sets, 1, dir) == ZD_OK &&
               job_threads_run(JOB, none, 1, plain) == ZD_OK;
    /* sqrt: three segments of two layers */
    tap_ok(ran && same_run(plain, dir) &&
                   column_is(
                           dir, "offload.activations.down_bytes",
                           4.0 * INPUT * MICROS),
           "auto chooses among the modes that recompute");
}

static void nothing_recomputed(void)
{
    const char *sets[] = {
            "offload.activations=cpu", "train.gradient_checkpointing=none",
            NULL};
    enum zd_status status = job_threads_run(JOB, sets, 1, job_threads_dir());
    tap_ok(status == ZD_ERR_CONFIG,
           "a mode that recomputes nothing is refused");
    zd_error_clear();
}

int main(void)
{
    for (int world = 1; world <= 2; world++)
        for (int stage = 0; stage <= 3; stage++)
            stage_and_streams(world, stage);
    frozen_and_resumed();
    automatic_mode();
    nothing_recomputed();
    return tap_done();
}
