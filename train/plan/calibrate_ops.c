/* calibrate_ops.c - operations of a layer and of an update, how long they take,
 * and places for them to work on. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "train/plan/calibrate.h"
#include "train/plan/cost.h"

#include <math.h>

enum { HEADS = 4, HEAD_DIM = 64, UPDATED = BENCH_BLOCK / 4 /* elements */ };

/* --- how long ------------------------------------------------------------- */

/* Seconds of one run, the mean of many. */
static enum zd_status time_of(
        struct bench *b, bench_fn *run, double *seconds_out)
{
    double all = 0, runs = 0;
    int times = 1;
    ZD_TRY(run(b)); /* touches what it needs */
    ZD_TRY(device_finish());
    do {
        double began = clock_seconds();
        for (int i = 0; i < times; i++, b->turns++)
            ZD_TRY(run(b));
        ZD_TRY(device_finish());
        double took = clock_seconds() - began;
        all += took;
        runs += times;
        if (took < b->share / 16 && times < 1 << 16)
            times *= 2;
    } while (all < b->share);
    *seconds_out = all / runs;
    return ZD_OK;
}

enum zd_status bench_rate(
        struct bench *b, bench_fn *run, double much, double *rate_out)
{
    double seconds;
    ZD_TRY(time_of(b, run, &seconds));
    if (seconds > 0)
        *rate_out = fmax(*rate_out, much / seconds);
    return ZD_OK;
}

/* `bytes` of an array of so many blocks that recent runs have not touched. */
static char *cold_bytes(
        const struct bench *b, char *array, int blocks, size_t bytes)
{
    size_t places = (size_t)blocks * BENCH_BLOCK / bytes;
    return array + (places ? b->turns % places : 0) * bytes;
}

/* --- matmuls -------------------------------------------------------------- */

/* Rows of x, or of the gradient of its output in y, times the weight or the
 * rows. */
enum zd_status bench_matmul(struct bench *b)
{
    size_t width = dtype_bytes(b->type), N = (size_t)b->N;
    size_t rows = (size_t)b->M * N * width, weight = N * N * width;
    bool is_forward = b->kind == RATE_FORWARD;
    struct matmul m = {.M = b->M, .N = b->N, .K = b->N};
    m.a = (struct matmul_operand){is_forward ? b->x : b->y, b->type};
    if (b->kind == RATE_WEIGHTS) {
        m.M = b->N, m.K = b->M;
        m.a.transposed = true;
        m.b = (struct matmul_operand){cold_bytes(b, b->x, 1, rows), b->type};
        m.out = (struct matmul_result){
                cold_bytes(b, b->dw, 2, N * N * sizeof(float)), DTYPE_FP32};
    } else {
        m.b = (struct matmul_operand){
                cold_bytes(b, b->w, 2, weight), b->type, is_forward};
        m.out = (struct matmul_result){
                cold_bytes(b, is_forward ? b->y : b->z, 1, rows), b->type};
    }
    return b->kernels->matmul(NULL, &m);
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
    ZD_TRY(bench_rate(b, bench_matmul, flops, rate));
    /* more rows are never slower: a search relies on it */
    if (t)
        *rate = fmax(*rate, rate[-RATE_WIDTHS]);
    return ZD_OK;
}

static enum zd_status measure_matmuls(struct bench *b, struct plan_rates *rates)
{
    for (b->kind = 0; b->kind < RATE_PRODUCTS; b->kind++)
        for (int t = 0; t < RATE_TOKENS; t++)
            for (int w = 0; w < RATE_WIDTHS; w++)
                ZD_TRY(measure_shape(b, t, w, &rates->products[b->kind][t][w]));
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
    char *dk = b->z + BENCH_BLOCK / 4, *dv = b->z + BENCH_BLOCK / 2;
    return b->kernels->attention_backward(
            NULL, b->z, dk, dv, b->y, b->y, (float *)b->dw, b->x, b->x, b->x,
            b->zeros, b->scratch, &b->attention);
}

void bench_shape_attention(struct bench *b, int rows, int length)
{
    int B = rows > length ? rows / length : 1;
    b->attention = (struct attention_shape){
            .B = B,
            .T = length,
            .H = HEADS,
            .KV = HEADS,
            .D = HEAD_DIM,
            .q_stride = HEADS * HEAD_DIM,
            .k_stride = HEADS * HEAD_DIM,
            .v_stride = HEADS * HEAD_DIM,
            .scale = 0.125f,
            .documents = B};
}

static enum zd_status measure_attention(
        struct bench *b, struct plan_rates *rates)
{
    static bench_fn *const passes[RATE_PASSES] = {
            attend_forward, attend_backward};
    for (int i = 0; i < RATE_LENGTHS; i++) {
        bench_shape_attention(b, BENCH_ROWS, plan_rate_lengths[i]);
        double flops = 2.0 * b->attention.B * b->attention.T * b->attention.T *
                       HEADS * HEAD_DIM;
        for (int pass = 0; pass < RATE_PASSES; pass++)
            ZD_TRY(bench_rate(
                    b, passes[pass], (1 + pass) * flops,
                    &rates->attention[pass][i]));
    }
    return ZD_OK;
}

/* --- updates of more elements than a cache holds -------------------------- */

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

static enum zd_status measure_update(
        struct bench *b, enum optim_state_type states, double *rate)
{
    static const struct tensor_blocks none;
    b->options = optim_options_default();
    b->options.state_type = states;
    bool has_master = b->type != DTYPE_FP32;
    b->span = (struct optim_span){
            .master = b->x,
            .master_type = DTYPE_FP32,
            .grad = b->w,
            .grad_type = b->type,
            .param = has_master ? b->w + BENCH_BLOCK : NULL,
            .param_type = b->type,
            .layout = optim_layout_of(&b->options, UPDATED, false, &none),
            .lanes =
                    {.state = {b->y, b->z},
                     .scale = {(float *)b->dw, (float *)(b->dw + BENCH_BLOCK)}},
            .count = UPDATED,
            .decays = true};
    b->step = (struct optim_step){
            .options = &b->options, .learning_rate = 1e-4, .grad_scale = 1};
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        ZD_TRY(optim_device()->lane_clear(
                (enum optim_lane)lane, b->span.layout.lane[lane],
                b->span.lanes.state[lane], b->span.lanes.scale[lane], UPDATED));
    return bench_rate(b, update, UPDATED, rate);
}

static enum zd_status measure_updates(struct bench *b, struct plan_rates *rates)
{
    ZD_TRY(measure_update(b, OPTIM_STATE_FP32, &rates->update));
    ZD_TRY(measure_update(b, OPTIM_STATE_8BIT, &rates->update_8bit));
    ZD_TRY(device_clear(b->dw, sizeof(struct exact_sum)));
    ZD_TRY(bench_rate(b, squares, UPDATED, &rates->squares));
    rates->round = 0;
    return b->type == DTYPE_FP32
                   ? ZD_OK
                   : bench_rate(b, narrow, UPDATED, &rates->round);
}

enum zd_status (*const bench_parts[BENCH_PARTS])(
        struct bench *, struct plan_rates *) = {
        measure_matmuls, measure_attention, measure_updates};

/* --- all of a layer ------------------------------------------------------- */

static char *cold(const struct bench *b, char *array, int blocks)
{
    return cold_bytes(
            b, array, blocks,
            (size_t)BENCH_ROWS * BENCH_COLUMNS * dtype_bytes(b->type));
}

static enum zd_status norm_forward(struct bench *b)
{
    return b->kernels->rmsnorm_forward(
            NULL, cold(b, b->y, 1), (float *)b->dw, b->x, b->w, 1e-5f,
            RMSNORM_ROUND_FIRST, b->M, BENCH_COLUMNS);
}

static enum zd_status norm_backward(struct bench *b)
{
    return b->kernels->rmsnorm_backward(
            NULL, cold(b, b->z, 1), (float *)(b->dw + BENCH_BLOCK), b->y, NULL,
            cold(b, b->x, 1), b->w, (float *)b->dw, RMSNORM_ROUND_FIRST, b->M,
            BENCH_COLUMNS, true);
}

static enum zd_status act_forward(struct bench *b)
{
    return b->kernels->swiglu_forward(
            NULL, cold(b, b->z, 1), b->x, b->y, b->M, BENCH_COLUMNS,
            BENCH_COLUMNS);
}

static enum zd_status act_backward(struct bench *b)
{
    return b->kernels->swiglu_backward(
            NULL, cold(b, b->z, 1), cold(b, b->dw, 2), b->w, cold(b, b->x, 1),
            cold(b, b->y, 1), b->M, BENCH_COLUMNS, BENCH_COLUMNS);
}

static enum zd_status add_two(struct bench *b)
{
    return b->kernels->add(
            NULL, cold(b, b->z, 1), b->x, cold(b, b->y, 1),
            (size_t)b->M * BENCH_COLUMNS);
}

enum zd_status bench_add_large(struct bench *b)
{
    size_t count = (size_t)BENCH_BLOCK / dtype_bytes(b->type);
    return b->kernels->add(NULL, b->z, b->x, b->y, count);
}

static enum zd_status rotate(struct bench *b)
{
    const struct rope_angles angles = {
            .cosine = (float *)b->dw,
            .sine = (float *)b->dw,
            .positions = b->zeros};
    return b->kernels->rope(
            NULL, b->z, &angles, b->M, BENCH_COLUMNS / HEAD_DIM, HEAD_DIM,
            BENCH_COLUMNS, false);
}

static enum zd_status forward(struct bench *b)
{
    b->kind = RATE_FORWARD;
    return bench_matmul(b);
}

/* For the weight and for the input. */
static enum zd_status backward(struct bench *b)
{
    b->kind = RATE_WEIGHTS;
    ZD_TRY(bench_matmul(b));
    b->kind = RATE_BACKWARD;
    return bench_matmul(b);
}

static bench_fn *const layer[RATE_PASSES][20] = {
        {norm_forward, forward, forward, forward, rotate, attend_forward,
         forward, add_two, norm_forward, forward, forward, act_forward, forward,
         add_two},
        {backward, act_backward, backward, backward, norm_backward, add_two,
         backward, attend_backward, rotate, backward, backward, backward,
         norm_backward, add_two}};

static enum zd_status run_layer(struct bench *b)
{
    for (bench_fn *const *run = layer[b->pass]; *run; run++, b->turns++)
        ZD_TRY((*run)(b));
    return ZD_OK;
}

/* A small layer and a larger one; rows and sides that matmuls were measured
 * with. */
void bench_shape_layer(struct bench *b, int size)
{
    b->M = plan_rate_tokens[size];
    b->N = plan_rate_widths[size + 1];
    bench_shape_attention(b, b->M, b->M < 64 ? b->M : 64);
}

enum zd_status calibrate_layers(
        struct bench *b, double seconds[RATE_PASSES][BENCH_LAYERS])
{
    for (b->pass = 0; b->pass < RATE_PASSES; b->pass++)
        for (int size = 0; size < BENCH_LAYERS; size++) {
            double took;
            bench_shape_layer(b, size);
            ZD_TRY(time_of(b, run_layer, &took));
            seconds[b->pass][size] = fmin(seconds[b->pass][size], took);
        }
    return ZD_OK;
}

/* What its operations take: as cost.c counts them. */
static double parts_of_layer(
        const struct plan_rates *rates, double width, double memory, int pass,
        int size)
{
    double rows = plan_rate_tokens[size], side = plan_rate_widths[size + 1];
    double flops = 7 * 2 * rows * side * side,
           moved = rows * BENCH_COLUMNS * width,
           attended = 2 * rows * fmin(rows, 64) * HEADS * HEAD_DIM;
    double seconds =
            flops / rates->products[pass][size][size + 1] +
            (1 + pass) * (2 * NORM_MOVES + ACTIVATION_MOVES + 2 * ADD_MOVES) *
                    moved / memory +
            (1 + pass) * attended / rates->attention[pass][0];
    if (pass == RATE_BACKWARD)
        seconds += flops / rates->products[RATE_WEIGHTS][size][size + 1];
    return seconds;
}

/* A line through both. */
void calibrate_whole(
        double seconds[RATE_PASSES][BENCH_LAYERS], double width, double memory,
        struct plan_rates *rates)
{
    const double least = 1, most = 3;
    for (int pass = 0; pass < RATE_PASSES; pass++) {
        double small = parts_of_layer(rates, width, memory, pass, 0),
               large = parts_of_layer(rates, width, memory, pass, 1);
        double share = (seconds[pass][1] - seconds[pass][0]) / (large - small);
        rates->whole[pass] = !(share > least) ? least : fmin(share, most);
        rates->begin[pass] =
                fmax(0, seconds[pass][0] - rates->whole[pass] * small);
    }
}
