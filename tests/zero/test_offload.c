/* test_offload - the optimizer's states on the host, and parameters too: the
 * bits are those of the run on the device, at every stage and world, the wire
 * is the planned one. A plain program that prints TAP, so that it can run under
 * a thread sanitizer, which finds a missing wait for a stream. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* Runs `s` as it is and without offload. */
static bool offload_changes_nothing(const struct scenario *s)
{
    struct scenario device = *s;
    device.offload = offload_options_default();
    device.accumulate_on_host = false;
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
    s.reduce_fp32 = row->reduce_fp32;
    s.offload.chunk_bytes = 2048; /* a tensor is several chunks */
    s.offload.clipping =
            variant % 7 < 3 ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT;
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
    for (int half = row->reduce_fp32; half <= 1; half++)
        for (int stage = 0; stage <= 3; stage++) {
            bool may = world == 1 || stage == 3;
            if ((row->params == ALWAYS && !may) ||
                (row->adds_on_host && stage < 2))
                continue;
            for (int k = 0; k < row->variants; k++) {
                struct scenario s = scenario(
                        row, stage, world, half ? DTYPE_BF16 : DTYPE_FP32,
                        variant++);
                ok &= offload_changes_nothing(&s);
            }
        }
    tap_ok(ok, "%s: %d ranks", row->name, world);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int w = 0; w < 3 && rows[i].worlds[w]; w++)
            try(&rows[i], rows[i].worlds[w]);
    return tap_done();
}
