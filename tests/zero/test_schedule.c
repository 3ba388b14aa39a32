/* test_schedule - the schedule fuzzer: whatever is late, the bits are the same.
 *
 * For every combination of stage, world, what is on the host, clipping,
 * accumulation, skipped steps, and how much may be undone, with a thread that
 * reads what is to be saved meanwhile: once with nothing on the host, then with
 * streams of their own and hand-overs that are late at random (delays.h). A
 * wait that is missing somewhere shows as other bits, or as a save that is not
 * what was; and the wire is the planned one.
 *
 *   test_zero_schedule              each at one stage and world, with a seed,
 *                                   or SHORT where updates are taken back
 *   test_zero_schedule long         at all of them, with LONG seeds
 *   test_zero_schedule cuda         on a GPU, against the CPU: some of those
 *   test_zero_schedule NUMBER SEED  that one, to look at it
 *
 * A plain program that prints TAP. */
#include "delays.h"
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 2, LONG = 5 };
/* Under a thread sanitizer, which is ten times as slow and finds a missing wait
 * without anyone being late. */
#ifdef __SANITIZE_THREAD__
static const bool is_slow = true;
#else
static const bool is_slow = false;
#endif

enum host {
    HOST_NOTHING,
    HOST_STATES,
    HOST_PARAMS,
    HOST_NVME,
    HOST_PAGED,
    HOSTS
};
static const char *const host_names[HOSTS] = {
        "nothing on the host", "states on the host", "parameters too",
        "all on NVMe", "paged states"};
/* What becomes of the steps. */
enum fate { KEPT, CLIPPED, SKIPPED, MIXED, FATES };
static const char *const fate_names[FATES] = {
        "kept", "clipped", "one skipped", "one skipped, one clipped"};
enum sums { ONE_MICRO, ON_DEVICE, ON_HOST, BY_LAYER, SUMS };
static const char *const sum_names[SUMS] = {
        "one micro-batch", "three", "three, added on the host",
        "three, by layer"};
/* Ranks, how many of them hold the same shard, and of those of tensor
 * parallelism. */
static const struct {
    int world, replicate, tp;
} worlds[] = {{1, 1}, {2, 1}, {4, 2}, {4, 1, 2}, {2, 2}, {4, 2, 2}};
enum { STAGES = 4, WORLDS = sizeof worlds / sizeof *worlds, CLIPPINGS = 2 };
enum { KIND_COUNT = HOSTS * CLIPPINGS * SUMS * FATES };

struct combination {
    int stage, world, replicate, tp;
    enum host host;
    bool undo;
    enum sums sums;
    enum fate fate;
};

static struct combination combination_of(int number)
{
    struct combination c;
    c.fate = (enum fate)(number % FATES);
    number /= FATES;
    c.undo = number % CLIPPINGS;
    number /= CLIPPINGS;
    c.host = (enum host)(number % HOSTS);
    number /= HOSTS;
    c.sums = (enum sums)(number % SUMS);
    number /= SUMS;
    c.world = worlds[number % WORLDS].world;
    c.replicate = worlds[number % WORLDS].replicate;
    c.tp = worlds[number % WORLDS].tp;
    c.stage = number / WORLDS;
    return c;
}

/* Those that the plan takes. */
static bool is_legal(const struct combination *c)
{
    bool states = c->host == HOST_STATES || c->host == HOST_PARAMS ||
                  c->host == HOST_NVME;
    if (c->undo && (!states || c->host == HOST_NVME))
        return false;
    if (c->sums == ON_HOST && (!states || (c->world > 1 && !c->stage)))
        return false;
    if (c->host == HOST_PARAMS && c->world > 1 && c->stage < 3)
        return false;
    return true;
}

static struct scenario scenario_of(const struct combination *c, int number)
{
    struct scenario s = scenario_default(
            c->stage, c->world, number % 4 ? DTYPE_BF16 : DTYPE_FP32);
    /* what else may vary does so with the number */
    scenario_vary(&s, number % 30);
    s.replicate = c->replicate;
    s.tp = c->tp;
    s.streams = STREAM_THREAD;
    s.workers = 1 + number % 3;
    if (number % 7 == 3)
        s.shape.layers = 10; /* more collectives than may be under way */
    s.offload.chunk_bytes = 2048;
    s.steps = 4;
    s.accumulation = c->sums == ONE_MICRO ? 1 : 3;
    s.accumulate_on_host = c->sums == ON_HOST;
    s.reduce_fp32 = number % 11 == 5;
    s.clears = number % 9 == 4;
    s.by_layer = c->sums == BY_LAYER;
    s.clip = c->fate == CLIPPED || c->fate == MIXED ? 1 : 1e9;
    s.broken_steps = c->fate == SKIPPED || c->fate == MIXED ? 1 << 1 : 0;
    if (c->fate == MIXED)
        s.unclipped_steps = 1 << 2;
    s.offload.clipping = c->undo ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT;
    s.saves = c->host == HOST_NVME ? 0 : 1 << 0 | 1 << 1 | 1 << 2;
    s.save_eighths = (size_t)(number % 3) * 4;
    switch (c->host) {
    case HOST_PAGED:
        s.optim.paged = true;
        s.spill_bytes = number % 3 ? (size_t)1 << number % 17 : SIZE_MAX;
        break;
    case HOST_NVME:
        s.offload.optimizer = OFFLOAD_NVME;
        s.offload.nvme_path = "/tmp";
        if (c->world == 1 || c->stage == 3)
            s.offload.params = OFFLOAD_NVME;
        break;
    case HOST_PARAMS:
        s.offload.params = OFFLOAD_CPU;
        s.offload.optimizer = OFFLOAD_CPU;
        break;
    case HOST_STATES:
        s.offload.optimizer = OFFLOAD_CPU;
        break;
    default:
        break;
    }
    return s;
}

static bool on_gpu;

/* Nothing is on the host, unless that adds up in another order. */
static struct outcome run_at_once(const struct scenario *s)
{
    struct scenario plain = *s;
    bool adds_apart =
            s->accumulate_on_host && (s->world == 1 || s->options.stage < 2 ||
                                      s->replicate > 1 || s->tp > 1);
    plain.streams = STREAM_INLINE;
    plain.workers = 1;
    plain.offload.clipping = OFFLOAD_CLIP_WAIT;
    plain.saves = 0;
    if (!adds_apart) {
        plain.offload = offload_options_default();
        plain.optim.paged = plain.accumulate_on_host = false;
        plain.spill_bytes = 0;
    }
    return world_run(&plain);
}

/* By the seed all of an update may be undone, nothing, or what so many bytes
 * are enough for. */
static uint64_t undo_memory(uint64_t seed)
{
    uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15u >> 32;
    return random % 6 == 0   ? OFFLOAD_UNDO_AUTO
           : random % 6 == 1 ? 0
                             : (uint64_t)1024 << (random >> 8) % 10;
}

/* A step that is skipped does not send all that is planned. */
static bool is_same(const struct outcome *want, const struct outcome *got)
{
    bool skips = isnan(got->norms[1]);
    return got->status == ZD_OK && got->ranks_agree &&
           (skips || got->wire_matches) && outcome_same_run(want, got);
}

/* The device updates a share of what is in host memory: none, all, or some. */
static double device_update(enum offload_tier optimizer, uint64_t seed)
{
    uint64_t random = (seed + 1) * 0xd1b54a32d192ed03u >> 32;
    if (optimizer != OFFLOAD_CPU || random % 4 == 0)
        return 0;
    return random % 4 == 1 ? 1 : (double)(random >> 8 & 255) / 256;
}

static bool run_late(
        const struct scenario *s, int number, uint64_t seed,
        const struct outcome *want)
{
    struct scenario late = *s;
    if (on_gpu)
        late.backend = DEVICE_CUDA;
    late.offload.undo_memory = undo_memory(seed);
    late.offload.device_update = device_update(s->offload.optimizer, seed);
    delays_begin(seed);
    struct outcome got = world_run(&late);
    bool same = is_same(want, &got);
    if (!same)
        printf("# %s: %d %llu (%s)\n",
               got.status == ZD_OK ? "other bits" : got.what, number,
               (unsigned long long)seed, delays_say());
    outcome_fini(&got);
    return same;
}

/* One combination under seeds first .. first + seeds - 1. */
static bool try_combination(int number, uint64_t first, int seeds)
{
    struct combination c = combination_of(number);
    struct scenario s = scenario_of(&c, number);
    struct outcome want = run_at_once(&s);
    bool ok = want.status == ZD_OK && want.ranks_agree;
    if (!ok)
        printf("# %d: %s\n", number, want.what);
    delays_count();
    if (ok) { /* counts the hand-overs */
        struct scenario prompt = s;
        if (on_gpu)
            prompt.backend = DEVICE_CUDA;
        struct outcome got = world_run(&prompt);
        ok = is_same(&want, &got);
        if (!ok)
            printf("# other bits or bytes: %d, nothing late\n", number);
        outcome_fini(&got);
    }
    for (int i = 0; i < seeds && want.status == ZD_OK; i++)
        ok &= run_late(&s, number, first + (uint64_t)i, &want);
    if (!ok)
        printf("# stage %d, %d ranks, replicate %d, tp %d, %s, %s, %s, %s\n",
               c.stage, c.world, c.replicate, c.tp, host_names[c.host],
               c.undo ? "undo" : "wait", sum_names[c.sums], fate_names[c.fate]);
    outcome_fini(&want);
    return ok;
}

/* Number i of what is left of a combination at the given place among stages and
 * worlds, or the first legal one after it; -1: there is none. */
static int legal_from(int i, int place)
{
    for (int k = 0; k < STAGES * WORLDS; k++) {
        int number = (place + k) % (STAGES * WORLDS) * KIND_COUNT + i;
        struct combination c = combination_of(number);
        if (is_legal(&c))
            return number;
    }
    return -1;
}

/* By what is on the host and what clipping does. */
static void try_host(enum host host, bool undo, bool is_long)
{
    bool ok = true;
    int tried = 0;
    for (int i = 0; i < KIND_COUNT; i++) {
        struct combination c = combination_of(i);
        if (c.host != host || c.undo != undo ||
            ((on_gpu || is_slow) && ((int)c.fate + (int)c.sums) % 3))
            continue;
        for (int place = 0; place < STAGES * WORLDS; place++) {
            int number =
                    is_long ? place * KIND_COUNT + i : legal_from(i, 7 * tried);
            struct combination all = combination_of(number < 0 ? i : number);
            if (number < 0 || !is_legal(&all))
                continue;
            int seeds = is_slow ? 0 : is_long ? LONG : undo ? SHORT : 1;
            ok &= try_combination(
                    number, (uint64_t)(seeds * (number + tried)), seeds);
            if (!is_long)
                break;
        }
        tried++;
    }
    tap_ok(ok, "%s, %s", host_names[host], undo ? "undo" : "wait");
}

int main(int argc, char **argv)
{
    bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
    on_gpu = argc > 1 && strcmp(argv[1], "cuda") == 0;
    if (argc > 2) {
        int number = atoi(argv[1]);
        tap_ok(try_combination(number, strtoull(argv[2], NULL, 10), 1), "%s",
               argv[1]);
        return tap_done();
    }
    for (int host = 0; host < HOSTS; host++)
        for (int undo = 0; undo < CLIPPINGS; undo++)
            if (!undo || host == HOST_STATES || host == HOST_PARAMS)
                try_host((enum host)host, undo, is_long);
    return tap_done();
}
