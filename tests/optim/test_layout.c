#include "optim/codec.h"

#include "base/number/rng.h"

#include <criterion/criterion.h>
#include <math.h>

static const struct tensor_blocks matrix = {
        .rows = 100,
        .columns = 50,
        .section_count = 1,
        .sections = {{0, 1, 0}},
        .count = 100};
static const struct tensor_blocks bias = {
        .rows = 5000,
        .columns = 1,
        .section_count = 1,
        .sections = {{0, 1, 0}},
        .count = 5000};

static struct optim_options options_of(
        enum optim_name name, enum optim_state_type type)
{
    struct optim_options o = optim_options_default();
    o.name = name;
    o.state_type = type;
    return o;
}

static void expect_layout(
        const struct optim_options *o, size_t count, bool is_embedding,
        const struct tensor_blocks *blocks, enum optim_format m,
        enum optim_format v)
{
    struct optim_layout l = optim_layout_of(o, count, is_embedding, blocks);
    cr_expect(
            l.lane[OPTIM_M] == m && l.lane[OPTIM_V] == v,
            "optimizer %d, states %d, %zu elements: %d %d, not %d %d", o->name,
            o->state_type, count, l.lane[OPTIM_M], l.lane[OPTIM_V], m, v);
}

Test(layout, each_optimizer_has_its_lanes)
{
    static const struct {
        enum optim_name name;
        enum optim_state_type type;
        double momentum;
        const struct tensor_blocks *blocks;
        enum optim_format m, v;
    } rows[] = {
            {OPTIM_ADAMW, OPTIM_STATE_FP32, 0, NULL, OPTIM_FP32, OPTIM_FP32},
            {OPTIM_ADAMW, OPTIM_STATE_BF16, 0, NULL, OPTIM_BF16, OPTIM_BF16},
            {OPTIM_ADAMW, OPTIM_STATE_8BIT, 0, NULL, OPTIM_8BIT, OPTIM_8BIT},
            {OPTIM_ADAM_MINI, OPTIM_STATE_FP32, 0, &matrix, OPTIM_FP32,
             OPTIM_BLOCKS},
            {OPTIM_ADAM_MINI, OPTIM_STATE_FP32, 0, &bias, OPTIM_FP32,
             OPTIM_FP32},
            {OPTIM_ADAM_MINI, OPTIM_STATE_8BIT, 0, &matrix, OPTIM_8BIT,
             OPTIM_BLOCKS},
            {OPTIM_ADAM_MINI, OPTIM_STATE_8BIT, 0, &bias, OPTIM_8BIT,
             OPTIM_FP32},
            {OPTIM_LION, OPTIM_STATE_FP32, 0, NULL, OPTIM_FP32, OPTIM_NONE},
            {OPTIM_LION, OPTIM_STATE_8BIT, 0, NULL, OPTIM_8BIT, OPTIM_NONE},
            {OPTIM_SGD, OPTIM_STATE_FP32, 0, NULL, OPTIM_NONE, OPTIM_NONE},
            {OPTIM_SGD, OPTIM_STATE_FP32, 0.9, NULL, OPTIM_FP32, OPTIM_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct optim_options o = options_of(rows[i].name, rows[i].type);
        o.momentum = rows[i].momentum;
        expect_layout(&o, 5000, false, rows[i].blocks, rows[i].m, rows[i].v);
    }
}

Test(layout, small_tensors_and_embeddings_keep_fp32)
{
    struct optim_options o = options_of(OPTIM_ADAMW, OPTIM_STATE_8BIT);
    expect_layout(&o, 4095, false, NULL, OPTIM_FP32, OPTIM_FP32);
    expect_layout(&o, 4096, false, NULL, OPTIM_8BIT, OPTIM_8BIT);
    expect_layout(&o, 5000, true, NULL, OPTIM_FP32, OPTIM_FP32);
    o.stable_embedding = false;
    expect_layout(&o, 5000, true, NULL, OPTIM_8BIT, OPTIM_8BIT);
    expect_layout(&o, 4095, true, NULL, OPTIM_FP32, OPTIM_FP32);
    o = options_of(OPTIM_ADAM_MINI, OPTIM_STATE_8BIT);
    expect_layout(&o, 5000, true, &matrix, OPTIM_FP32, OPTIM_BLOCKS);
}

Test(layout, lanes_have_their_bytes_and_scales)
{
    static const size_t bytes[] = {0, 4000, 2000, 1000, 0};
    for (int format = OPTIM_NONE; format <= OPTIM_BLOCKS; format++) {
        cr_expect_eq(
                optim_lane_bytes((enum optim_format)format, 1000),
                bytes[format]);
        cr_expect_eq(
                optim_scale_count((enum optim_format)format, 1000),
                format == OPTIM_8BIT ? 4 : 0);
    }
    cr_expect_eq(optim_scale_count(OPTIM_8BIT, 0), 0);
    cr_expect_eq(optim_scale_count(OPTIM_8BIT, 256), 1);
    cr_expect_eq(optim_scale_count(OPTIM_8BIT, 257), 2);
}

Test(layout, a_lane_that_was_cleared_holds_nothing)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++) {
            unsigned char values[4 * 600];
            float scales[3] = {NAN, NAN, NAN}, out[600];
            memset(values, 0xa5, sizeof values);
            optim_lane_clear(
                    (enum optim_lane)lane, (enum optim_format)format, values,
                    scales, 600);
            optim_lane_read(
                    (enum optim_lane)lane, (enum optim_format)format, values,
                    scales, 600, out);
            for (int i = 0; i < 600; i++)
                cr_assert(out[i] == 0 && !signbit(out[i]));
        }
}

Test(layout, a_lane_reads_back_what_its_format_can_hold)
{
    static const double tolerance[] = {0, 0, 1.0 / 256, 0.02};
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (int format = OPTIM_FP32; format <= OPTIM_8BIT; format++) {
            unsigned char values[4 * 600], again[4 * 600];
            float scales[3], in[600], out[600];
            size_t bytes = optim_lane_bytes((enum optim_format)format, 600);
            rng_normal(1, 2, 0, 600, in);
            for (int i = 0; i < 600 && lane == OPTIM_V; i++)
                in[i] = fabsf(in[i]);
            optim_lane_write(
                    (enum optim_lane)lane, (enum optim_format)format, values,
                    scales, 600, in);
            optim_lane_read(
                    (enum optim_lane)lane, (enum optim_format)format, values,
                    scales, 600, out);
            for (int i = 0; i < 600; i++) {
                double scale = format == OPTIM_8BIT ? (double)scales[i / 256]
                                                    : fabs((double)in[i]);
                cr_assert(
                        fabs((double)in[i] - (double)out[i]) <=
                                tolerance[format] * scale,
                        "lane %d format %d: %g, not %g", lane, format,
                        (double)out[i], (double)in[i]);
            }
            /* and writing that changes nothing */
            optim_lane_write(
                    (enum optim_lane)lane, (enum optim_format)format, again,
                    scales, 600, out);
            if (format != OPTIM_8BIT)
                cr_expect_arr_eq(values, again, bytes);
        }
}
