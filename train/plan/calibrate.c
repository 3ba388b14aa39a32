/* calibrate.c - what the parts of a step take on this machine, each by itself,
 * with the operations that a run uses. The best of many runs counts: others on
 * the machine make it slower, never faster. Shapes whose one run would take
 * more than its share of the time have the rate of the shape before. */
#include "train/plan/calibration.h"

#include "base/clock.h"
#include "base/device/device_memory.h"
#include "base/device/stream.h"
#include "kernels/kernels.h"
#include "optim/device.h"
#include "train/plan/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS_MAX = 2048,
    WIDTH_MAX = 4096,
    BLOCK = TOKENS_MAX * WIDTH_MAX * 4, /* bytes of an array; 32 MiB */
    ROWS = 512, /* of what is no product: 2^18 elements .. */
    COLUMNS = 512,
    ELEMENTS = ROWS * COLUMNS,
    HEADS = 4,
    HEAD_DIM = 64,
    UPDATED = BLOCK / 4, /* .. but for updates, which no cache holds */
    RANK = 16,           /* of adapters */
    SWEEPS = 3           /* one, where that would be less than a second */
};

struct bench {
    const struct kernels *kernels;
    enum dtype type;
    double share;             /* seconds for each thing */
    char *x, *y, *z, *w, *dw; /* of the device; w and dw: two blocks each */
    int32_t *zeros;
    void *scratch, *workspace;
    size_t scratch_bytes, workspace_bytes;
    int M, N;     /* of a product; N wide and deep */
    size_t turns; /* runs so far */
    int sweeps;
    struct attention_shape attention;
    struct optim_span span;
    struct optim_step step;
    struct optim_options options;
};

typedef enum zd_status measured_fn(struct bench *bench);

/* Seconds of one run: batches of runs, of which the fastest counts. */
static enum zd_status time_of(
        struct bench *bench, measured_fn *run, double *seconds_out)
{
    double began, all = 0, best = INFINITY;
    int times = 1;
    ZD_TRY(run(bench)); /* touches what it needs */
    ZD_TRY(device_finish());
    do {
        began = clock_seconds();
        for (int i = 0; i < times; i++)
            ZD_TRY(run(bench));
        ZD_TRY(device_finish());
        double took = clock_seconds() - began;
        all += took;
        best = fmin(best, took / times);
        if (took < bench->share / 16 && times < 1 << 16)
            times *= 2;
    } while (all < bench->share);
    *seconds_out = best;
    return ZD_OK;
}

/* The best so far is in *rate_out; 0: there is none. */
static enum zd_status rate_of(
        struct bench *bench, measured_fn *run, double much, double *rate_out)
{
    double seconds;
    ZD_TRY(time_of(bench, run, &seconds));
    if (seconds > 0)
        *rate_out = fmax(*rate_out, much / seconds);
    return ZD_OK;
}

/* `bytes` of an array of so many blocks, which few runs before have touched. */
static char *cold(const struct bench *b, char *array, int blocks, size_t bytes)
{
    size_t places = (size_t)blocks * BLOCK / bytes;
    return array + (places ? b->turns % places : 0) * bytes;
}

static char *cold_elements(const struct bench *b, char *array, int blocks)
{
    return cold(b, array, blocks, ELEMENTS * dtype_bytes(b->type));
}

/* --- products ------------------------------------------------------------- */

static enum zd_status product_forward(struct bench *b)
{
    size_t rows = (size_t)b->M * (size_t)b->N * dtype_bytes(b->type);
    size_t weight = (size_t)b->N * (size_t)b->N * dtype_bytes(b->type);
    b->turns++;
    return b->kernels->matmul(
            NULL, cold(b, b->y, 1, rows), b->type, b->x,
            cold(b, b->w, 2, weight), NULL, b->M, b->N, b->N, false, true,
            false);
}

static enum zd_status product_backward(struct bench *b)
{
    size_t rows = (size_t)b->M * (size_t)b->N * dtype_bytes(b->type);
    size_t weight = (size_t)b->N * (size_t)b->N;
    b->turns++;
    ZD_TRY(b->kernels->matmul(
            NULL, cold(b, b->z, 1, rows), b->type, b->y,
            cold(b, b->w, 2, weight * dtype_bytes(b->type)), NULL, b->M, b->N,
            b->N, false, false, false));
    return b->kernels->matmul(
            NULL, cold(b, b->dw, 2, weight * sizeof(float)), DTYPE_FP32, b->y,
            cold(b, b->x, 1, rows), NULL, b->N, b->N, b->M, true, false, false);
}

/* To what is there: fp32 is added to by the product itself, as adapter.c of
 * model does. */
static enum zd_status add_thin(struct bench *b, char *to, char *u, bool trans)
{
    const struct dropout none = {.T = 1};
    bool adds = b->type == DTYPE_FP32;
    char *wide = adds ? to : b->dw + BLOCK;
    ZD_TRY(b->kernels->matmul(
            NULL, wide, b->type, u, b->w, NULL, ROWS, COLUMNS, RANK, false,
            trans, adds));
    return adds ? ZD_OK
                : b->kernels->scale_rows(
                          NULL, to, COLUMNS, wide, ROWS, COLUMNS, 1, &none,
                          true);
}

/* An adapter's: two products that are thin on one side, .. */
static enum zd_status adapter_forward(struct bench *b)
{
    enum { N = COLUMNS, R = RANK };
    b->turns++;
    char *u = cold_elements(b, b->z, 1);
    ZD_TRY(b->kernels->matmul(
            NULL, u, b->type, b->x, b->w, NULL, ROWS, R, N, false, true,
            false));
    return add_thin(b, cold_elements(b, b->y, 1), u, true);
}

/* .. and for each two more. */
static enum zd_status adapter_backward(struct bench *b)
{
    enum { N = COLUMNS, R = RANK };
    const struct kernels *k = b->kernels;
    b->turns++;
    char *u = cold_elements(b, b->z, 1), *x = cold_elements(b, b->x, 1);
    float *db = (float *)b->dw, *da = db + N * R;
    ZD_TRY(k->matmul(
            NULL, db, DTYPE_FP32, b->y, u, NULL, N, R, ROWS, true, false,
            false));
    ZD_TRY(k->matmul(
            NULL, u, b->type, b->y, b->w, NULL, ROWS, R, N, false, false,
            false));
    ZD_TRY(k->matmul(
            NULL, da, DTYPE_FP32, u, x, NULL, R, N, ROWS, true, false, false));
    return add_thin(b, cold_elements(b, b->y, 1), u, false);
}

static enum zd_status measure_products(struct bench *b, int pass, double *rates)
{
    measured_fn *run =
            pass == RATE_FORWARD ? product_forward : product_backward;
    for (int t = 0; t < RATE_TOKENS; t++)
        for (int w = 0; w < RATE_WIDTHS; w++) {
            double *rate = &rates[t * RATE_WIDTHS + w];
            double before = w ? rate[-1] : t ? rate[-RATE_WIDTHS] : 0;
            b->M = plan_rate_tokens[t];
            b->N = plan_rate_widths[w];
            double flops = (pass == RATE_FORWARD ? 2.0 : 4.0) * b->M *
                           (double)b->N * b->N;
            if (before > 0 && flops / fmax(*rate, before) > 2 * b->share) {
                *rate = *rate > 0 ? *rate : before;
                continue;
            }
            ZD_TRY(rate_of(b, run, flops, rate));
            /* more rows are never slower: a search relies on it */
            if (t && *rate < rate[-RATE_WIDTHS])
                *rate = rate[-RATE_WIDTHS];
        }
    return ZD_OK;
}

/* --- attention ------------------------------------------------------------ */

static enum zd_status attend_forward(struct bench *b)
{
    return b->kernels->attention_forward(
            NULL, b->y, (float *)b->dw, b->x, b->x, b->x, b->zeros, b->scratch,
            &b->attention);
}

static enum zd_status attend_backward(struct bench *b)
{
    char *dk = b->z + BLOCK / 4, *dv = b->z + BLOCK / 2;
    return b->kernels->attention_backward(
            NULL, b->z, dk, dv, b->y, b->y, (float *)b->dw, b->x, b->x, b->x,
            b->zeros, b->scratch, &b->attention);
}

static void shape_attention(struct bench *b, int length)
{
    int rows = length < ROWS ? ROWS : length;
    b->attention = (struct attention_shape){
            .B = rows / length,
            .T = length,
            .H = HEADS,
            .KV = HEADS,
            .D = HEAD_DIM,
            .q_stride = HEADS * HEAD_DIM,
            .k_stride = HEADS * HEAD_DIM,
            .v_stride = HEADS * HEAD_DIM,
            .scale = 0.125f,
            .documents = rows / length};
}

static enum zd_status measure_attention(
        struct bench *b, struct plan_rates *rates)
{
    for (int i = 0; i < RATE_LENGTHS; i++) {
        shape_attention(b, plan_rate_lengths[i]);
        double flops = 2.0 * b->attention.B * b->attention.T * b->attention.T *
                       HEADS * HEAD_DIM;
        ZD_TRY(rate_of(
                b, attend_forward, flops, &rates->attention[RATE_FORWARD][i]));
        ZD_TRY(
                rate_of(b, attend_backward, 2 * flops,
                        &rates->attention[RATE_BACKWARD][i]));
    }
    return ZD_OK;
}

/* --- elements ------------------------------------------------------------- */

static enum zd_status norm_forward(struct bench *b)
{
    b->turns++;
    return b->kernels->rmsnorm_forward(
            NULL, cold_elements(b, b->y, 1), (float *)b->dw, b->x, b->w, 1e-5f,
            ROWS, COLUMNS);
}

static enum zd_status norm_backward(struct bench *b)
{
    b->turns++;
    return b->kernels->rmsnorm_backward(
            NULL, cold_elements(b, b->z, 1), (float *)(b->dw + BLOCK), b->y,
            NULL, cold_elements(b, b->x, 1), b->w, (float *)b->dw, ROWS,
            COLUMNS, true);
}

static enum zd_status act_forward(struct bench *b)
{
    b->turns++;
    return b->kernels->swiglu_forward(
            NULL, cold_elements(b, b->z, 1), b->x, b->y, ROWS, COLUMNS,
            COLUMNS);
}

static enum zd_status act_backward(struct bench *b)
{
    b->turns++;
    return b->kernels->swiglu_backward(
            NULL, cold_elements(b, b->z, 1), cold_elements(b, b->dw, 2), b->w,
            cold_elements(b, b->x, 1), cold_elements(b, b->y, 1), ROWS, COLUMNS,
            COLUMNS);
}

static enum zd_status add_two(struct bench *b)
{
    b->turns++;
    return b->kernels->add(
            NULL, cold_elements(b, b->z, 1), b->x, cold_elements(b, b->y, 1),
            ELEMENTS);
}

static enum zd_status add_large(struct bench *b)
{
    size_t count = (size_t)BLOCK / dtype_bytes(b->type);
    return b->kernels->add(NULL, b->z, b->x, b->y, count);
}

static enum zd_status rotate(struct bench *b)
{
    return b->kernels->rope(
            NULL, b->z, (float *)b->dw, (float *)b->dw, b->zeros, ROWS,
            COLUMNS / HEAD_DIM, HEAD_DIM, COLUMNS, false);
}

static enum zd_status lose(struct bench *b)
{
    enum { VOCABULARY = 4096, TOKENS = ELEMENTS / VOCABULARY };
    b->turns++;
    return b->kernels->cross_entropy(
            NULL, (float *)b->dw, cold_elements(b, b->y, 1),
            cold_elements(b, b->w, 2), b->zeros, 1e-3f, TOKENS, VOCABULARY,
            VOCABULARY);
}

static enum zd_status least_product(struct bench *b)
{
    return b->kernels->matmul(
            NULL, b->y, b->type, b->x, b->w, NULL, 8, 16, 16, false, true,
            false);
}

static enum zd_status measure_elements(
        struct bench *b, struct plan_rates *rates)
{
    const struct {
        measured_fn *run;
        double *rate;
    } all[] = {
            {norm_forward, &rates->norm[RATE_FORWARD]},
            {norm_backward, &rates->norm[RATE_BACKWARD]},
            {act_forward, &rates->activation[RATE_FORWARD]},
            {act_backward, &rates->activation[RATE_BACKWARD]},
            {add_two, &rates->add},
            {rotate, &rates->rope},
            {lose, &rates->loss}};
    const double thin = 4.0 * ROWS * COLUMNS * RANK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ZD_TRY(rate_of(b, all[i].run, ELEMENTS, all[i].rate));
    ZD_TRY(rate_of(b, adapter_forward, thin, &rates->adapter[RATE_FORWARD]));
    return rate_of(
            b, adapter_backward, 2 * thin, &rates->adapter[RATE_BACKWARD]);
}

/* --- the optimizer -------------------------------------------------------- */

static enum zd_status update(struct bench *b)
{
    b->step.t++;
    return optim_device()->update(&b->span, &b->step);
}

static enum zd_status squares(struct bench *b)
{
    return optim_device()->add_squares(
            (struct exact_sum *)b->dw, b->w, b->type, UPDATED);
}

static enum zd_status narrow(struct bench *b)
{
    return optim_device()->convert(b->w, b->type, b->dw, DTYPE_FP32, UPDATED);
}

static enum zd_status clear_lanes(struct bench *b)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        ZD_TRY(optim_device()->lane_clear(
                (enum optim_lane)lane, b->span.layout.lane[lane],
                b->span.lanes.state[lane], b->span.lanes.scale[lane], UPDATED));
    return ZD_OK;
}

static enum zd_status measure_update(
        struct bench *b, enum optim_state_type states, double *rate)
{
    static const struct tensor_blocks none;
    b->options.state_type = states;
    bool has_master = b->type != DTYPE_FP32;
    b->span = (struct optim_span){
            .master = b->x,
            .master_type = DTYPE_FP32,
            .grad = b->w,
            .grad_type = b->type,
            .param = has_master ? b->w + BLOCK : NULL,
            .param_type = b->type,
            .layout = optim_layout_of(&b->options, UPDATED, false, &none),
            .lanes =
                    {.state = {b->y, b->z},
                     .scale = {(float *)b->dw, (float *)(b->dw + BLOCK)}},
            .count = UPDATED,
            .decays = true};
    b->step = (struct optim_step){
            .options = &b->options, .learning_rate = 1e-4, .grad_scale = 1};
    ZD_TRY(clear_lanes(b));
    return rate_of(b, update, UPDATED, rate);
}

static enum zd_status measure_optimizer(
        struct bench *b, struct plan_rates *rates)
{
    b->options = optim_options_default();
    ZD_TRY(measure_update(b, OPTIM_STATE_FP32, &rates->update));
    ZD_TRY(measure_update(b, OPTIM_STATE_8BIT, &rates->update_8bit));
    ZD_TRY(device_clear(b->dw, sizeof(struct exact_sum)));
    ZD_TRY(rate_of(b, squares, UPDATED, &rates->squares));
    rates->round = 0;
    return b->type == DTYPE_FP32 ? ZD_OK
                                 : rate_of(b, narrow, UPDATED, &rates->round);
}

/* --- memory --------------------------------------------------------------- */

static enum zd_status fill(struct bench *b)
{
    enum { PIECE = 1 << 16 };
    size_t width = dtype_bytes(b->type), pieces = (size_t)BLOCK / width / PIECE;
    float *floats = malloc(PIECE * sizeof *floats);
    char *narrow = malloc(PIECE * sizeof *floats);
    enum zd_status status = floats && narrow ? ZD_OK : ZD_ERR_MEMORY;
    uint32_t state = 1;
    for (int i = 0; status == ZD_OK && i < PIECE; i++) {
        state = state * 1664525u + 1013904223u;
        floats[i] = (float)(int32_t)state * 0x1p-31f;
    }
    if (status == ZD_OK)
        dtype_convert(narrow, b->type, floats, DTYPE_FP32, PIECE);
    else
        ZD_FAIL(status, "E0602", "out of memory calibrating");
    char *const arrays[] = {b->x, b->y, b->z, b->w, b->dw};
    for (int a = 0; a < 5; a++)
        for (size_t p = 0; p < pieces && status == ZD_OK; p++)
            status = device_write(
                    arrays[a] + p * PIECE * width, narrow, PIECE * width);
    free(floats);
    free(narrow);
    return status;
}

static void give(struct bench *b)
{
    kernels_set_workspace(NULL, 0);
    if (b->x)
        device_give(b->x, 7 * (size_t)BLOCK);
    if (b->zeros)
        device_give(b->zeros, TOKENS_MAX * sizeof *b->zeros);
    if (b->scratch)
        device_give(b->scratch, b->scratch_bytes);
    if (b->workspace)
        device_give(b->workspace, b->workspace_bytes);
}

static enum zd_status take_scratch(struct bench *b)
{
    for (int i = 0; i < RATE_LENGTHS; i++)
        for (int t = DTYPE_FP32; t <= DTYPE_BF16; t++) {
            shape_attention(b, plan_rate_lengths[i]);
            size_t bytes = attention_scratch_bytes(
                    &b->attention, (enum dtype)t, device_backend());
            if (bytes > b->scratch_bytes)
                b->scratch_bytes = bytes;
        }
    const struct kernels_request request = {
            .backend = device_backend(),
            .dtype = DTYPE_FP32,
            .N = TOKENS_MAX,
            .C = WIDTH_MAX,
            .columns = WIDTH_MAX,
            .V = WIDTH_MAX};
    b->workspace_bytes = kernels_workspace_bytes(&request);
    if (b->scratch_bytes)
        ZD_TRY(device_take(b->scratch_bytes, &b->scratch));
    if (!b->workspace_bytes)
        return ZD_OK;
    ZD_TRY(device_take(b->workspace_bytes, &b->workspace));
    kernels_set_workspace(b->workspace, b->workspace_bytes);
    return ZD_OK;
}

static enum zd_status take(struct bench *b)
{
    void *all = NULL, *zeros = NULL;
    ZD_TRY(device_take(7 * (size_t)BLOCK, &all));
    b->x = all;
    b->y = b->x + BLOCK;
    b->z = b->y + BLOCK;
    b->w = b->z + BLOCK;
    b->dw = b->w + 2 * (size_t)BLOCK;
    ZD_TRY(device_take(TOKENS_MAX * sizeof *b->zeros, &zeros));
    b->zeros = zeros;
    return take_scratch(b);
}

/* --- all of it ------------------------------------------------------------ */

static enum zd_status measure_type(
        struct bench *b, enum dtype type, struct plan_rates *rates)
{
    b->type = type;
    ZD_TRY(kernels_device(type, &b->kernels));
    ZD_TRY(fill(b));
    ZD_TRY(measure_products(b, RATE_FORWARD, rates->products[RATE_FORWARD][0]));
    ZD_TRY(measure_products(
            b, RATE_BACKWARD, rates->products[RATE_BACKWARD][0]));
    /* What products left there is no value, gradient or state that a run has:
     * out of the range that codes of 8 bits have, an update is 20 times slower.
     */
    ZD_TRY(fill(b));
    ZD_TRY(measure_elements(b, rates));
    ZD_TRY(fill(b));
    ZD_TRY(measure_attention(b, rates));
    ZD_TRY(fill(b));
    return measure_optimizer(b, rates);
}

static enum zd_status measure_device(
        struct bench *b, struct plan_calibration *out)
{
    enum { OPERATIONS = 12 }; /* of a layer, beside its work */
    double seconds, least = INFINITY;
    ZD_TRY(take(b));
    for (int sweep = 0; sweep < b->sweeps; sweep++) {
        ZD_TRY(measure_type(b, DTYPE_FP32, &out->rates[1]));
        ZD_TRY(rate_of(b, add_large, 3.0 * BLOCK, &out->machine.memory));
        ZD_TRY(measure_type(b, DTYPE_BF16, &out->rates[0]));
        ZD_TRY(time_of(b, least_product, &seconds));
        least = fmin(least, seconds);
    }
    out->machine.launch = OPERATIONS * least;
    const double(*fp32)[RATE_WIDTHS] = out->rates[1].products[RATE_FORWARD];
    const double(*bf16)[RATE_WIDTHS] = out->rates[0].products[RATE_FORWARD];
    out->machine.products_32 = fp32[RATE_TOKENS - 1][RATE_WIDTHS - 1];
    out->machine.products_16 = bf16[RATE_TOKENS - 1][RATE_WIDTHS - 1];
    return ZD_OK;
}

static double ratio(double sum, double count)
{
    return sum / count;
}

/* All ranks measured at once: what a run of theirs would have. */
static enum zd_status take_means(
        struct comm *comm, struct plan_calibration *calibration)
{
    struct plan_rates mine[RATE_TYPES];
    enum { NUMBERS = sizeof(mine) / (sizeof(double)) };
    int size = comm_size(comm);
    void *all;
    memcpy(mine, calibration->rates, sizeof mine);
    ZD_TRY(comm_gather_new(comm, mine, sizeof mine, &all));
    double *sums = (double *)calibration->rates;
    memset(sums, 0, sizeof mine);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < NUMBERS; i++)
            sums[i] += ((const double *)all)[r * NUMBERS + i];
    for (int i = 0; i < NUMBERS; i++)
        sums[i] = ratio(sums[i], size);
    free(all);
    return ZD_OK;
}

enum zd_status calibration_measure(
        struct comm *comm, double seconds, int threads,
        struct plan_calibration *out)
{
    enum {
        THINGS = 2 * (2 * RATE_TOKENS * RATE_WIDTHS + 2 * RATE_LENGTHS + 13)
    };
    struct bench bench = {.sweeps = seconds < SWEEPS ? 1 : SWEEPS};
    bench.share = 0.8 * seconds / THINGS / bench.sweeps;
    struct device_facts facts = device_facts();
    *out = (struct plan_calibration){
            .ranks = comm_local_size(comm),
            .threads = threads,
            .backend = device_backend(),
            .machine = *plan_machine_default(device_backend())};
    out->machine.memory = 0;
    kernels_set_threads(threads);
    enum zd_status status = measure_device(&bench, out);
    give(&bench);
    status = comm_agree(comm, status);
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
