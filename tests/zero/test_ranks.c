/* test_ranks - ZeRO over several ranks that are threads of this process: stages
 * agree to the bit, the wire is what the plan says, state moves between worlds.
 * A plain program that prints TAP, so that it can run under a thread sanitizer.
 */
#include "base/must.h"
#include "world.h"

#include <math.h>
#include <stdlib.h>

/* Types differ in arithmetic, not in who waits for whom. */
#ifdef __SANITIZE_THREAD__
static const enum dtype last_type = DTYPE_FP32;
#else
static const enum dtype last_type = DTYPE_FP16;
#endif

/* --- comparing ------------------------------------------------------------ */

static double tolerance; /* of near_state */

static bool near_state(const struct outcome *a, const struct outcome *b)
{
    for (size_t i = 0; i < a->total; i++)
        if (!(fabs((double)a->master[i] - (double)b->master[i]) <= tolerance))
            return false;
    return true;
}

/* Are all runs sound, and the others what `agrees` wants next to the first? */
static bool runs_agree(
        const struct scenario *runs, int count,
        bool (*agrees)(const struct outcome *a, const struct outcome *b))
{
    struct outcome first = world_run(&runs[0]);
    bool ok = outcome_sound(&first);
    for (int i = 1; i < count; i++) {
        struct outcome outcome = world_run(&runs[i]);
        ok &= outcome_sound(&outcome);
        if (!agrees(&first, &outcome)) {
            printf("# stage %d differs\n", runs[i].options.stage);
            ok = false;
        }
        outcome_fini(&outcome);
    }
    outcome_fini(&first);
    return ok;
}

/* Ranks, how many of them hold the same shard, and of those of tensor
 * parallelism. */
struct layout {
    int world, replicate, tp;
};

static bool stages_agree(
        struct layout layout, enum dtype dtype, int variant, bool reduce_fp32)
{
    struct scenario runs[4];
    for (int stage = 0; stage <= 3; stage++) {
        struct scenario *s = &runs[stage];
        *s = scenario_default(stage, layout.world, dtype);
        scenario_vary(s, variant);
        s->replicate = layout.replicate;
        s->tp = layout.tp;
        s->reduce_fp32 = reduce_fp32;
    }
    return runs_agree(runs, 4, outcome_same_run);
}

static void test_stages(void)
{
    static const struct layout layouts[] = {{1, 1}, {2, 1},    {3, 1},
                                            {2, 2}, {5, 1},    {4, 2},
                                            {6, 3}, {6, 1, 3}, {8, 2, 2}};
    int variant = 0;
    for (enum dtype type = DTYPE_FP32; type <= last_type; type++) {
        for (int i = 0; i < 9; i++) {
            bool ok = true;
            for (int k = 0; k < 5; k++)
                ok &= stages_agree(
                        layouts[i], type, variant++,
                        type != DTYPE_FP32 && k == 4);
            tap_ok(ok,
                   "stages agree to the bit: %d ranks, replicate %d, tp %d, %s",
                   layouts[i].world, layouts[i].replicate, layouts[i].tp,
                   dtype_name(type));
        }
    }
}

/* Several micro-batches: the order of the sums differs between the stages, the
 * wire is still the planned one. */
static void test_accumulation(void)
{
    for (enum dtype type = DTYPE_FP32; type <= last_type; type++) {
        for (int world = 1; world <= 4; world += 3) {
            struct scenario runs[4];
            for (int stage = 0; stage <= 3; stage++) {
                struct scenario *s = &runs[stage];
                *s = scenario_default(stage, world, type);
                s->accumulation = 3;
                s->replicate = type == DTYPE_BF16 && world > 1 ? 2 : 1;
                scenario_vary(s, stage + world);
                s->shape.tied = true;
                s->shape.freeze_low = false;
            }
            /* a 16-bit parameter or gradient that falls on the other side is
             * read in the next step */
            tolerance = type == DTYPE_FP32 ? 1e-4 : 2e-3;
            tap_ok(runs_agree(runs, 4, near_state),
                   "several micro-batches are near at all stages");
        }
    }
}

/* Micro-batches that take turns in each unit are one for zero: at all stages
 * the bits that stage 1 makes of one after the other. */
static void test_by_layer(void)
{
    for (enum dtype type = DTYPE_FP32; type <= last_type; type++)
        for (int world = 1; world <= 4; world += 3) {
            struct scenario runs[5];
            for (int i = 0; i <= 4; i++) {
                runs[i] = scenario_default(i ? i - 1 : 1, world, type);
                runs[i].accumulation = 3;
                runs[i].by_layer = i > 0;
                runs[i].replicate = type == DTYPE_BF16 && world > 1 ? 2 : 1;
            }
            tap_ok(runs_agree(runs, 5, outcome_same),
                   "micro-batches by layer: %d ranks, %s", world,
                   dtype_name(type));
        }
}

/* The sum of several micro-batches is a number of the compute type when norm
 * and update see it: with beta1 = 1/2 and no clipping it is twice the first m.
 */
static void test_rounded_sums(void)
{
    for (enum dtype type = DTYPE_FP32; type <= last_type; type++) {
        int ok = 1, odd = 0;
        for (int stage = 0; stage <= 3; stage++) {
            struct scenario s = scenario_default(stage, stage ? 3 : 1, type);
            s.accumulation = 3;
            s.steps = 1;
            s.shows_grads = true;
            s.optim.adam_beta1 = 0.5;
            struct outcome outcome = world_run(&s);
            const float *m = (const float *)outcome.state[OPTIM_M];
            double squares = 0;
            ok &= outcome_sound(&outcome);
            for (size_t i = 0; i < outcome.total; i++) {
                float g = 2 * m[i], rounded = g;
                dtype_round(
                        &rounded, type == DTYPE_FP32 ? DTYPE_BF16 : type, 1);
                odd += g != rounded;
                squares += (double)g * (double)g;
            }
            ok &= fabs(sqrt(squares) / outcome.norms[0] - 1) < 1e-12;
            outcome_fini(&outcome);
        }
        tap_ok(ok && (odd > 0) == (type == DTYPE_FP32),
               "the sum of several micro-batches is rounded once");
    }
}

static void test_frozen(void)
{
    struct scenario s = scenario_default(3, 3, DTYPE_BF16);
    s.shape.freeze_every = 3;
    struct outcome outcome = world_run(&s);
    struct fake fake;
    fake_create(&fake, &s.shape);
    struct weight_source source = fake_weights(&fake);
    bool ok = outcome_sound(&outcome), moved = false;
    ZD_FREED float *first = calloc(outcome.total, sizeof *first);
    for (int id = 0; id < fake.table.count; id++) {
        size_t at = tensor_start(&fake.table, id);
        size_t count = fake.table.params[id].count;
        source.read(source.ctx, id, 0, count, first);
        for (size_t i = 0; i < count; i++) {
            float rounded = bf16_to_float(float_to_bf16(first[i]));
            if (fake.table.params[id].trainable)
                moved |= outcome.master[at + i] != first[i];
            else
                ok &= outcome.master[at + i] == rounded &&
                      ((float *)outcome.state[OPTIM_M])[at + i] == 0;
        }
    }
    tap_ok(ok && moved, "frozen tensors stay as their files have them");
    fake_destroy(&fake);
    outcome_fini(&outcome);
}

/* Without a gradient only the decay moves weights, and only those of matrices.
 */
static void test_decay(void)
{
    struct scenario s = scenario_default(2, 3, DTYPE_FP32);
    s.still = true;
    s.steps = 1;
    struct outcome outcome = world_run(&s);
    struct fake fake;
    fake_create(&fake, &s.shape);
    struct weight_source source = fake_weights(&fake);
    ZD_FREED float *first = calloc(outcome.total, sizeof *first);
    bool ok = outcome_sound(&outcome) && outcome.norms[0] == 0;
    for (int id = 0; id < fake.table.count; id++) {
        const struct param *param = &fake.table.params[id];
        size_t at = tensor_start(&fake.table, id);
        float keep =
                param->decays && param->trainable ? (float)(1 - 0.01 * 0.1) : 1;
        source.read(source.ctx, id, 0, param->count, first);
        for (size_t i = 0; i < param->count; i++)
            ok &= outcome.master[at + i] == first[i] * keep;
    }
    tap_ok(ok, "decay moves the weights of matrices only");
    fake_destroy(&fake);
    outcome_fini(&outcome);
}

/* A last step that is not finite; parameters are read after it. */
static bool changes_nothing(const struct scenario *s)
{
    struct scenario broken = *s, before = *s;
    broken.broken = broken.evaluates = true;
    before.evaluates = true;
    before.steps--;
    struct outcome outcome = world_run(&broken), good = world_run(&before);
    bool ok = outcome.status == ZD_OK && outcome.ranks_agree &&
              isnan(outcome.norms[s->steps - 1]) &&
              outcome_same(&outcome, &good);
    outcome_fini(&outcome);
    outcome_fini(&good);
    return ok;
}

/* Wherever states and parameters are. */
static void test_nonfinite(void)
{
    static const char *const places[] = {
            "on the device", "with states on the host",
            "with parameters on the host too", "with paged states"};
    for (int place = 0; place < 4; place++) {
        bool ok = true;
        for (int stage = 0; stage <= 3; stage++) {
            int world = place == 2 && stage < 3 ? 1 : 3 - stage % 2;
            struct scenario s = scenario_default(
                    stage, world, stage & 1 ? DTYPE_FP32 : DTYPE_BF16);
            scenario_vary(&s, 3 * stage + place);
            s.replicate = place & 1 ? world : 1;
            s.streams = STREAM_THREAD;
            s.workers = 1 + stage % 3;
            s.offload.chunk_bytes = 2048;
            s.offload.optimizer =
                    place == 1 || place == 2 ? OFFLOAD_CPU : OFFLOAD_NONE;
            s.offload.params = place == 2 ? OFFLOAD_CPU : OFFLOAD_NONE;
            s.optim.paged = place == 3;
            s.spill_bytes = place == 3 ? SIZE_MAX : 0;
            ok &= changes_nothing(&s);
            if (place == 1 || place == 2) {
                s.offload.clipping = OFFLOAD_CLIP_UNDO;
                ok &= changes_nothing(&s);
            }
        }
        tap_ok(ok,
               "%s, a gradient that is not finite is seen by all and changes "
               "nothing",
               places[place]);
    }
}

static void test_unreadable(void)
{
    struct scenario s = scenario_default(1, 3, DTYPE_BF16);
    s.unreadable = true;
    struct outcome outcome = world_run(&s);
    tap_ok(outcome.status == ZD_ERR_DATA && outcome.records == 1,
           "weights that one rank cannot read end all ranks with one cause");
    outcome_fini(&outcome);
}

static void test_loss(void)
{
    struct scenario s = scenario_default(2, 4, DTYPE_FP32);
    struct outcome outcome = world_run(&s);
    tap_ok(outcome_sound(&outcome) &&
                   fabs(outcome.losses[0] - 0.1 * (1 + 2 + 3 + 4)) < 1e-15,
           "the loss is summed in the norm's exchange");
    outcome_fini(&outcome);
}

int main(void)
{
    test_stages();
    test_accumulation();
    test_by_layer();
    test_rounded_sums();
    test_frozen();
    test_decay();
    test_nonfinite();
    test_unreadable();
    test_loss();
    return tap_done();
}
