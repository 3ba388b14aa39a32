/* calibrate_layer.c - what a layer does beside matmuls: attention and what
 * passes through memory; updates of parameters; and layers as a whole. */
#include "base/device/device_memory.h"
#include "train/plan/calibrate.h"

#include <math.h>

enum { HEADS = 4, HEAD_DIM = 64 };

static char *cold(const struct bench *b, char *array, int blocks)
{
    return bench_cold(b, array, blocks, BENCH_ELEMENTS * dtype_bytes(b->type));
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

void bench_shape_attention(struct bench *b, int length)
{
    int rows = length < b->rows ? b->rows : length;
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

enum zd_status calibrate_attention(struct bench *b, struct plan_rates *rates)
{
    for (int i = 0; i < RATE_LENGTHS; i++) {
        bench_shape_attention(b, plan_rate_lengths[i]);
        double flops = 2.0 * b->attention.B * b->attention.T * b->attention.T *
                       HEADS * HEAD_DIM;
        ZD_TRY(bench_rate(
                b, attend_forward, flops, &rates->attention[RATE_FORWARD][i]));
        ZD_TRY(bench_rate(
                b, attend_backward, 2 * flops,
                &rates->attention[RATE_BACKWARD][i]));
    }
    return ZD_OK;
}

/* --- elements ------------------------------------------------------------- */

static enum zd_status norm_forward(struct bench *b)
{
    b->turns++;
    return b->kernels->rmsnorm_forward(
            NULL, cold(b, b->y, 1), (float *)b->dw, b->x, b->w, 1e-5f, b->rows,
            BENCH_COLUMNS);
}

static enum zd_status norm_backward(struct bench *b)
{
    b->turns++;
    return b->kernels->rmsnorm_backward(
            NULL, cold(b, b->z, 1), (float *)(b->dw + BENCH_BLOCK), b->y, NULL,
            cold(b, b->x, 1), b->w, (float *)b->dw, b->rows, BENCH_COLUMNS,
            true);
}

static enum zd_status act_forward(struct bench *b)
{
    b->turns++;
    return b->kernels->swiglu_forward(
            NULL, cold(b, b->z, 1), b->x, b->y, b->rows, BENCH_COLUMNS,
            BENCH_COLUMNS);
}

static enum zd_status act_backward(struct bench *b)
{
    b->turns++;
    return b->kernels->swiglu_backward(
            NULL, cold(b, b->z, 1), cold(b, b->dw, 2), b->w, cold(b, b->x, 1),
            cold(b, b->y, 1), b->rows, BENCH_COLUMNS, BENCH_COLUMNS);
}

static enum zd_status add_two(struct bench *b)
{
    b->turns++;
    return b->kernels->add(
            NULL, cold(b, b->z, 1), b->x, cold(b, b->y, 1),
            (size_t)b->rows * BENCH_COLUMNS);
}

enum zd_status bench_add_large(struct bench *b)
{
    size_t count = (size_t)BENCH_BLOCK / dtype_bytes(b->type);
    return b->kernels->add(NULL, b->z, b->x, b->y, count);
}

static enum zd_status rotate(struct bench *b)
{
    return b->kernels->rope(
            NULL, b->z, (float *)b->dw, (float *)b->dw, b->zeros, b->rows,
            BENCH_COLUMNS / HEAD_DIM, HEAD_DIM, BENCH_COLUMNS, false);
}

static enum zd_status lose(struct bench *b)
{
    enum { VOCABULARY = 4096, TOKENS = BENCH_ELEMENTS / VOCABULARY };
    b->turns++;
    return b->kernels->cross_entropy(
            NULL, (float *)b->dw, cold(b, b->y, 1), cold(b, b->w, 2), b->zeros,
            1e-3f, TOKENS, VOCABULARY, VOCABULARY);
}

enum zd_status calibrate_elements(struct bench *b, struct plan_rates *rates)
{
    const struct {
        bench_fn *run;
        double *rate;
    } all[] = {
            {norm_forward, &rates->norm[RATE_FORWARD]},
            {norm_backward, &rates->norm[RATE_BACKWARD]},
            {act_forward, &rates->activation[RATE_FORWARD]},
            {act_backward, &rates->activation[RATE_BACKWARD]},
            {add_two, &rates->add},
            {rotate, &rates->rope},
            {lose, &rates->loss}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ZD_TRY(bench_rate(b, all[i].run, BENCH_ELEMENTS, all[i].rate));
    return ZD_OK;
}

/* --- updates -------------------------------------------------------------- */

enum { UPDATED = BENCH_BLOCK / 4 }; /* elements, which no cache holds */

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
    ZD_TRY(clear_lanes(b));
    return bench_rate(b, update, UPDATED, rate);
}

enum zd_status calibrate_update(struct bench *b, struct plan_rates *rates)
{
    b->options = optim_options_default();
    ZD_TRY(measure_update(b, OPTIM_STATE_FP32, &rates->update));
    ZD_TRY(measure_update(b, OPTIM_STATE_8BIT, &rates->update_8bit));
    ZD_TRY(device_clear(b->dw, sizeof(struct exact_sum)));
    ZD_TRY(bench_rate(b, squares, UPDATED, &rates->squares));
    rates->round = 0;
    return b->type == DTYPE_FP32
                   ? ZD_OK
                   : bench_rate(b, narrow, UPDATED, &rates->round);
}

/* --- all of a layer ------------------------------------------------------- */

static enum zd_status forward(struct bench *b)
{
    b->kind = RATE_FORWARD;
    return bench_product(b);
}

/* For the weight and for the input. */
static enum zd_status backward(struct bench *b)
{
    b->kind = RATE_WEIGHTS;
    ZD_TRY(bench_product(b));
    b->kind = RATE_BACKWARD;
    return bench_product(b);
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
    for (bench_fn *const *run = layer[b->pass]; *run; run++)
        ZD_TRY((*run)(b));
    return ZD_OK;
}

/* Of a small layer and a larger one; rows and sides that products were measured
 * with. */
void bench_shape_layer(struct bench *b, int size)
{
    b->rows = plan_rate_tokens[size];
    b->M = b->rows;
    b->N = plan_rate_widths[size + 1];
    bench_shape_attention(b, b->rows < 64 ? b->rows : 64);
}

enum zd_status calibrate_layers(
        struct bench *b, double seconds[RATE_PASSES][BENCH_LAYERS])
{
    enum zd_status status = ZD_OK;
    for (b->pass = 0; b->pass < RATE_PASSES; b->pass++)
        for (int size = 0; size < BENCH_LAYERS && status == ZD_OK; size++) {
            double took, *least = &seconds[b->pass][size];
            bench_shape_layer(b, size);
            status = bench_time(b, run_layer, &took);
            if (status == ZD_OK)
                *least = fmin(*least, took);
        }
    b->rows = BENCH_ROWS;
    return status;
}

/* What its operations take by the rates of each. */
static double parts_of_layer(const struct plan_rates *rates, int pass, int size)
{
    double rows = plan_rate_tokens[size], width = plan_rate_widths[size + 1];
    double flops = 7 * 2 * rows * width * width,
           elements = rows * BENCH_COLUMNS,
           attended = 2 * rows * fmin(rows, 64) * HEADS * HEAD_DIM;
    double seconds = flops / rates->products[pass][size][size + 1] +
                     2 * elements / rates->norm[pass] +
                     elements / rates->activation[pass] +
                     2 * elements / rates->add + elements / rates->rope +
                     (1 + pass) * attended / rates->attention[pass][0];
    if (pass == RATE_BACKWARD)
        seconds += flops / rates->products[RATE_WEIGHTS][size][size + 1];
    return seconds;
}

/* A line through both. */
void calibrate_whole(
        double seconds[RATE_PASSES][BENCH_LAYERS], struct plan_rates *rates)
{
    const double least = 1, most = 2;
    for (int pass = 0; pass < RATE_PASSES; pass++) {
        double small = parts_of_layer(rates, pass, 0),
               large = parts_of_layer(rates, pass, 1);
        double share = (seconds[pass][1] - seconds[pass][0]) / (large - small);
        if (!(share > least))
            share = least;
        rates->whole[pass] = share < most ? share : most;
        rates->begin[pass] =
                fmax(0, seconds[pass][0] - rates->whole[pass] * small);
    }
}
