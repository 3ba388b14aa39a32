/* test_cuda - ZeRO on a GPU: every stage, optimizer and way to offload leaves
 * the bits of the CPU, because gradients are the same and so is all that is
 * done to them. A plain program that prints TAP. */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct scenario scenario(int stage, int world, enum dtype dtype)
{
    struct scenario s = scenario_default(stage, world, dtype);
    s.shape.layers = 3;
    s.shape.scale = 12;
    s.steps = 2;
    s.streams = STREAM_THREAD;
    s.workers = 2;
    s.offload.chunk_bytes = 4096; /* a tensor is several chunks */
    return s;
}

static void compare(const struct scenario *s, const char *what)
{
    struct scenario gpu = *s;
    gpu.backend = DEVICE_CUDA;
    struct outcome want = world_run(s), got = world_run(&gpu);
    /* a step that is skipped does not send all that is planned */
    bool is_sound = s->broken ? want.status == ZD_OK && got.status == ZD_OK
                              : outcome_sound(&want) && outcome_sound(&got);
    tap_ok(is_sound && outcome_same_run(&want, &got),
           "%s: stage %d, %d ranks, %s", what, s->options.stage, s->world,
           dtype_name(s->dtype));
    outcome_fini(&want);
    outcome_fini(&got);
}

/* --- stages --------------------------------------------------------------- */

static void compare_stages(void)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int world = 1; world <= 2; world++) {
            enum dtype dtype = (enum dtype)((stage + world) % 3);
            struct scenario s = scenario(stage, world, dtype);
            s.evaluates = stage == 3;
            s.shape.tied = stage % 2;
            compare(&s, "one micro-batch");
            s.accumulation = 2;
            compare(&s, "two micro-batches");
        }
    struct scenario s = scenario(3, 4, DTYPE_BF16);
    s.broken = true;
    compare(&s, "a step that is not finite");
}

/* Two replicas of two shards on the device; with states on the host tensor
 * parallelism beside shards, with parameters there too beside replicas. */
static void compare_meshes(void)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int host = 0; host <= (stage == 3) + 1; host++) {
            struct scenario s = scenario(stage, 4, (enum dtype)(stage % 3));
            s.replicate = host == 1 ? 1 : 2;
            s.tp = host ? 2 : 1;
            s.accumulation = 1 + host % 2;
            s.evaluates = host > 1;
            s.offload.optimizer = host ? OFFLOAD_CPU : OFFLOAD_NONE;
            s.offload.params = host > 1 ? OFFLOAD_CPU : OFFLOAD_NONE;
            compare(&s, "replicas, shards, tensor parallelism");
        }
}

/* --- optimizers ----------------------------------------------------------- */

static const struct optimizer {
    const char *label;
    enum optim_name name;
    enum optim_state_type state_type;
    double momentum;
    enum optim_master master;
} optimizers[] = {
        {"adamw_8bit", OPTIM_ADAMW, OPTIM_STATE_8BIT, 0, OPTIM_MASTER_FP32},
        {"bf16 states, no master", OPTIM_ADAMW, OPTIM_STATE_BF16, 0,
         OPTIM_MASTER_NONE},
        {"adam_mini", OPTIM_ADAM_MINI, OPTIM_STATE_FP32, 0, OPTIM_MASTER_FP32},
        {"adam_mini_8bit", OPTIM_ADAM_MINI, OPTIM_STATE_8BIT, 0,
         OPTIM_MASTER_FP32},
        {"lion_8bit", OPTIM_LION, OPTIM_STATE_8BIT, 0, OPTIM_MASTER_FP32},
        {"sgd", OPTIM_SGD, OPTIM_STATE_FP32, 0, OPTIM_MASTER_FP32},
        {"momentum", OPTIM_SGD, OPTIM_STATE_FP32, 0.9, OPTIM_MASTER_FP32},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static void compare_optimizers(void)
{
    for (int i = 0; i < OPTIMIZERS; i++) {
        struct scenario s = scenario(i % 4, 1 + i % 2, DTYPE_BF16);
        s.optim.name = optimizers[i].name;
        s.optim.state_type = optimizers[i].state_type;
        s.optim.momentum = optimizers[i].momentum;
        s.optim.master = optimizers[i].master;
        compare(&s, optimizers[i].label);
    }
}

/* --- memory of the host --------------------------------------------------- */

static void compare_paged(void)
{
    for (int world = 1; world <= 2; world++) {
        struct scenario s = scenario(world, world, DTYPE_BF16);
        s.optim.paged = true;
        s.spill_bytes = 40000;
        s.optim.state_type = world == 1 ? OPTIM_STATE_8BIT : OPTIM_STATE_FP32;
        compare(&s, "paged states");
        s.clears = true;
        compare(&s, "paged states, cleared");
        s.clears = false;
        struct outcome before = world_run(&s);
        s.goes_back = true;
        s.resume = &before;
        compare(&s, "paged states, loaded again");
        outcome_fini(&before);
    }
}

static void compare_offload(const char *folder)
{
    for (int variant = 0; variant < 12; variant++) {
        int world = variant < 8 ? 1 + variant % 2 : 1;
        bool params = variant / 2 % 2, undo = variant < 8 && variant % 3 == 1;
        enum offload_tier where = variant < 8 ? OFFLOAD_CPU : OFFLOAD_NVME;
        struct scenario s =
                scenario(params && world > 1 ? 3 : 2, world, DTYPE_BF16);
        s.offload.optimizer = where;
        s.offload.params = params ? where : OFFLOAD_NONE;
        s.offload.clipping = undo ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT;
        s.offload.nvme_path = folder;
        s.accumulation = variant / 4 % 2 ? 2 : 1;
        s.accumulate_on_host = s.accumulation > 1 && variant % 4;
        s.evaluates = params;
        if (variant == 6)
            s.optim.name = OPTIM_ADAM_MINI;
        compare(&s, where == OFFLOAD_CPU ? params ? "parameters on the host"
                                                  : "optimizer on the host"
                                         : "states in a file");
    }
    /* what is gathered has just come up from the update */
    struct scenario s = scenario(3, 2, DTYPE_BF16);
    s.offload.optimizer = OFFLOAD_CPU;
    compare(&s, "optimizer on the host");
}

int main(void)
{
    char folder[] = "/tmp/zerod-zero-cuda-XXXXXX";
    if (device_gpu_count(NULL) == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        return 0;
    }
    if (!mkdtemp(folder))
        return 1;
    compare_stages();
    compare_meshes();
    compare_optimizers();
    compare_paged();
    compare_offload(folder);
    rmdir(folder);
    return tap_done();
}
