/* calibrate.c - what the parts of a step take on this machine, each by itself,
 * with the operations that a run uses. The mean of many runs counts, and of
 * sweeps the best: a step too is made of many, and what others on the machine
 * take of each comes to it. The fastest of all runs would be that of no step.
 * Shapes whose one run would take more than its share of the time have the rate
 * of the shape before. */
#include "train/plan/calibration.h"

#include "base/device/device_memory.h"
#include "base/memory/arena.h"
#include "base/must.h"
#include "train/plan/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEPS = 3 }; /* one, where that would be less than a second */

/* --- memory --------------------------------------------------------------- */

static enum zd_status fill(struct bench *b)
{
    enum { PIECE = 1 << 16 };
    size_t width = dtype_bytes(b->type),
           pieces = BENCH_BLOCKS * (size_t)BENCH_BLOCK / width / PIECE;
    float *floats = zd_must(malloc(PIECE * sizeof *floats));
    char *narrow = zd_must(malloc(PIECE * sizeof *floats));
    enum zd_status status = ZD_OK;
    uint32_t state = 1;
    for (int i = 0; i < PIECE; i++) {
        state = state * 1664525u + 1013904223u;
        floats[i] = (float)(int32_t)state * 0x1p-31f;
    }
    dtype_convert(narrow, b->type, floats, DTYPE_FP32, PIECE);
    for (size_t p = 0; p < pieces && status == ZD_OK; p++)
        status = device_write(b->x + p * PIECE * width, narrow, PIECE * width);
    free(floats);
    free(narrow);
    return status;
}

static size_t scratch_bytes(struct bench *b)
{
    size_t most = 0;
    for (int i = 0; i < RATE_LENGTHS + BENCH_LAYERS; i++) {
        if (i < RATE_LENGTHS)
            bench_shape_attention(b, BENCH_ROWS, plan_rate_lengths[i]);
        else
            bench_shape_layer(b, i - RATE_LENGTHS);
        for (int t = DTYPE_FP32; t <= DTYPE_BF16; t++) {
            size_t bytes = attention_scratch_bytes(
                    &b->attention, (enum dtype)t, device_backend());
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static enum zd_status take(struct bench *b)
{
    const struct kernels_request request = {
            .backend = device_backend(),
            .dtype = DTYPE_FP32,
            .N = BENCH_TOKENS_MAX,
            .C = BENCH_WIDTH_MAX,
            .columns = BENCH_WIDTH_MAX,
            .V = BENCH_WIDTH_MAX};
    const size_t workspace = kernels_workspace_bytes(&request);
    const struct {
        void **out;
        const char *name;
        size_t bytes;
    } spans[] = {
            {(void **)&b->x, "arrays", BENCH_BLOCKS * (size_t)BENCH_BLOCK},
            {(void **)&b->zeros, "zeros", BENCH_TOKENS_MAX * sizeof *b->zeros},
            {&b->scratch, "scratch", scratch_bytes(b)},
            {&b->workspace, "workspace", workspace}};
    enum { SPANS = sizeof spans / sizeof spans[0] };
    struct arena_plan plan;
    enum zd_status status = ZD_OK;
    arena_plan_init(&plan);
    for (int i = 0; i < SPANS && status == ZD_OK; i++)
        status = arena_plan_add(
                &plan, spans[i].name, ARENA_DEVICE, SPAN_BUFFERS,
                spans[i].bytes);
    if (status == ZD_OK)
        status = arena_take(&b->arena, &plan);
    for (int i = 0; i < SPANS && status == ZD_OK; i++)
        *spans[i].out = arena_span(&b->arena, spans[i].name);
    arena_plan_fini(&plan);
    ZD_TRY(status);
    b->y = b->x + BENCH_BLOCK;
    b->z = b->y + BENCH_BLOCK;
    b->w = b->z + BENCH_BLOCK;
    b->dw = b->w + 2 * (size_t)BENCH_BLOCK;
    if (workspace)
        kernels_set_workspace(b->workspace, workspace);
    return ZD_OK;
}

/* --- all of it ------------------------------------------------------------ */

/* Arrays are filled anew where what is left of one is no value, gradient or
 * state that a run has: out of the range that codes of 8 bits have, an update
 * is 20 times slower. */
static enum zd_status measure_type(
        struct bench *b, enum dtype type, struct plan_rates *rates,
        double layers[RATE_PASSES][BENCH_LAYERS])
{
    b->type = type;
    ZD_TRY(kernels_device(type, &b->kernels));
    for (int i = 0; i < BENCH_PARTS; i++) {
        ZD_TRY(fill(b));
        ZD_TRY(bench_parts[i](b, rates));
    }
    ZD_TRY(fill(b));
    return calibrate_layers(b, layers);
}

static enum zd_status measure_device(
        struct bench *b, int sweeps, struct plan_calibration *out)
{
    static const double widths[RATE_TYPES] = {2, 4};
    double layers[RATE_TYPES][RATE_PASSES][BENCH_LAYERS];
    for (int type = 0; type < RATE_TYPES; type++)
        for (int pass = 0; pass < RATE_PASSES; pass++)
            for (int size = 0; size < BENCH_LAYERS; size++)
                layers[type][pass][size] = INFINITY;
    ZD_TRY(take(b));
    for (int sweep = 0; sweep < sweeps; sweep++) {
        ZD_TRY(measure_type(b, DTYPE_FP32, &out->rates[1], layers[1]));
        ZD_TRY(bench_rate(
                b, bench_add_large, 3.0 * BENCH_BLOCK, &out->machine.memory));
        ZD_TRY(measure_type(b, DTYPE_BF16, &out->rates[0], layers[0]));
    }
    for (int type = 0; type < RATE_TYPES; type++)
        calibrate_whole(
                layers[type], widths[type], out->machine.memory,
                &out->rates[type]);
    const double(*fp32)[RATE_WIDTHS] = out->rates[1].products[RATE_FORWARD];
    const double(*bf16)[RATE_WIDTHS] = out->rates[0].products[RATE_FORWARD];
    out->machine.products_32 = fp32[RATE_TOKENS - 1][RATE_WIDTHS - 1];
    out->machine.products_16 = bf16[RATE_TOKENS - 1][RATE_WIDTHS - 1];
    return ZD_OK;
}

/* The mean of all ranks, which measured at once, as a run would use them. */
static enum zd_status take_means(
        struct comm *comm, struct plan_calibration *calibration)
{
    enum {
        RATES = sizeof(calibration->rates) / (sizeof(double)),
        NUMBERS = RATES + 1
    };
    int size = comm_size(comm);
    double mine[NUMBERS], sums[NUMBERS] = {0};
    void *all;
    memcpy(mine, calibration->rates, RATES * sizeof *mine);
    mine[RATES] = calibration->machine.jitter;
    ZD_TRY(comm_gather_new(comm, mine, sizeof mine, &all));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < NUMBERS; i++)
            sums[i] += ((const double *)all)[r * NUMBERS + i];
    free(all);
    for (int i = 0; i < NUMBERS; i++)
        sums[i] /= size;
    memcpy(calibration->rates, sums, RATES * sizeof *sums);
    calibration->machine.jitter = sums[RATES];
    return ZD_OK;
}

enum zd_status calibration_measure(
        struct comm *comm, double seconds, int threads,
        struct plan_calibration *out)
{
    enum {
        THINGS = 2 * (RATE_PRODUCTS * RATE_TOKENS * RATE_WIDTHS +
                      2 * RATE_LENGTHS + 8)
    };
    int sweeps = seconds < SWEEPS ? 1 : SWEEPS;
    struct bench bench = {.share = 0.8 * seconds / THINGS / sweeps};
    struct device_facts facts = device_facts();
    *out = (struct plan_calibration){
            .ranks = comm_local_size(comm),
            .threads = threads,
            .backend = device_backend(),
            .machine = *plan_machine_default(device_backend())};
    out->machine.memory = 0;
    out->machine.launch = 0; /* rates are of whole calls */
    kernels_set_threads(threads);
    enum zd_status status = measure_device(&bench, sweeps, out);
    status = comm_agree(comm, status);
    if (status == ZD_OK && comm_size(comm) > 1)
        status = calibrate_jitter(
                &bench, comm, 0.05 * seconds, &out->machine.jitter);
    kernels_set_workspace(NULL, 0);
    arena_release(&bench.arena);
    if (status == ZD_OK)
        status = take_means(comm, out);
    if (status == ZD_OK)
        status = calibrate_ways(comm, 0.2 * seconds, &out->machine);
    if (status != ZD_OK)
        return status;
    /* states, gradient, weights: 28 bytes for an element of 16 bits */
    if (out->backend == DEVICE_CPU)
        out->machine.host = 28 * out->rates[0].update;
    snprintf(
            out->what, sizeof out->what, "%s, %d rank%s of %d thread%s",
            out->backend == DEVICE_CUDA ? facts.name : "the CPU device",
            out->ranks, out->ranks == 1 ? "" : "s", threads,
            threads == 1 ? "" : "s");
    return ZD_OK;
}
