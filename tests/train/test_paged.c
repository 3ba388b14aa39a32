/* test_paged.c - paged optimizers in whole jobs, under limits of device memory
 * that let all, some and none of the states stay there: the bits of the run
 * that is not paged, memory as planned, and a limit that is too small refused.
 */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

struct memory {
    json_int_t device, states, paged, staging; /* planned bytes */
    bool taken;                                /* as planned, on all ranks */
};

static json_int_t span_of(const json_t *arena, const char *name)
{
    const json_t *spans = json_object_get(arena, "spans");
    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *span = json_array_get(spans, i);
        if (!strcmp(json_string_at(span, "name"), name))
            return json_integer_at(span, "bytes");
    }
    return 0;
}

/* Of the last rank. */
static struct memory memory_of(const char *dir)
{
    json_t *plan = plan_check_open(dir);
    const json_t *ranks = json_object_get(plan, "ranks");
    const json_t *rank = json_array_get(ranks, json_array_size(ranks) - 1);
    struct memory memory = {.taken = plan && plan_check_taken(plan)};
    JSON_EACH_AT(a, arena, json_object_get(rank, "arenas")) {
        if (a == ARENA_DEVICE)
            memory.device = json_integer_at(arena, "planned_bytes");
        memory.states += span_of(arena, "zero.states");
        memory.paged += span_of(arena, "zero.paged");
        memory.staging += span_of(arena, "zero.paged.staging");
    }
    json_decref(plan);
    return memory;
}

static bool same_run(const char *a, const char *b)
{
    return same_training(a, b, STEPS) && same_model(a, b);
}

/* Bytes of a step up and down, on rank 0; none: no row tells any. */
static bool moves(const char *dir, double bytes)
{
    double *down, *up;
    int rows = job_threads_column(dir, "offload.down_bytes", &down);
    int up_rows = job_threads_column(dir, "offload.up_bytes", &up);
    bool right = rows == (bytes > 0 ? STEPS : 0) && rows == up_rows;
    for (int i = 0; i < rows; i++)
        right = right && down[i] == bytes && up[i] == bytes;
    free(down);
    free(up);
    return right;
}

struct job {
    const char *name; /* of the optimizer, without paged_ */
    int world, stage;
};

static bool run(
        const struct job *job, bool paged, json_int_t limit, const char *more,
        const char *dir)
{
    return job_runs(
            "tests/fixtures/deep.toml", dir, job->world,
            "optim.name=%s%s zero.stage=%d device.memory_limit=%lld "
            "train.gradient_checkpointing=full %s %s",
            paged ? "paged_" : "", job->name, job->stage, limit,
            paged ? "offload.chunk_bytes=2048" : "", more);
}

static void limits_of(const struct job *job)
{
    const char *plain = job_threads_dir(), *all = job_threads_dir();
    const json_int_t huge = (json_int_t)1 << 32;
    char what[80];
    ZD_PRINT(what, "%s, %d ranks, stage %d", job->name, job->world, job->stage);
    bool ran = run(job, false, huge, "", plain);
    struct memory whole = memory_of(plain);
    bool fits = run(job, true, whole.device, "", all);
    struct memory same = memory_of(all);
    tap_ok(ran && fits && same_run(plain, all) && same.device == whole.device &&
                   same.paged == 0 && same.staging == 0 && moves(all, 0),
           "%s: all fits, nothing differs", what);

    /* half of the states: as few as fit */
    const char *some = job_threads_dir();
    json_int_t limit = whole.device - whole.states / 2;
    ran = run(job, true, limit, "", some);
    struct memory half = memory_of(some);
    json_int_t slack = limit - half.device;
    tap_ok(ran && same_run(plain, some) && half.taken && half.paged > 0 &&
                   half.paged < whole.states && slack >= 0 &&
                   slack < half.staging &&
                   (job->world > 1 || moves(some, (double)half.paged)),
           "%s: %lld bytes of %lld spilled", what, (long long)half.paged,
           (long long)whole.states);

    const char *none = job_threads_dir();
    limit = whole.device - whole.states + half.staging + 64;
    ran = run(job, true, limit, "", none);
    struct memory out = memory_of(none);
    tap_ok(ran && same_run(plain, none) && out.taken && out.paged > 0 &&
                   out.states < whole.states / 20 + 64,
           "%s: all spilled", what);

    limit = whole.device - whole.states - 4096;
    ran = run(job, true, limit, "", job_threads_dir());
    const struct zd_error *error = zd_error_get();
    tap_ok(!ran && error->status == ZD_ERR_UNFIT &&
                   strstr(error->help, "\n--set offload.optimizer=cpu   ("),
           "%s: a limit that is too small names what fits", what);
    zd_error_clear();
}

int main(void)
{
    static const struct job jobs[] = {
            {"adamw_32bit", 1, 0},
            {"adamw_8bit", 2, 3},
            {"lion_8bit", 2, 1},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        limits_of(&jobs[i]);
    return tap_done();
}
