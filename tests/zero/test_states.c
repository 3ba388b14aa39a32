/* test_states - every optimizer and format over several ranks: given the same
 * gradients the update has the same bits at every world, stage and number of
 * threads, on the host, on a GPU, and after states moved between worlds. A
 * plain program that prints TAP.
 *
 *   test_zero_states worlds | threads | cuda */
#include "world.h"

#include <string.h>

struct variant {
    const char *name;
    enum optim_name optimizer;
    enum optim_state_type states;
    double momentum;
    bool narrow_embedding, no_master;
};

static const struct variant variants[] = {
#define ROW_true(...)
#define ROW_false(word, ID, states)                                            \
    {word, OPTIM_##ID, OPTIM_STATE_##states, .momentum = 0.9},
#define OPTIM_WORD(word, ID, states, is_paged) ROW_##is_paged(word, ID, states)
#include "optim/optimizers.inc"
        {"adamw in bf16", OPTIM_ADAMW, OPTIM_STATE_BF16},
        {"adamw_8bit, embedding too", OPTIM_ADAMW, OPTIM_STATE_8BIT,
         .narrow_embedding = true},
        {"adamw without masters", OPTIM_ADAMW, OPTIM_STATE_FP32,
         .no_master = true},
        {"adamw_8bit without masters", OPTIM_ADAMW, OPTIM_STATE_8BIT,
         .no_master = true},
        {"sgd without momentum", OPTIM_SGD, OPTIM_STATE_FP32},
        {"sgd with momentum in 8 bits", OPTIM_SGD, OPTIM_STATE_8BIT,
         .momentum = 0.9},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static struct scenario scenario(
        const struct variant *v, int stage, int world, enum dtype dtype)
{
    struct scenario s =
            scenario_default(stage, world, v->no_master ? DTYPE_BF16 : dtype);
    s.shape.layers = 2;
    s.shape.scale = 12;
    s.steps = 2;
    s.solo = true;
    if ((world + stage) % 2 == 0)
        s.replicate = world % 3 == 0 ? 3 : world % 2 == 0 ? 2 : 1;
    s.optim.name = v->optimizer;
    s.optim.state_type = v->states;
    s.optim.momentum = v->momentum;
    s.optim.stable_embedding = !v->narrow_embedding;
    s.optim.master = v->no_master ? OPTIM_MASTER_NONE : OPTIM_MASTER_FP32;
    return s;
}

/* Runs `s`; has it the state of `expected`, and its norms if it made the same
 * steps? */
static bool gives(const struct scenario *s, const struct outcome *expected)
{
    struct outcome outcome = world_run(s);
    bool ok = outcome_sound(&outcome) && outcome_same(&outcome, expected) &&
              (s->resume ||
               !memcmp(outcome.norms, expected->norms, sizeof outcome.norms));
    if (!ok)
        printf("# differs: world %d replicate %d stage %d %s\n", s->world,
               s->replicate, s->options.stage, dtype_name(s->dtype));
    outcome_fini(&outcome);
    return ok;
}

/* Do the states have what this variant is about? */
static bool has_states(const struct variant *v, const struct outcome *outcome)
{
    bool values[OPTIM_LANES] = {false, false}, scales = false, blocks = false;
    for (size_t i = 0; i < outcome->total; i++) {
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            values[lane] |= outcome->state[lane][4 * i] != 0;
        scales |= outcome->scale[OPTIM_M][i] != 0;
        blocks |= outcome->block_v[i] != 0;
    }
    bool adam = v->optimizer == OPTIM_ADAMW || v->optimizer == OPTIM_ADAM_MINI;
    bool any = v->optimizer != OPTIM_SGD || v->momentum > 0;
    return values[OPTIM_M] == any && values[OPTIM_V] == adam &&
           scales == (v->states == OPTIM_STATE_8BIT) &&
           blocks == (v->optimizer == OPTIM_ADAM_MINI);
}

static void test_worlds(const struct variant *v)
{
    for (enum dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        struct scenario one = scenario(v, 0, 1, type);
        if (v->no_master && type != DTYPE_BF16)
            continue;
        struct outcome alone = world_run(&one);
        bool ok = outcome_sound(&alone) && has_states(v, &alone);
        /* types differ in arithmetic, not in what is cut where */
        for (int world = 2; world <= 8; world += type == DTYPE_BF16 ? 1 : 3) {
            struct scenario s = scenario(v, world % 4, world, type);
            ok &= gives(&s, &alone);
        }
        for (int stage = 0; stage <= 3; stage++) {
            struct scenario s = scenario(v, stage, 3, type);
            ok &= gives(&s, &alone);
        }
        tap_ok(ok, "%s, %s: the same bits at worlds 1 to 8", v->name,
               dtype_name(type));
        outcome_fini(&alone);
    }
}

/* The states on the host, some of them or all: as many workers, chunks and
 * streams as there are. */
static void put_on_host(struct scenario *s, int turn)
{
    static const uint64_t chunk_bytes[] = {1024, 5000, 0};
    static const struct {
        enum offload_tier optimizer, params;
    } tiers[] = {{OFFLOAD_CPU, OFFLOAD_NONE},  {OFFLOAD_NVME, OFFLOAD_CPU},
                 {OFFLOAD_CPU, OFFLOAD_CPU},   {OFFLOAD_NONE, OFFLOAD_NONE},
                 {OFFLOAD_NVME, OFFLOAD_NVME}, {OFFLOAD_CPU, OFFLOAD_NONE},
                 {OFFLOAD_NVME, OFFLOAD_NONE}};
    s->offload.optimizer = tiers[turn % 7].optimizer;
    if (s->world == 1 || s->options.stage == 3)
        s->offload.params = tiers[turn % 7].params;
    s->offload.nvme_path = "/tmp";
    s->offload.chunk_bytes = chunk_bytes[turn % 3];
    s->workers = 1 + turn % 4;
    s->streams = turn % 3 ? STREAM_THREAD : STREAM_INLINE;
    s->optim.paged = s->offload.optimizer == OFFLOAD_NONE;
    if (s->optim.paged)
        s->spill_bytes = turn % 2 ? SIZE_MAX : 20000;
    if (s->optim.name == OPTIM_ADAM_MINI || s->offload.optimizer != OFFLOAD_CPU)
        return;
    if (turn % 4 < 2)
        s->offload.clipping = OFFLOAD_CLIP_UNDO;
    s->offload.device_update = turn % 5 / 4.0;
}

static void test_host(const struct variant *v)
{
    bool ok = true;
    int turn = (int)(v - variants);
    struct scenario one = scenario(v, 0, 1, DTYPE_BF16);
    struct outcome alone = world_run(&one);
    ok &= outcome_sound(&alone);
    for (int world = 1; world <= 8; world++)
        for (int k = 0; k < 2; k++, turn++) {
            struct scenario s =
                    scenario(v, (turn + world) % 4, world, DTYPE_BF16);
            put_on_host(&s, turn);
            ok &= gives(&s, &alone);
        }
    outcome_fini(&alone);
    tap_ok(ok, "%s: on the host, the same bits at worlds 1 to 8", v->name);
}

/* With states on the device, and on the host. */
static void test_cuda(const struct variant *v)
{
    bool ok = true;
    struct scenario one = scenario(v, 0, 1, DTYPE_BF16);
    struct outcome alone = world_run(&one);
    for (int turn = 0; turn < 8; turn++) {
        struct scenario s =
                scenario(v, turn / 2 % 4, 1 + turn / 2 % 2, DTYPE_BF16);
        if (turn % 2)
            put_on_host(&s, turn / 2 + (int)(v - variants));
        s.backend = DEVICE_CUDA;
        ok &= gives(&s, &alone);
    }
    outcome_fini(&alone);
    tap_ok(ok, "%s: on a GPU, the same bits", v->name);
}

/* Saved at a ranks after a step, loaded at b: the second step is the unbroken
 * run's. */
static void test_moves(const struct variant *v)
{
    bool ok = true;
    struct scenario whole = scenario(v, 0, 1, DTYPE_BF16);
    struct outcome all = world_run(&whole);
    int turn = (int)(v - variants);
    for (int a = 1; a <= 8; a++) {
        struct scenario half = scenario(v, a % 4, a, DTYPE_BF16);
        half.steps = 1;
        if (a % 3 == 0)
            put_on_host(&half, turn);
        struct outcome saved = world_run(&half);
        ok &= outcome_sound(&saved);
        for (int b = a % 3 + 1; b <= 8; b += 3, turn++) {
            struct scenario rest = scenario(v, (a + b) % 4, b, DTYPE_BF16);
            if (turn % 3 == 0)
                put_on_host(&rest, turn);
            rest.first_step = 1;
            rest.steps = turn % 2;
            rest.goes_back = true;
            rest.resume = &saved;
            ok &= gives(&rest, &saved);
            rest.goes_back = false;
            rest.steps = 1;
            ok &= gives(&rest, &all);
        }
        outcome_fini(&saved);
    }
    outcome_fini(&all);
    tap_ok(ok, "%s: states move between worlds to the bit", v->name);
}

/* Tensors long enough for several turns of a thread. */
static void test_threads(const struct variant *v)
{
    bool ok = true;
    struct scenario s = scenario(v, 1, 2, DTYPE_BF16);
    s.shape = (struct fake_shape){.layers = 1, .scale = 120};
    s.threads = 1;
    struct outcome first = world_run(&s);
    ok &= outcome_sound(&first);
    for (s.threads = 2; s.threads <= 4; s.threads++)
        ok &= gives(&s, &first);
    outcome_fini(&first);
    tap_ok(ok, "%s: the same bits with 1 to 4 threads", v->name);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "worlds";
    if (strcmp(part, "cuda") == 0 && device_gpu_count(NULL) == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        return 0;
    }
    ZD_EACH(v, variants, VARIANTS) {
        if (strcmp(part, "threads") == 0)
            test_threads(v);
        if (strcmp(part, "cuda") == 0)
            test_cuda(v);
        if (strcmp(part, "worlds") == 0) {
            test_worlds(v);
            test_host(v);
            test_moves(v);
        }
    }
    return tap_done();
}
