/* test_gpu_waits.c - how often a step holds the host for the GPU: for its
 * losses and its norm, which are the host's to clip and to skip by, and once a
 * micro-batch for the slot of a batch that went up two before. These reads, a
 * few bytes each, are all that is copied to or from memory that is not
 * page-locked, and count as a wait themselves. Collectives of NCCL hold nobody.
 * On the stand-in, which counts. */
#include "base/file/fs.h"
#include "tests/cuda/stand_in/stand_in.h"
#include "tests/support/job_threads.h"

#include <stdio.h>
#include <stdlib.h>

enum { SETS = 20, SAMPLES = 2 };

/* The steps of a short run, and how many more a longer has. The end of a run
 * waits once for each event that NCCL's back end has recorded, 64 at most, as
 * many as eight steps record. */
enum { SHORT = 2, SHORT_OF_NCCL = 8, MORE = 2 };

/* What a run of so many steps of so many micro-batches has added, all ranks
 * together. */
static struct zd_standin_counters added(
        int world, int steps, int micro_batches, const char *const *sets,
        bool *ran)
{
    char max_steps[32], batch[40];
    const char *all[SETS] = {
            "device.backend=cuda",
            "optim.warmup_steps=0",
            "data.cutoff_len=16",
            "control.socket=none",
            "eval.eval_strategy=no",
            "train.per_device_train_batch_size=2",
            "log.logging_steps=100",
            "checkpoint.save_strategy=no",
            "checkpoint.export=none",
            max_steps,
            batch};
    const char *dir = job_threads_dir();
    ZD_PRINT(max_steps, "train.max_steps=%d", steps);
    ZD_PRINT(
            batch, "train.global_batch_size=%d",
            SAMPLES * micro_batches * world);
    for (int count = 11; *sets && count < SETS - 1; sets++)
        all[count++] = *sets;
    struct zd_standin_counters before = zd_standin_counters();
    if (job_threads_run("tests/fixtures/llama/job.toml", all, world, dir) !=
        ZD_OK)
        zd_error_print(stderr, zd_error_get()), *ran = false;
    struct zd_standin_counters after = zd_standin_counters();
    fs_remove_tree(dir);
    after.host_waits -= before.host_waits;
    after.pageable_copies -= before.pageable_copies;
    return after;
}

/* reads: of a step, from the GPU. */
static void expect_waits(
        const char *what, int world, int reads, const char *const *sets)
{
    for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
        bool ran = true;
        int first = world > 1 ? SHORT_OF_NCCL : SHORT;
        struct zd_standin_counters few =
                added(world, first, micro_batches, sets, &ran);
        struct zd_standin_counters more =
                added(world, first + MORE, micro_batches, sets, &ran);
        int copies = (int)(more.pageable_copies - few.pageable_copies);
        int waits = (int)(more.host_waits - few.host_waits) - copies;
        int steps = world * MORE;
        tap_ok(ran && waits == steps * (2 + micro_batches) &&
                       copies == steps * reads,
               "%s, micro-batches: %d; in %d steps of a rank %d waits, "
               "%d reads",
               what, micro_batches, steps, waits, copies);
    }
}

int main(void)
{
    static const char *const none[] = {NULL};
    static const char *const eight_bit[] = {
            "train.dtype=bf16", "optim.name=adamw_8bit",
            "train.gradient_checkpointing=full", NULL};
    static const char *const offloaded[] = {
            "offload.optimizer=cpu", "offload.params=cpu",
            "offload.activations=cpu", "train.gradient_checkpointing=full",
            NULL};
    static const char *const stage_3[] = {
            "comm.backend=nccl", "zero.stage=3", "train.dtype=bf16", NULL};
    setenv("ZD_STANDIN_GPUS", "2", 1);
    expect_waits("on the GPU alone", 1, 2, none);
    expect_waits("in bf16, recomputed, 8-bit states", 1, 2, eight_bit);
    /* the norm is added up by the host, as gradients come */
    expect_waits(
            "optimizer, parameters and activations offloaded", 1, 1, offloaded);
    expect_waits("stage 3 over NCCL", 2, 2, stage_3);
    return tap_done();
}
