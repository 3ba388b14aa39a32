/* test_gpu_memory.c - what the plan says of a GPU's memory, and of page-locked
 * memory of the host, is what its driver has been asked for: to the byte, when
 * the run begins and when it has ended. On the stand-in, which counts. */
#include "base/file/fs.h"
#include "tests/cuda/stand_in/stand_in.h"
#include "tests/support/job_threads.h"

#include <stdlib.h>

enum { SETS = 20, CONTEXT = 64 << 20, GRAIN = 2 << 20 };

struct sums { /* of all ranks, bytes */
    uint64_t planned_device, planned_pinned, driver_device, driver_pinned;
    bool held_is_planned; /* of each, without what libraries are allowed */
};

struct seen {
    struct sums last;
    int times, wrong;
};

static uint64_t in_grains(uint64_t bytes)
{
    return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static void look(void *ctx, const struct train_rank_report *ranks, int count)
{
    struct seen *seen = ctx;
    struct zd_standin_counters counters = zd_standin_counters();
    struct sums sums = {
            .driver_device = counters.device_bytes,
            .driver_pinned = counters.pinned_bytes,
            .held_is_planned = true};
    ZD_EACH(rank, ranks, count) {
        uint64_t bytes = in_grains(rank->planned[ARENA_DEVICE]);
        sums.planned_device += bytes;
        sums.planned_pinned += rank->planned[ARENA_PINNED];
        if (rank->gpu.held != bytes + CONTEXT)
            sums.held_is_planned = false;
    }
    bool is_right = sums.planned_device == sums.driver_device &&
                    sums.planned_pinned == sums.driver_pinned &&
                    sums.held_is_planned;
    seen->wrong += !is_right;
    seen->times++;
    seen->last = sums;
}

static void taken(const char *what, int world, const char *const *sets)
{
    struct seen seen = {0};
    const struct train_observer observer = {.ctx = &seen, .ranks = look};
    const char *all[SETS] = {
            "device.backend=cuda",       "train.max_steps=2",
            "train.global_batch_size=4", "optim.warmup_steps=0",
            "data.cutoff_len=16",        "control.socket=none"};
    const char *dir = job_threads_dir();
    for (int count = 6; *sets && count < SETS - 1; sets++)
        all[count++] = *sets;
    enum zd_status status = job_threads_run_observed(
            "tests/fixtures/llama/job.toml", all, world, dir, &observer);
    if (status != ZD_OK)
        zd_error_print(stderr, zd_error_get());
    struct zd_standin_counters after = zd_standin_counters();
    tap_ok(status == ZD_OK && seen.times >= 2 && seen.wrong == 0,
           "%s: planned %llu, taken %llu of the GPU; %llu, %llu page-locked",
           what, (unsigned long long)seen.last.planned_device,
           (unsigned long long)seen.last.driver_device,
           (unsigned long long)seen.last.planned_pinned,
           (unsigned long long)seen.last.driver_pinned);
    tap_ok(after.device_bytes == 0 && after.pinned_bytes == 0,
           "%s: all of it is given back", what);
    fs_remove_tree(dir);
}

int main(void)
{
    static const struct {
        const char *what;
        int world;
        const char *sets[4];
    } cases[] = {
            {"a plain job", 1, {"train.dtype=bf16"}},
            {"samples and evaluations", 1, {"control.socket=auto"}},
            {"optimizer offloaded", 1, {"offload.optimizer=cpu"}},
            {"all offloaded",
             1,
             {"offload.optimizer=cpu", "offload.params=cpu",
              "offload.activations=cpu"}},
            {"paged states", 1, {"optim.name=paged_adamw"}},
            {"two ranks, stage 0", 2, {"zero.stage=0"}},
            {"two ranks, stage 1", 2, {"zero.stage=1"}},
            {"two ranks, stage 2", 2, {"zero.stage=2", "train.dtype=bf16"}},
            {"two ranks, stage 3", 2, {"zero.stage=3"}},
            {"two ranks, stage 3, offloaded",
             2,
             {"zero.stage=3", "offload.optimizer=cpu"}},
    };
    setenv("ZD_STANDIN_GPUS", "2", 1);
    setenv("ZD_STANDIN_CONTEXT", "64M", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        taken(cases[i].what, cases[i].world, cases[i].sets);
    return tap_done();
}
