/* calibrate_products.c - matmuls by shape, and those of adapters. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "train/plan/calibrate.h"

#include <math.h>

enum { RANK = 16 }; /* of adapters */

/* Rows of x, or of the gradient of its output in y, times the weight or the
 * rows. */
enum zd_status bench_product(struct bench *b)
{
    size_t width = dtype_bytes(b->type), N = (size_t)b->N;
    size_t rows = (size_t)b->M * N * width, weight = N * N * width;
    bool is_forward = b->kind == RATE_FORWARD;
    b->turns++;
    if (b->kind == RATE_WEIGHTS)
        return b->kernels->matmul(
                NULL, bench_cold(b, b->dw, 2, N * N * sizeof(float)),
                DTYPE_FP32, b->y, bench_cold(b, b->x, 1, rows), NULL, b->N,
                b->N, b->M, true, false, false);
    return b->kernels->matmul(
            NULL, bench_cold(b, is_forward ? b->y : b->z, 1, rows), b->type,
            is_forward ? b->x : b->y, bench_cold(b, b->w, 2, weight), NULL,
            b->M, b->N, b->N, false, is_forward, false);
}

static enum zd_status measure_shape(struct bench *b, int t, int w, double *rate)
{
    double before = w ? rate[-1] : t ? rate[-RATE_WIDTHS] : 0;
    b->M = plan_rate_tokens[t];
    b->N = plan_rate_widths[w];
    double flops = 2.0 * b->M * (double)b->N * b->N;
    if (before > 0 && flops / fmax(*rate, before) > 2 * b->share) {
        *rate = *rate > 0 ? *rate : before;
        return ZD_OK;
    }
    ZD_TRY(bench_rate(b, bench_product, flops, rate));
    /* more rows are never slower: a search relies on it */
    if (t)
        *rate = fmax(*rate, rate[-RATE_WIDTHS]);
    return ZD_OK;
}

enum zd_status calibrate_products(struct bench *b, struct plan_rates *rates)
{
    for (b->kind = 0; b->kind < RATE_PRODUCTS; b->kind++)
        for (int t = 0; t < RATE_TOKENS; t++)
            for (int w = 0; w < RATE_WIDTHS; w++)
                ZD_TRY(measure_shape(b, t, w, &rates->products[b->kind][t][w]));
    return ZD_OK;
}

/* --- the slowest of the ranks --------------------------------------------- */

/* About what a layer takes. */
static enum zd_status work(struct bench *b, int times)
{
    b->M = plan_rate_tokens[1];
    b->N = plan_rate_widths[2];
    b->kind = RATE_FORWARD;
    for (int i = 0; i < times; i++)
        ZD_TRY(bench_product(b));
    return device_finish();
}

enum zd_status calibrate_jitter(
        struct bench *b, struct comm *comm, double seconds, double *jitter_out)
{
    enum { PIECE_MS = 20, TURNS_MIN = 8, TURNS_MAX = 4000 };
    double one, own = 0, all = 0, world = comm_size(comm);
    ZD_TRY(work(b, 1));
    double began = clock_seconds();
    ZD_TRY(work(b, 4));
    one = (clock_seconds() - began) / 4;
    int64_t counts[2] = {1, TURNS_MIN};
    if (one > 0)
        counts[0] = (int64_t)fmax(1, 1e-3 * PIECE_MS / one);
    if (one > 0)
        counts[1] = (int64_t)fmin(
                TURNS_MAX,
                fmax(TURNS_MIN, seconds / (one * (double)counts[0])));
    ZD_TRY(comm_broadcast(comm, counts, sizeof counts, 0));
    for (int64_t turn = 0; turn < counts[1]; turn++) {
        ZD_TRY(comm_barrier(comm));
        began = clock_seconds();
        ZD_TRY(work(b, (int)counts[0]));
        own += clock_seconds() - began;
        ZD_TRY(comm_barrier(comm));
        all += clock_seconds() - began;
    }
    *jitter_out = fmax(0, all / own - 1) / log2(world);
    return ZD_OK;
}

/* --- adapters ------------------------------------------------------------- */

static char *elements(const struct bench *b, char *array)
{
    return bench_cold(b, array, 1, BENCH_ELEMENTS * dtype_bytes(b->type));
}

/* To what is there: fp32 is added to by the matmul itself, as adapter.c of
 * model does. */
static enum zd_status add_thin(struct bench *b, char *to, char *u, bool trans)
{
    const struct dropout none = {.T = 1};
    bool adds = b->type == DTYPE_FP32;
    char *wide = adds ? to : b->dw + BENCH_BLOCK;
    ZD_TRY(b->kernels->matmul(
            NULL, wide, b->type, u, b->w, NULL, BENCH_ROWS, BENCH_COLUMNS, RANK,
            false, trans, adds));
    return adds ? ZD_OK
                : b->kernels->scale_rows(
                          NULL, to, BENCH_COLUMNS, wide, BENCH_ROWS,
                          BENCH_COLUMNS, 1, &none, true);
}

/* An adapter's: two matmuls that are thin on one side, .. */
static enum zd_status adapter_forward(struct bench *b)
{
    b->turns++;
    char *u = elements(b, b->z);
    ZD_TRY(b->kernels->matmul(
            NULL, u, b->type, b->x, b->w, NULL, BENCH_ROWS, RANK, BENCH_COLUMNS,
            false, true, false));
    return add_thin(b, elements(b, b->y), u, true);
}

/* .. and for each two more. */
static enum zd_status adapter_backward(struct bench *b)
{
    enum { N = BENCH_COLUMNS, R = RANK };
    const struct kernels *k = b->kernels;
    b->turns++;
    char *u = elements(b, b->z), *x = elements(b, b->x);
    float *db = (float *)b->dw, *da = db + N * R;
    ZD_TRY(k->matmul(
            NULL, db, DTYPE_FP32, b->y, u, NULL, N, R, BENCH_ROWS, true, false,
            false));
    ZD_TRY(k->matmul(
            NULL, u, b->type, b->y, b->w, NULL, BENCH_ROWS, R, N, false, false,
            false));
    ZD_TRY(k->matmul(
            NULL, da, DTYPE_FP32, u, x, NULL, R, N, BENCH_ROWS, true, false,
            false));
    return add_thin(b, elements(b, b->y), u, false);
}

enum zd_status calibrate_adapters(struct bench *b, struct plan_rates *rates)
{
    const double thin = 4.0 * BENCH_ROWS * BENCH_COLUMNS * RANK;
    ZD_TRY(bench_rate(b, adapter_forward, thin, &rates->adapter[RATE_FORWARD]));
    return bench_rate(
            b, adapter_backward, 2 * thin, &rates->adapter[RATE_BACKWARD]);
}
