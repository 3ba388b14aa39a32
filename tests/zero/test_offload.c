/* test_offload - the optimizer's states on the host, and parameters too: the
 * bits are those of the run on the device, at every stage and world, the wire
 * is the planned one. A plain program that prints TAP, so that it can run under
 * a thread sanitizer, which finds a missing wait for a stream. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* Under the thread sanitizer, which is ten times as slow, a third of the cases:
 * what differs in numbers alone shares nothing else between threads. */
#ifdef __SANITIZE_THREAD__
static const bool is_slow = true;
#else
static const bool is_slow = false;
#endif

/* Runs `s` as it is and without offload. */
static bool offload_changes_nothing(const struct scenario *s)
{
    struct scenario device = *s;
    device.offload = offload_options_default();
    device.accumulate_on_host = false;
    device.saves = 0;
    struct outcome want = world_run(&device), got = world_run(s);
    bool ok = outcome_sound(&want) && outcome_sound(&got);
    if (ok && !outcome_same_run(&want, &got)) {
        printf("# stage %d world %d %s: other bits\n", s->options.stage,
               s->world, dtype_name(s->dtype));
        ok = false;
    }
    outcome_fini(&want);
    outcome_fini(&got);
    return ok;
}

/* At all stages and in both types, or in bf16 alone. */
struct row {
    const char *name;
    int worlds[3];
    int variants;                           /* of each stage and type */
    enum { NEVER, IN_TURN, ALWAYS } params; /* on the host, where they may be */
    int micros;
    bool adds_on_host, reduce_fp32;
};

static const struct row rows[] = {
        {"optimizer on the host", {1, 2, 4}, 3, NEVER, 1},
        {"parameters on the host", {1, 2, 4}, 2, ALWAYS, 1},
        {"micro-batches added up on the device", {1, 2, 3}, 1, IN_TURN, 3},
        /* which adds what stages 2 and 3 add on the device */
        {"micro-batches added up on the host", {2, 3}, 1, IN_TURN, 3, true},
        {"gradients reduced in fp32", {1, 2, 3}, 1, IN_TURN, 1, false, true},
};

/* All of it, most, a layer or two. */
static const uint64_t undo_memory[4] = {
        OFFLOAD_UNDO_AUTO, 1 << 16, OFFLOAD_UNDO_AUTO, 1 << 14};

static struct scenario scenario(
        const struct row *row, int stage, int world, enum dtype dtype,
        int variant)
{
    struct scenario s = scenario_default(stage, world, dtype);
    bool may = world == 1 || stage == 3;
    scenario_vary(&s, variant);
    s.streams = variant % 3 ? STREAM_THREAD : STREAM_INLINE;
    s.workers = variant & 2 ? 3 : 1;
    s.clip = variant % 4 ? 1 : 1e9;
    s.steps = row->micros > 1 ? 2 : 3;
    s.accumulation = row->micros;
    s.accumulate_on_host = row->adds_on_host;
    /* gradients that the host adds up are summed over replicas one by one */
    if (world % 2 == 0 && (world == 4 || variant % 2) && !row->adds_on_host)
        s.replicate = 2;
    s.reduce_fp32 = row->reduce_fp32;
    s.offload.chunk_bytes = 2048; /* a tensor is several chunks */
    s.offload.clipping =
            variant % 7 < 3 ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT;
    s.offload.undo_memory = undo_memory[variant % 4];
    s.offload.optimizer = OFFLOAD_CPU;
    if (may &&
        (row->params == ALWAYS || (row->params == IN_TURN && variant % 3 == 2)))
        s.offload.params = OFFLOAD_CPU;
    return s;
}

static void try(const struct row *row, int world)
{
    int variant = world;
    bool ok = true;
    for (int half = is_slow || row->reduce_fp32; half <= 1; half++)
        for (int stage = 0; stage <= 3; stage++) {
            bool may = world == 1 || stage == 3;
            if ((row->params == ALWAYS && !may) ||
                (row->adds_on_host && stage < 2))
                continue;
            for (int k = 0; k < (is_slow ? 1 : row->variants); k++) {
                struct scenario s = scenario(
                        row, stage, world, half ? DTYPE_BF16 : DTYPE_FP32,
                        variant++);
                ok &= offload_changes_nothing(&s);
            }
        }
    tap_ok(ok, "%s: %d ranks", row->name, world);
}

/* --- optimizers ----------------------------------------------------------- */

static const struct optimizer_row {
    const char *name;
    enum optim_name optimizer;
    enum optim_state_type state_type;
    double momentum;
    enum optim_master master;
} optimizers[] = {
#define ROW_true(...)
#define ROW_false(word, ID, states)                                            \
    {word, OPTIM_##ID, OPTIM_STATE_##states, 0.9},
#define OPTIM_WORD(word, ID, states, is_paged) ROW_##is_paged(word, ID, states)
#include "optim/optimizers.inc"
        {"adamw, states in bf16", OPTIM_ADAMW, OPTIM_STATE_BF16},
        {"adamw_8bit, no fp32 master", OPTIM_ADAMW, OPTIM_STATE_8BIT, 0,
         OPTIM_MASTER_NONE},
        {"sgd without momentum", OPTIM_SGD, OPTIM_STATE_FP32},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static const struct tier {
    enum offload_tier optimizer, params;
} tiers[] = {
        {OFFLOAD_CPU, OFFLOAD_NONE},  {OFFLOAD_CPU, OFFLOAD_CPU},
        {OFFLOAD_NVME, OFFLOAD_NONE}, {OFFLOAD_NVME, OFFLOAD_CPU},
        {OFFLOAD_NVME, OFFLOAD_NVME},
};
enum { TIERS = sizeof tiers / sizeof *tiers };

/* A step that is clipped, one that is skipped, one that is as expected. */
static bool optimizer_goes(
        const struct optimizer_row *row, const struct tier *tier, int turn)
{
    static const uint64_t chunk_bytes[] = {1024, 0, 12000, 1 << 30};
    bool masters = row->master == OPTIM_MASTER_FP32;
    bool may_undo =
            tier->optimizer == OFFLOAD_CPU && row->optimizer != OPTIM_ADAM_MINI;
    struct scenario s = scenario_default(
            2 + turn % 2, 1 + turn % 2,
            masters ? (enum dtype)(turn % 3) : DTYPE_BF16);
    s.optim.name = row->optimizer;
    s.optim.state_type = row->state_type;
    s.optim.momentum = row->momentum;
    s.optim.master = row->master;
    s.streams = turn % 3 ? STREAM_THREAD : STREAM_INLINE;
    s.workers = 1 + turn % 4;
    s.accumulation = turn / 2 % 2 ? 3 : 1;
    s.accumulate_on_host = s.accumulation > 1 && turn / 4 % 2;
    s.replicate = !s.accumulate_on_host && turn % 4 == 1 ? 2 : 1;
    /* a step that is skipped sends no block sums of Adam-mini, and no new
     * parameters to replicas */
    bool sends = row->optimizer == OPTIM_ADAM_MINI || s.replicate > 1;
    s.broken_steps = sends ? 0 : 1 << 1;
    s.unclipped_steps = 1 << 2;
    s.clears = turn % 5 == 4;
    if (tier->optimizer == OFFLOAD_CPU) { /* a reader of each step's states */
        s.saves = 1 << 0 | 1 << 1 | 1 << 2;
        s.save_eighths = (size_t)(turn % 3) * 4;
    }
    s.offload.optimizer = tier->optimizer;
    s.offload.params = tier->params;
    s.offload.nvme_path = "/tmp";
    s.offload.chunk_bytes = chunk_bytes[turn % 4];
    if (may_undo && turn / 8 % 2)
        s.offload.clipping = OFFLOAD_CLIP_UNDO;
    s.offload.undo_memory = undo_memory[turn / 2 % 4];
    return offload_changes_nothing(&s);
}

static void try_optimizer(const struct optimizer_row *row, int first)
{
    bool ok = true;
    for (int turn = 0; turn < 16 * TIERS; turn += is_slow ? 21 : 7) {
        int i = first + turn;
        ok &= optimizer_goes(row, &tiers[i % TIERS], i / TIERS);
    }
    tap_ok(ok, "%s", row->name);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int w = 0; w < 3 && rows[i].worlds[w]; w++)
            try(&rows[i], rows[i].worlds[w]);
    for (int i = 0; i < OPTIMIZERS; i++)
        try_optimizer(&optimizers[i], i);
    return tap_done();
}
