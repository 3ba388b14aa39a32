/* optim_cuda.c - bandwidth of optimizer steps on a GPU, relative to a plain
 * copy.
 *
 *   bench_optim_cuda [--millions 1024] [--rounds 7]
 *
 * Weights and gradients in bf16, masters in fp32, random values; fewer elements
 * if the GPU's memory is too small. Bytes per element count each necessary read
 * and write once: AdamW with fp32 states 28, with 8-bit states 16.06 (one fp32
 * scale per 256). The copy reads and writes a quarter of the GPU's free memory,
 * at most 4 GiB. Medians. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/number/rng.h"
#include "optim/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MOST = 101, REPEATS = 4, BLOCK = 1 << 20 };

static void must(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    exit(zd_exit_code(status));
}

struct work {
    const char *name;
    enum optim_name optimizer;
    enum optim_state_type state_type;
    bool is_norm; /* only the gradient's squares, no update */
};

static const struct work works[] = {
        {"adamw", OPTIM_ADAMW, OPTIM_STATE_FP32, false},
        {"adamw, bf16 states", OPTIM_ADAMW, OPTIM_STATE_BF16, false},
        {"adamw_8bit", OPTIM_ADAMW, OPTIM_STATE_8BIT, false},
        {"lion_8bit", OPTIM_LION, OPTIM_STATE_8BIT, false},
        {"norm", OPTIM_ADAMW, OPTIM_STATE_FP32, true},
};
enum { WORKS = sizeof works / sizeof works[0] };

struct arrays {
    char *base; /* device memory */
    size_t bytes, count;
    struct optim_options options;
    struct optim_span span;
    struct exact_sum *sum;
};

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Lays out the arrays of `count` elements in a block; returns its bytes. */
static size_t place(struct arrays *a, size_t count)
{
    size_t at = 0;
    struct optim_span *span = &a->span;
    span->count = count;
    span->master = a->base + at;
    at += align(4 * count);
    span->grad = a->base + at;
    at += align(2 * count);
    span->param = a->base + at;
    at += align(2 * count);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = span->layout.lane[lane];
        span->lanes.state[lane] = a->base + at;
        at += align(optim_lane_bytes(format, count));
        span->lanes.scale[lane] = (float *)(a->base + at);
        at += align(optim_scale_count(format, count) * sizeof(float));
    }
    a->sum = (struct exact_sum *)(a->base + at);
    return at + align(sizeof *a->sum);
}

static double bytes_of(const struct arrays *a, const struct work *work)
{
    double count = (double)a->span.count, bytes = 2 + 4 + 4 + 2;
    if (work->is_norm)
        return 2 * count;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = a->span.layout.lane[lane];
        bytes += 2 * (double)optim_lane_bytes(format, OPTIM_QBLOCK) /
                 OPTIM_QBLOCK;
        bytes += 2 * 4 * (double)optim_scale_count(format, OPTIM_QBLOCK) /
                 OPTIM_QBLOCK;
    }
    return bytes * count;
}

/* Small random numbers, repeated every BLOCK elements. */
static void fill(void *array, enum dtype type, size_t count)
{
    float *wide = malloc(BLOCK * sizeof *wide);
    char *block = malloc(BLOCK * sizeof *wide);
    size_t width = dtype_bytes(type), first = count < BLOCK ? count : BLOCK;
    if (!wide || !block)
        exit(1);
    rng_normal(1, (uint64_t)type, 0, BLOCK, wide);
    dtype_convert(block, type, wide, DTYPE_FP32, BLOCK);
    must(device_write(array, block, first * width));
    for (size_t done = first; done < count; done += BLOCK) {
        size_t left = count - done;
        must(device_move(
                (char *)array + done * width, array,
                (left < BLOCK ? left : BLOCK) * width));
    }
    free(wide);
    free(block);
}

static void prepare(struct arrays *a, const struct work *work, size_t wanted)
{
    struct tensor_blocks blocks = {.rows = 1, .columns = 1, .count = 1};
    uint64_t free_bytes = device_facts().free_bytes;
    size_t count = wanted;
    *a = (struct arrays){.options = optim_options_default()};
    a->options.name = work->optimizer;
    a->options.state_type = work->state_type;
    a->span = (struct optim_span){
            .master_type = DTYPE_FP32,
            .grad_type = DTYPE_BF16,
            .param_type = DTYPE_BF16,
            .layout = optim_layout_of(&a->options, wanted, false, &blocks),
            .tensor = 1,
            .decays = true};
    while (place(a, count) > free_bytes / 10 * 9)
        count = count / 8 * 7 / OPTIM_QBLOCK * OPTIM_QBLOCK;
    a->bytes = place(a, count);
    void *base;
    must(device_take(a->bytes, &base));
    a->base = base;
    place(a, count);
    fill(a->span.master, DTYPE_FP32, count);
    fill((void *)(uintptr_t)a->span.grad, DTYPE_BF16, count);
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        must(optim_device()->lane_clear(
                (enum optim_lane)lane, a->span.layout.lane[lane],
                a->span.lanes.state[lane], a->span.lanes.scale[lane], count));
    must(device_clear(a->sum, sizeof *a->sum));
}

static void run(struct arrays *a, const struct work *work, int64_t t)
{
    struct optim_step step = {
            .options = &a->options,
            .learning_rate = 1e-4,
            .t = t,
            .grad_scale = 1,
            .seed = 1};
    if (work->is_norm)
        must(optim_device()->add_squares(
                a->sum, a->span.grad, DTYPE_BF16, a->span.count));
    else
        must(optim_device()->update(&a->span, &step));
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median over rounds of a few steps each, after a warm-up. */
static double seconds_of(struct arrays *a, const struct work *work, int rounds)
{
    double seconds[ROUNDS_MOST];
    for (int round = -1; round < rounds; round++) {
        must(device_finish());
        double began = clock_seconds();
        for (int i = 0; i < REPEATS; i++)
            run(a, work, (round + 1) * REPEATS + i + 1);
        must(device_finish());
        if (round >= 0)
            seconds[round] = (clock_seconds() - began) / REPEATS;
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, rising);
    return seconds[rounds / 2];
}

/* Bytes per second, read plus written, of a copy within the device. */
static double copy_rate(int rounds)
{
    double seconds[ROUNDS_MOST];
    uint64_t most = device_facts().free_bytes / 4;
    size_t bytes = most < (uint64_t)4 << 30 ? (size_t)most : (size_t)4 << 30;
    bytes = bytes / 4096 * 4096;
    void *base;
    must(device_take(bytes, &base));
    for (int round = -1; round < rounds; round++) {
        must(device_finish());
        double began = clock_seconds();
        for (int i = 0; i < REPEATS; i++)
            must(device_move(base, (char *)base + bytes / 2, bytes / 2));
        must(device_finish());
        if (round >= 0)
            seconds[round] = (clock_seconds() - began) / REPEATS;
    }
    device_give(base, bytes);
    qsort(seconds, (size_t)rounds, sizeof *seconds, rising);
    return (double)bytes / seconds[rounds / 2];
}

static long option(int argc, char **argv, const char *name, long otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtol(argv[i + 1], NULL, 10);
    return otherwise;
}

int main(int argc, char **argv)
{
    long millions = option(argc, argv, "--millions", 1024);
    long rounds = option(argc, argv, "--rounds", 7);
    struct device *device;
    if (millions < 1 || rounds < 1 || rounds > ROUNDS_MOST) {
        fprintf(stderr, "bench_optim_cuda [--millions N] [--rounds N]\n");
        return 64;
    }
    must(device_open(DEVICE_CUDA, 0, 1, &device));
    device_use(device);
    double rate = copy_rate((int)rounds);
    printf("%s: a copy moves %.0f GB/s\n", device_facts().name, rate * 1e-9);
    for (int i = 0; i < WORKS; i++) {
        struct arrays a;
        prepare(&a, &works[i], (size_t)millions << 20);
        double seconds = seconds_of(&a, &works[i], (int)rounds);
        double bytes = bytes_of(&a, &works[i]);
        printf("%-20s %5zuM elements  %8.3f ms  %6.0f GB/s  %5.1f %% of the "
               "copy\n",
               works[i].name, a.span.count >> 20, seconds * 1e3,
               bytes / seconds * 1e-9, 100 * bytes / seconds / rate);
        fflush(stdout);
        device_give(a.base, a.bytes);
    }
    must(device_check());
    device_use(NULL);
    device_close(device);
    return 0;
}
