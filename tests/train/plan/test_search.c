/* test_search.c - what a search finds against a search of everything, and the
 * known models. */
#include "base/must.h"
#include "train/plan/search.h"

#include "plan_job.h"

#include <criterion/criterion.h>
#include <stdlib.h>

struct small {
    int world, samples, layers;
    enum offload_tier nvme; /* OFFLOAD_NVME: the job names a folder */
    unsigned allow;
    int percent; /* of what the job takes when everything is on the device */
    enum optim_name optimizer;
    enum dtype dtype;
};

static struct train_job job_of(const struct small *space)
{
    struct train_job job = plan_job(64, 192, space->layers, 64);
    job.train.per_device_train_batch_size = space->samples;
    job.train.gradient_accumulation_steps = 1;
    job.train.dtype = space->dtype;
    job.optim.name = space->optimizer;
    job.zero.stage = 1;
    job.train.gradient_checkpointing.mode = CHECKPOINTING_NONE;
    if (space->nvme)
        job.offload.nvme_path = "folder";
    return job;
}

static uint64_t device_of(const struct train_job *job, int world)
{
    struct job_plan plan;
    cr_assert_eq(job_plan_build(job, world, 0, NULL, &plan), ZD_OK);
    uint64_t bytes = plan.arena.bytes[ARENA_DEVICE];
    job_plan_fini(&plan);
    return bytes;
}

/* Time of one candidate with micro-batches of B; false: it does not fit. Each
 * is planned whole, without what the search leaves out. */
static bool time_of(
        const struct plan_search *search,
        const struct plan_candidate *candidate, int samples, int B, double *out)
{
    struct job_plan plan;
    struct train_job job = candidate_job(search->job, candidate);
    struct plan_fit fit = {
            .job = &job,
            .plan = &plan,
            .choice = {
                    .checkpointing = job.train.gradient_checkpointing,
                    .by_layer =
                            job.train.accumulation_order == ORDER_BREADTH_FIRST,
                    .B = B,
                    .A = samples / B}};
    if (plan_begin(&job, search->world, 0, NULL, &plan) != ZD_OK) {
        zd_error_clear(); /* tp_size does not fit the model */
        return false;
    }
    fit.limits = plan_limits_of(&job, &plan);
    bool fits = plan_try_choice(&fit) == ZD_OK && fit.fits;
    zd_error_clear();
    if (fits && search->disk)
        fits = plan.arena.bytes[ARENA_DISK] <= search->disk;
    if (fits) {
        *out = plan_predict(&plan, search->machine).step_seconds;
    }
    job_plan_fini(&plan);
    return fits;
}

/* The fastest of all candidates and all sizes; -1: none fits. */
static double best_of_all(const struct plan_search *search, int samples)
{
    struct plan_space space = plan_space_fit(search->job, search->allow);
    struct plan_candidate candidate = {{0}};
    double best = -1, seconds = 0;
    space.options[CHOOSE_BATCH] = 0;
    do {
        if (!candidate_is_sound(search->job, search->world, &candidate))
            continue;
        struct train_job job = candidate_job(search->job, &candidate);
        int own = samples * job.parallel.cp * job.parallel.tp;
        for (int B = 1; B <= own; B++)
            if (own % B == 0 && time_of(search, &candidate, own, B, &seconds) &&
                (best < 0 || seconds < best))
                best = seconds;
    } while (candidate_next(&space, &candidate));
    return best;
}

static void check(const struct small *space, const char *machine)
{
    struct train_job job = job_of(space);
    struct plan_search search = {
            .job = &job,
            .world = space->world,
            .allow = space->allow,
            .machine = plan_machine_find(machine)};
    ZD_FREED struct plan_found *found = NULL;
    int count = 0;
    uint64_t bytes = device_of(&job, space->world);
    job.device.memory_limit = bytes * (uint64_t)space->percent / 100;
    job.device.host_memory_limit = bytes * 3 / 2;
    double best = best_of_all(&search, space->samples);
    enum zd_status status = plan_search_fits(&search, &found, &count);
    if (best < 0) {
        cr_expect_eq(status, ZD_ERR_UNFIT);
        zd_error_clear();
    } else {
        cr_assert_eq(status, ZD_OK, "%s", zd_error_get()->what);
        cr_assert_geq(count, 1);
        cr_expect_float_eq(
                found[0].predicted.step_seconds, best, 1e-9 * best,
                "world %d, %d samples, %d %%: found %.9g, the best is %.9g",
                space->world, space->samples, space->percent,
                found[0].predicted.step_seconds, best);
        for (int i = 0; i < count; i++)
            cr_expect_leq(found[i].device, job.device.memory_limit);
    }
    json_decref(job.model.config);
}

Test(search, no_candidate_that_fits_is_faster_than_the_first)
{
    static const int worlds[] = {1, 2, 3}, percents[] = {120, 70, 40, 22, 8};
    static const enum optim_name names[] = {OPTIM_ADAMW, OPTIM_LION, OPTIM_SGD};
    static const int samples[] = {12, 5, 8, 4};
    const bool all = getenv("ZEROD_TEST_ALL"); /* else a world of each pair */
    for (size_t w = 0; w < 3; w++)
        for (size_t p = 0; p < 5; p++)
            for (int k = 0; k < 4; k++) {
                bool is_last = k == 3;
                if (!all && (p + (size_t)k) % 3 != w)
                    continue;
                const struct small space = {
                        .world = worlds[w],
                        .samples = samples[k],
                        .layers = k == 1 ? 5 : 3,
                        .nvme = k == 2 ? OFFLOAD_NVME : OFFLOAD_NONE,
                        .allow = is_last ? PLAN_ALLOW_OPTIM | PLAN_ALLOW_DTYPE
                                 : k % 2 ? PLAN_ALLOW_MESH
                                         : 0,
                        .percent = percents[p],
                        .optimizer = names[k % 3],
                        .dtype = is_last ? DTYPE_FP32 : DTYPE_BF16};
                check(&space, k % 2 ? "cpu" : "h100");
            }
}

/* The second micro-batch stands for those between: with few of them that is
 * compared with laying out all. */
Test(search, few_micro_batches_stand_for_many)
{
    struct train_job job = plan_job(64, 192, 4, 64);
    struct job_plan plan;
    uint64_t bytes[2];
    job.zero.stage = 3;
    for (int few = 0; few < 2; few++) {
        struct job_choice choice = {
                .B = 1, .A = 9, .moves_most = few ? PLAN_MOVES_MOST : 0};
        cr_assert_eq(plan_begin(&job, 4, 0, NULL, &plan), ZD_OK);
        cr_assert_eq(job_plan_try(&job, &choice, &plan), ZD_OK);
        cr_expect_eq(plan.accumulation, 9);
        bytes[few] =
                plan.arena.bytes[ARENA_DEVICE] + plan.arena.bytes[ARENA_HOST];
        job_plan_fini(&plan);
    }
    cr_expect_eq(bytes[0], bytes[1]);
    json_decref(job.model.config);
}

/* Does a plan of the job fit, and does the search say so too? *pieces_out: of
 * the MLP, in the plan. */
static bool fits(const struct train_job *job, int *pieces_out)
{
    struct plan_search search = {.job = job, .world = 1};
    struct plan_query query = plan_query_job(&search);
    ZD_FREED struct plan_found *found = NULL;
    struct job_plan plan;
    int count;
    bool fits = job_plan_build(job, 1, 0, NULL, &plan) == ZD_OK;
    *pieces_out = fits ? plan.shape.mlp_pieces : 0;
    cr_expect(!fits || plan.chose_pieces == (*pieces_out > 1));
    if (fits)
        job_plan_fini(&plan);
    cr_assert(fits || zd_error_get()->status == ZD_ERR_UNFIT);
    zd_error_clear();
    cr_assert_eq(plan_search_run(&query, &found, &count), ZD_OK);
    cr_expect_eq(count > 0, fits);
    return fits;
}

/* Of 4096 tokens: the fewest pieces that fit, and not shorter than 512. */
Test(search, auto_cuts_the_mlp_only_as_far_as_it_must)
{
    struct train_job job = plan_job(64, 1024, 4, 256), given = job;
    int pieces;
    job.train.per_device_train_batch_size = 16;
    job.device.host_memory_limit = 1ull << 40;
    for (int mode = 0; mode < 2; mode++) {
        uint64_t least = 0;
        job.train.gradient_checkpointing.mode =
                mode ? CHECKPOINTING_FULL : CHECKPOINTING_AUTO;
        for (int p = 1; p <= 8; p *= 2) {
            given = job;
            given.train.tiled_mlp = p;
            given.train.gradient_checkpointing.mode = CHECKPOINTING_FULL;
            job.device.memory_limit = least = device_of(&given, 1);
            cr_expect(fits(&job, &pieces), "%d", p);
            cr_expect(mode ? pieces == p : (pieces > 1) == (p > 1));
        }
        job.device.memory_limit = least - 1;
        cr_expect(!fits(&job, &pieces), "%d", pieces);
        job.device.memory_limit = 0;
    }
    given.device.memory_limit = device_of(&given, 1);
    given.train.tiled_mlp = 1;
    struct job_plan plan;
    cr_assert_eq(job_plan_build(&given, 1, 0, NULL, &plan), ZD_ERR_UNFIT);
    cr_expect(strstr(zd_error_get()->help, "--set train.tiled_mlp=auto"));
    json_decref(job.model.config);
}
