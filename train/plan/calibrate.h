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
                  4,     /* bytes of an array; 32 MiB */
    BENCH_ROWS = 512,    /* of attention */
    BENCH_COLUMNS = 512, /* of what a layer does beside matmuls */
    BENCH_LAYERS = 2,    /* that are measured as a whole */
    BENCH_BLOCKS = 7     /* of all arrays */
};

/* What operations work on, and what is asked of the next. */
struct bench {
    const struct kernels *kernels;
    enum dtype type;
    double share;             /* seconds for each thing */
    char *x, *y, *z, *w, *dw; /* of the device, in a row; w and dw: two blocks
                                 each */
    int32_t *zeros;
    void *scratch, *workspace;
    struct arena arena; /* all of them */
    int M, N, kind;     /* of a matmul; N wide and deep; RATE_FORWARD .. */
    int pass;           /* of a layer */
    size_t turns;       /* operations so far */
    struct attention_shape attention;
    struct optim_span span;
    struct optim_step step;
    struct optim_options options;
    void *ctx; /* of calibrate_ways.c */
};

typedef enum zd_status bench_fn(struct bench *bench);

/* calibrate_ops.c. The rate of a thing in so many seconds' runs, their mean;
 * the best of all calls is in *rate_out; 0: there is none. */
enum zd_status bench_rate(
        struct bench *bench, bench_fn *run, double much, double *rate_out);
/* A sum of whole blocks; a matmul of bench->kind. */
bench_fn bench_add_large, bench_matmul;
/* Attention of about so many rows, in sequences of so many; one of the layers.
 */
void bench_shape_attention(struct bench *bench, int rows, int length);
void bench_shape_layer(struct bench *bench, int size);
/* Matmuls by shape, attention, updates; each may overwrite all arrays. */
enum { BENCH_PARTS = 3 };
extern enum zd_status (*const bench_parts[BENCH_PARTS])(
        struct bench *bench, struct plan_rates *rates);
/* Layers as a whole: the least of all calls is in seconds; and what that is
 * over the parts, whose rates are known, and bytes/s of memory. */
enum zd_status calibrate_layers(
        struct bench *bench, double seconds[RATE_PASSES][BENCH_LAYERS]);
void calibrate_whole(
        double seconds[RATE_PASSES][BENCH_LAYERS], double width, double memory,
        struct plan_rates *rates);

/* calibrate_ways.c: copies between host and device, the disk below the cache
 * folder, and with several ranks the wire, in and between hosts. Collective. */
enum zd_status calibrate_ways(
        struct comm *comm, double seconds, struct plan_machine *machine);
/* How much longer than its own work all of a rank's takes for those that wait
 * for the slowest, for each doubling of the ranks. Collective. */
enum zd_status calibrate_jitter(
        struct bench *bench, struct comm *comm, double seconds,
        double *jitter_out);

#endif
