/* test_offload_activations.c - offload.activations = "cpu" in whole jobs: the
 * bytes of memory and of copies are the plan's. That it changes no bit is in
 * same_runs.txt. */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <stdlib.h>
#include <string.h>

/* layers and elements of one input of that job; micro-batches of a step */
enum { LAYERS = 6, INPUT = 2 * 37 * 24, MICROS = 2, STEPS = 5 };

#define run(dir, world, ...)                                                   \
    job_runs("tests/fixtures/deep.toml", dir, world, __VA_ARGS__)
#define FULL "train.gradient_checkpointing=full "

static bool same_run(const char *a, const char *b)
{
    return same_training(a, b, 0) && same_column(a, b, "eval_loss", 0) &&
           same_model(a, b);
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

/* Planned bytes of the host's page-locked memory; -1: not all memory was taken
 * as planned. */
static json_int_t pinned_bytes(const char *dir)
{
    json_t *arena, *plan = plan_check_open(dir);
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    json_int_t pinned = -1;
    size_t a;
    json_array_foreach(
            json_object_get(rank, "arenas"), a,
            arena) if (!strcmp(json_string_at(arena, "name"),
                               arena_memory_name(ARENA_PINNED))) pinned =
            json_integer_at(arena, "planned_bytes");
    bool taken = plan && plan_check_taken(plan);
    json_decref(plan);
    return taken ? pinned : -1;
}

static void bytes_are_planned(int world, int stage)
{
    const double bytes = 4.0 * (LAYERS - 2) * INPUT;
    const char *dir = job_threads_dir();
    bool ran = run(
            dir, world, "zero.stage=%d offload.activations=cpu " FULL, stage);
    tap_ok(ran && (double)pinned_bytes(dir) == bytes &&
                   column_is(
                           dir, "offload.activations.down_bytes",
                           bytes * MICROS) &&
                   column_is(
                           dir, "offload.activations.up_bytes", bytes * MICROS),
           "%d ranks, stage %d: the bytes planned, %.0f of them on the host",
           world, stage, bytes);
}

/* A frozen part below costs no copies; a resumed run copies as before. */
static void frozen_and_resumed(void)
{
#define FROZEN FULL "train.freeze=[\"embed_tokens\",\"layers.0.\"] "
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *plain = job_threads_dir();
    bool ran = run(whole, 1, FROZEN "offload.activations=cpu") &&
               run(cut, 1, FROZEN "offload.activations=cpu run.stop_after=2") &&
               run(cut, 1, FROZEN "offload.activations=cpu") &&
               run(plain, 1, FROZEN);
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
    bool ran =
            run(dir, 1, "offload.activations=cpu") && run(plain, 1, "%s", "");
    /* sqrt: three segments of two layers */
    tap_ok(ran && same_run(plain, dir) &&
                   column_is(
                           dir, "offload.activations.down_bytes",
                           4.0 * INPUT * MICROS),
           "auto chooses among the modes that recompute");
}

static void nothing_recomputed(void)
{
    bool ran =
            run(job_threads_dir(), 1,
                "offload.activations=cpu train.gradient_checkpointing=none");
    tap_ok(!ran, "a mode that recomputes nothing is refused");
    zd_error_clear();
}

int main(void)
{
    bytes_are_planned(1, 0);
    bytes_are_planned(2, 3);
    frozen_and_resumed();
    automatic_mode();
    nothing_recomputed();
    return tap_done();
}
