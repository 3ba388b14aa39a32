#include "tests/offload/engine_case.h"

#include "base/number/rng.h"
#include "tests/offload/engine_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct engine_variant engine_variants[] = {
#define VARIANT_true(...)
#define VARIANT_false(word, ID, states)                                        \
    {word, OPTIM_##ID, OPTIM_STATE_##states, 0.9},
#define OPTIM_WORD(word, ID, states, is_paged)                                 \
    VARIANT_##is_paged(word, ID, states)
#include "optim/optimizers.inc"
        {"adamw bf16 states", OPTIM_ADAMW, OPTIM_STATE_BF16},
        {"adamw_8bit, no fp32 master", OPTIM_ADAMW, OPTIM_STATE_8BIT, 0,
         OPTIM_MASTER_NONE},
        {"sgd without momentum", OPTIM_SGD, OPTIM_STATE_FP32},
};
const int engine_variant_count =
        sizeof engine_variants / sizeof engine_variants[0];

static const char *const tier_names[ENGINE_TIERS] = {
        "on the host, params on the device", "all on the host",
        "on NVMe, params on the device", "on NVMe, params on the host",
        "all on NVMe"};

void engine_setting_print(
        const struct engine_setting *setting, char *text, size_t bytes)
{
    snprintf(
            text, bytes,
            "%s, %s, %s, %d micro-batches, %s, %d threads, "
            "chunks of %llu bytes, streams %d",
            setting->variant->label, dtype_name(setting->dtype),
            tier_names[setting->tier], setting->micros,
            setting->clipping == OFFLOAD_CLIP_UNDO ? "undo" : "wait",
            setting->threads, (unsigned long long)setting->chunk_bytes,
            setting->streams);
}
/* --- gradients ------------------------------------------------------------ */

/* The gradient of an extent in one micro-batch; values of widely different
 * size. */
static void make_grad(
        const struct engine_case *c, int extent, int step, int micro,
        float *out)
{
    size_t count = c->extents[extent].count;
    uint64_t seed = (uint64_t)(100 * step + 10 * micro + extent);
    rng_normal(seed, rng_stream("gradient"), 0, count, out);
    for (size_t i = 0; i < count; i++)
        out[i] *= 0.01f / (float)(1 + i % 31);
    if (step == 2 && extent == 3)
        out[4321] = INFINITY;
}

/* What the reference sees: sums of micro-batches, rounded once. */
static void plain_grad(struct engine_case *c, int extent, int step)
{
    struct plain_extent *p = &c->plain[extent];
    size_t count = c->extents[extent].count;
    float *more = malloc(count * sizeof *more);
    make_grad(c, extent, step, 0, p->sum);
    for (int micro = 1; micro < c->setting.micros; micro++) {
        make_grad(c, extent, step, micro, more);
        for (size_t i = 0; i < count; i++)
            p->sum[i] += more[i];
    }
    if (c->setting.micros > 0 && c->setting.dtype != DTYPE_FP32) {
        dtype_convert(more, c->setting.dtype, p->sum, DTYPE_FP32, count);
        dtype_convert(p->grad, DTYPE_FP32, more, c->setting.dtype, count);
    } else {
        dtype_convert(p->grad, c->grad_type, p->sum, DTYPE_FP32, count);
    }
    free(more);
}

/* "Compute" a segment's gradient into device memory, and send it down. */
static enum zd_status send_segment(
        struct engine_case *c, int segment, int step, int micro, bool last)
{
    size_t wide = dtype_bytes(c->grad_type);
    float *values = malloc(segment_counts[segment] * sizeof *values);
    /* the source is filled by the caller, which the copy must not overtake */
    ZD_TRY(stream_finish(c->compute));
    memset(c->source, 0xff, LONGEST * sizeof(float)); /* NaN in the padding */
    for (int i = 0; i < EXTENTS; i++)
        if (c->extents[i].segment == segment) {
            make_grad(c, i, step, micro, values);
            dtype_convert(
                    c->source + c->extents[i].offset * wide, c->grad_type,
                    values, DTYPE_FP32, c->extents[i].count);
        }
    free(values);
    struct token ready;
    ZD_TRY(token_wait(NULL, offload_grads_left(c->offload, segment)));
    ZD_TRY(stream_copy(
            c->compute, c->grads[segment], c->source,
            segment_counts[segment] * wide));
    ZD_TRY(timeline_record(c->compute, &c->ready, &ready));
    return offload_grads_down(
            c->offload, segment, c->grads[segment], ready, micro, last);
}

static enum zd_status send_all(struct engine_case *c, int step)
{
    int micros = c->setting.micros > 0 ? c->setting.micros : 1;
    for (int micro = 0; micro < micros; micro++)
        for (int s = SEGMENTS - 1; s >= 0; s--)
            ZD_TRY(send_segment(c, s, step, micro, micro == micros - 1));
    return ZD_OK;
}

/* --- comparing ------------------------------------------------------------ */

static bool squares_are_equal(struct engine_case *c)
{
    struct exact_sum theirs, ours;
    exact_sum_clear(&theirs);
    exact_sum_clear(&ours);
    if (offload_squares(c->offload, &ours) != ZD_OK)
        return false;
    for (int i = 0; i < EXTENTS; i++)
        optim_add_squares_threads(
                &theirs, c->plain[i].grad, c->grad_type, c->extents[i].count);
    exact_sum_carry(&ours);
    exact_sum_carry(&theirs);
    c->squares = exact_sum_value(&theirs);
    return memcmp(&ours, &theirs, sizeof ours) == 0;
}

static size_t lane_bytes(const struct engine_case *c, int extent, int lane)
{
    size_t count = c->extents[extent].count;
    if (lane == OPTIM_LANES)
        return count * dtype_bytes(c->master_type);
    return optim_lane_bytes(c->extents[extent].layout.lane[lane], count);
}

static const char *compare_states(struct engine_case *c)
{
    char *values = malloc(LONGEST * sizeof(float));
    float *scales = malloc(51 * sizeof *scales);
    const char *wrong = NULL;
    for (int i = 0; i < EXTENTS && !wrong; i++)
        for (int lane = 0; lane <= OPTIM_LANES && !wrong; lane++) {
            const struct plain_extent *p = &c->plain[i];
            size_t count = c->extents[i].count;
            bool is_master = lane == OPTIM_LANES;
            size_t scale_count =
                    is_master ? 0
                              : optim_scale_count(
                                        c->extents[i].layout.lane[lane], count);
            if (offload_read(c->offload, i, lane, 0, count, values, scales) !=
                ZD_OK)
                wrong = "cannot be read";
            else if (
                    memcmp(values, is_master ? p->master : p->state[lane],
                           lane_bytes(c, i, lane)) != 0)
                wrong = is_master ? "other masters" : "other states";
            else if (
                    scale_count && memcmp(scales, p->scale[lane],
                                          scale_count * sizeof *scales) != 0)
                wrong = "other scales";
        }
    free(values);
    free(scales);
    return wrong;
}

static enum zd_status fetch_params(struct engine_case *c)
{
    for (int s = 0; s < SEGMENTS; s++) {
        if (!params_are_sent(c)) {
            ZD_TRY(offload_params_wait(c->offload, s));
            continue;
        }
        ZD_TRY(offload_params_up(c->offload, s, c->params[s], &c->done));
    }
    return event_wait(c->done.event); /* the last of one stream */
}

static const char *compare_params(struct engine_case *c)
{
    size_t wide = dtype_bytes(c->setting.dtype);
    if (fetch_params(c) != ZD_OK)
        return "parameters do not come up";
    for (int i = 0; i < EXTENTS; i++) {
        const struct offload_extent *extent = &c->extents[i];
        if (memcmp(c->params[extent->segment] + extent->offset * wide,
                   c->plain[i].param, extent->count * wide) != 0)
            return "other parameters";
    }
    return NULL;
}

/* --- a step --------------------------------------------------------------- */

static void plain_update(struct engine_case *c, const struct optim_step *step)
{
    for (int i = 0; i < EXTENTS; i++) {
        const struct offload_extent *extent = &c->extents[i];
        struct plain_extent *p = &c->plain[i];
        struct optim_span span = {
                .master = p->master,
                .master_type = c->master_type,
                .grad = p->grad,
                .grad_type = c->grad_type,
                .param = p->param,
                .param_type = c->setting.dtype,
                .layout = extent->layout,
                .lanes =
                        {{p->state[0], p->state[1]},
                         {p->scale[0], p->scale[1]}},
                .block_v = p->block_v,
                .blocks = extent->blocks,
                .begin = extent->begin,
                .count = extent->count,
                .tensor = extent->tensor,
                .decays = extent->decays,
        };
        optim_update_threads(&span, step);
    }
}

/* Two words are one number; how it is split depends on the spans. */
static bool sums_are_equal(const int64_t *a, const int64_t *b, int64_t count)
{
    for (int64_t i = 0; i < 2 * count; i += 2)
        if (((__int128)a[i] << 42) + a[i + 1] !=
            ((__int128)b[i] << 42) + b[i + 1])
            return false;
    return true;
}

/* Block sums of both, and the new v from them. */
static const char *update_blocks(
        struct engine_case *c, const struct optim_step *step)
{
    int64_t *sums[EXTENTS];
    const char *wrong = NULL;
    double norm = sqrt(c->squares);
    for (int i = 0; i < EXTENTS; i++) {
        sums[i] = calloc((size_t)c->blocks[i].count, 16);
        memset(c->plain[i].block_sums, 0, (size_t)c->blocks[i].count * 16);
        if (c->extents[i].layout.lane[OPTIM_V] == OPTIM_BLOCKS)
            optim_add_block_sums(
                    c->plain[i].block_sums, &c->blocks[i], c->plain[i].grad,
                    c->grad_type, c->extents[i].begin, c->extents[i].count,
                    norm);
    }
    if (offload_block_sums(c->offload, sums, norm) != ZD_OK)
        wrong = "no block sums";
    for (int i = 0; i < EXTENTS; i++) {
        if (!sums_are_equal(
                    sums[i], c->plain[i].block_sums, c->blocks[i].count))
            wrong = "other block sums";
        if (c->extents[i].layout.lane[OPTIM_V] == OPTIM_BLOCKS)
            optim_update_blocks(
                    c->plain[i].block_v, sums[i], &c->blocks[i], step, norm);
        free(sums[i]);
    }
    return wrong;
}

static const char *run_step(struct engine_case *c, int at, int64_t t)
{
    bool is_clipped = at == 1, is_skipped = at == 2;
    struct optim_step step = {
            .options = &c->optim,
            .learning_rate = 0.01 / (1 + at),
            .t = t,
            .grad_scale = 0.25f,
            .seed = 7,
    };
    const char *wrong = NULL;
    offload_step_begin(c->offload, &step);
    for (int i = 0; i < EXTENTS; i++)
        plain_grad(c, i, at);
    if (send_all(c, at) != ZD_OK)
        return "gradients do not come down";
    if (!squares_are_equal(c))
        return "other squares";
    if (is_skipped)
        return offload_skip(c->offload) == ZD_OK ? NULL : "does not skip";
    if (is_clipped)
        step.grad_scale *= 0.37f;
    bool has_blocks = c->optim.name == OPTIM_ADAM_MINI;
    if (has_blocks)
        wrong = update_blocks(c, &step);
    plain_update(c, &step);
    if (offload_update(c->offload, &step, has_blocks ? c->block_v : NULL) !=
        ZD_OK)
        return "does not update";
    return wrong;
}

/* As loading a checkpoint does: part of the masters and states of one extent
 * are others, and all parameters follow. */
static const char *write_states(struct engine_case *c)
{
    enum { RUN = 2, BEGIN = 512, COUNT = 3000 };
    struct plain_extent *p = &c->plain[RUN];
    float *values = malloc(COUNT * sizeof *values);
    size_t wide = dtype_bytes(c->master_type);
    rng_normal(3, rng_stream("written"), 0, COUNT, values);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = c->extents[RUN].layout.lane[lane];
        char *state = (char *)p->state[lane] + optim_lane_bytes(format, BEGIN);
        float *scale = p->scale[lane] + optim_scale_count(format, BEGIN);
        if (format == OPTIM_NONE || format == OPTIM_BLOCKS)
            continue;
        for (int i = 0; i < COUNT; i++)
            values[i] = fabsf(values[i]);
        optim_lane_write(
                (enum optim_lane)lane, format, state, scale, COUNT, values);
        if (offload_write(c->offload, RUN, lane, BEGIN, COUNT, state, scale) !=
            ZD_OK)
            return "states are not written";
    }
    dtype_convert(
            (char *)p->master + BEGIN * wide, c->master_type, values,
            DTYPE_FP32, COUNT);
    enum zd_status status = offload_write(
            c->offload, RUN, OPTIM_LANES, BEGIN, COUNT,
            (char *)p->master + BEGIN * wide, NULL);
    free(values);
    if (status != ZD_OK || offload_masters_written(c->offload) != ZD_OK)
        return "masters are not written";
    for (int i = 0; i < EXTENTS; i++)
        dtype_convert(
                c->plain[i].param, c->setting.dtype, c->plain[i].master,
                c->master_type, c->extents[i].count);
    return NULL;
}

/* States as at the start; masters stay. */
static const char *clear_states(struct engine_case *c)
{
    for (int i = 0; i < EXTENTS; i++) {
        struct plain_extent *p = &c->plain[i];
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            optim_lane_clear(
                    (enum optim_lane)lane, c->extents[i].layout.lane[lane],
                    p->state[lane], p->scale[lane], c->extents[i].count);
    }
    if (offload_states_clear(c->offload) != ZD_OK)
        return "states are not cleared";
    return compare_states(c);
}

/* Masters as a new model has them. */
static const char *load(struct engine_case *c)
{
    for (int i = 0; i < EXTENTS; i++) {
        struct plain_extent *p = &c->plain[i];
        size_t count = c->extents[i].count;
        rng_normal((uint64_t)i, rng_stream("weights"), 0, count, p->sum);
        dtype_convert(p->master, c->master_type, p->sum, DTYPE_FP32, count);
        dtype_convert(
                p->param, c->setting.dtype, p->master, c->master_type, count);
        if (offload_write(
                    c->offload, i, OPTIM_LANES, 0, count, p->master, NULL) !=
            ZD_OK)
            return "masters are not written";
    }
    return offload_masters_written(c->offload) == ZD_OK ? compare_params(c)
                                                        : "no masters";
}

static const char *check_report(struct engine_case *c)
{
    struct offload_report report = offload_report_take(c->offload);
    uint64_t down = 0, up = 0;
    uint64_t micros = c->setting.micros > 0 ? (uint64_t)c->setting.micros : 1;
    for (int i = 0; i < EXTENTS; i++) {
        down += c->extents[i].count * dtype_bytes(c->grad_type) * micros * 5;
        up += c->extents[i].count * dtype_bytes(c->setting.dtype);
    }
    if (report.down_bytes != down)
        return "reports other bytes down";
    /* up: load, the steps that were made, the written states */
    if (!params_are_sent(c) && report.up_bytes != up * 6)
        return "reports other bytes up";
    if (report.undone != (c->setting.clipping == OFFLOAD_CLIP_UNDO))
        return "reports an undo wrongly";
    if (!(report.worker_seconds > 0))
        return "reports no work";
    return NULL;
}

const char *engine_case_run(const struct engine_setting *setting)
{
    struct engine_case c;
    int64_t t = 1;
    const char *wrong = begin_case(&c, setting);
    if (!wrong)
        wrong = load(&c);
    for (int at = 0; at < 5 && !wrong; at++) {
        wrong = run_step(&c, at, t);
        t += at != 2;
        if (at == 0) /* the next step begins while this one is made */
            continue;
        if (!wrong)
            wrong = compare_params(&c);
        if (!wrong && at > 1)
            wrong = compare_states(&c);
        if (!wrong && at == 3)
            wrong = write_states(&c);
    }
    if (!wrong)
        wrong = compare_states(&c);
    if (!wrong)
        wrong = check_report(&c);
    if (!wrong)
        wrong = clear_states(&c);
    end_case(&c);
    return wrong;
}
