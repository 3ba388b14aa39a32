/* calibrate.h - parts of a calibration. Internal to calibrate*.c. */
#ifndef ZD_TRAIN_PLAN_CALIBRATE_H
#define ZD_TRAIN_PLAN_CALIBRATE_H

#include "base/memory/arena.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "optim/device.h"
#include "train/plan/machine.h"

enum {
    BENCH_TOKENS_MAX = 2048,
    BENCH_WIDTH_MAX = 4096,
    BENCH_BLOCK = BENCH_TOKENS_MAX * BENCH_WIDTH_MAX *
                  4,  /* bytes of an array; 32 MiB */
    BENCH_ROWS = 512, /* of all but matmuls: 2^18 elements */
    BENCH_COLUMNS = 512,
    BENCH_ELEMENTS = BENCH_ROWS * BENCH_COLUMNS,
    BENCH_LAYERS = 2 /* that are measured as a whole */
};

/* What operations work on, and what is asked of the next. */
struct bench {
    const struct kernels *kernels;
    enum dtype type;
    double share;             /* seconds for each thing */
    char *x, *y, *z, *w, *dw; /* of the device; w and dw: two blocks each */
    int32_t *zeros;
    void *scratch, *workspace;
    struct arena arena; /* all of them */
    int rows;       /* of all but matmuls */
    int M, N, kind; /* of a matmul; N wide and deep; RATE_FORWARD .. */
    int pass;       /* of a layer */
    size_t turns;   /* runs so far */
    int sweeps;
    struct attention_shape attention;
    struct optim_span span;
    struct optim_step step;
    struct optim_options options;
    void *ctx; /* of calibrate_ways.c */
};

typedef enum zd_status bench_fn(struct bench *bench);

/* calibrate_bench.c. Seconds of one run, the mean of many. */
enum zd_status bench_time(
        struct bench *bench, bench_fn *run, double *seconds_out);
/* The best of all calls is in *rate_out; 0: there is none. */
enum zd_status bench_rate(
        struct bench *bench, bench_fn *run, double much, double *rate_out);
/* `bytes` of an array of so many blocks, which few runs before have touched. */
char *bench_cold(
        const struct bench *bench, char *array, int blocks, size_t bytes);

/* calibrate_products.c: a matmul of bench->kind; matmuls by shape, and of
 * adapters. */
bench_fn bench_product;
enum zd_status calibrate_products(
        struct bench *bench, struct plan_rates *rates);
enum zd_status calibrate_adapters(
        struct bench *bench, struct plan_rates *rates);

/* calibrate_layer.c: attention, what passes through memory, and updates. */
enum zd_status calibrate_elements(
        struct bench *bench, struct plan_rates *rates);
enum zd_status calibrate_attention(
        struct bench *bench, struct plan_rates *rates);
enum zd_status calibrate_update(struct bench *bench, struct plan_rates *rates);
/* Layers as a whole: the least of all calls is in seconds; and what that is
 * over the parts, whose rates are known. */
enum zd_status calibrate_layers(
        struct bench *bench, double seconds[RATE_PASSES][BENCH_LAYERS]);
void calibrate_whole(
        double seconds[RATE_PASSES][BENCH_LAYERS], struct plan_rates *rates);
/* Of attention over a sequence of so many. */
void bench_shape_attention(struct bench *bench, int length);
/* .. and of one of the layers. */
void bench_shape_layer(struct bench *bench, int size);
bench_fn bench_add_large;

/* How much longer than its own work all of a rank's takes for those that wait
 * for the slowest, for each doubling of the ranks. Collective. */
enum zd_status calibrate_jitter(
        struct bench *bench, struct comm *comm, double seconds,
        double *jitter_out);

/* calibrate_ways.c: copies between host and device, the disk below the cache
 * folder, and with several ranks the wire, in and between hosts. Collective. */
enum zd_status calibrate_ways(
        struct comm *comm, double seconds, struct plan_machine *machine);

#endif
