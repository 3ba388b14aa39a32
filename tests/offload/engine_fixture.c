#include "tests/offload/engine_fixture.h"

#include "base/number/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Segments: a tensor and a small one; padding only; the middle of a tensor and
 * the beginning of another, not whole 256s long; one piece. */
const size_t segment_counts[SEGMENTS] = {LONGEST, 512, 11264, 5120};
static const struct {
    int64_t rows, columns, group;
} tensors[TENSORS] = {
        {96, 128, 16}, {300, 1, 1}, {64, 300, 4}, {40, 110, 8}, {16, 320, 16}};
static const struct {
    int segment;
    size_t offset, begin, count;
    bool decays;
} extent_table[EXTENTS] = {
        {0, 0, 0, 12288, true},     {0, 12288, 0, 300, false},
        {2, 256, 5120, 6400, true}, {2, 6656, 0, 4400, true},
        {3, 0, 0, 5120, true},
};

bool params_are_sent(const struct engine_case *c)
{
    return c->setting.tier != HOST_DEVICE && c->setting.tier != NVME_DEVICE;
}

static void fill_extents(struct engine_case *c)
{
    for (int i = 0; i < EXTENTS; i++) {
        struct tensor_blocks *blocks = &c->blocks[i];
        size_t count = (size_t)(tensors[i].rows * tensors[i].columns);
        char name[32];
        snprintf(name, sizeof name, "tensor %d", i);
        *blocks = (struct tensor_blocks){
                .rows = tensors[i].rows,
                .columns = tensors[i].columns,
                .section_count = 1,
                .sections = {{0, tensors[i].group, 0}},
                .count = (tensors[i].rows + tensors[i].group - 1) /
                         tensors[i].group,
        };
        c->extents[i] = (struct offload_extent){
                .segment = extent_table[i].segment,
                .offset = extent_table[i].offset,
                .begin = extent_table[i].begin,
                .count = extent_table[i].count,
                .layout = optim_layout_of(&c->optim, count, i == 4, blocks),
                .blocks = c->optim.name == OPTIM_ADAM_MINI ? blocks : NULL,
                .tensor = rng_stream(name),
                .decays = extent_table[i].decays,
        };
    }
}

static void make_plain(struct engine_case *c)
{
    for (int i = 0; i < EXTENTS; i++) {
        struct plain_extent *p = &c->plain[i];
        const struct offload_extent *extent = &c->extents[i];
        p->master = calloc(extent->count, sizeof(float));
        p->param = calloc(extent->count, sizeof(float));
        p->grad = calloc(extent->count, sizeof(float));
        p->sum = calloc(extent->count, sizeof(float));
        p->block_v = calloc((size_t)c->blocks[i].count, sizeof(float));
        p->block_sums = calloc((size_t)c->blocks[i].count, 16);
        c->block_v[i] = p->block_v;
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            enum optim_format format = extent->layout.lane[lane];
            p->state[lane] = calloc(extent->count, sizeof(float));
            p->scale[lane] = calloc(extent->count / 256 + 1, sizeof(float));
            optim_lane_clear(
                    (enum optim_lane)lane, format, p->state[lane],
                    p->scale[lane], extent->count);
        }
    }
}

static void free_plain(struct engine_case *c)
{
    for (int i = 0; i < EXTENTS; i++) {
        struct plain_extent *p = &c->plain[i];
        free(p->master);
        free(p->param);
        free(p->grad);
        free(p->sum);
        free(p->block_v);
        free(p->block_sums);
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            free(p->state[lane]);
            free(p->scale[lane]);
        }
    }
}

static enum zd_status make_streams(struct engine_case *c)
{
    enum stream_mode mode = c->setting.streams == STREAMS_THREAD
                                    ? STREAM_THREAD
                                    : STREAM_INLINE;
    ZD_TRY(timeline_create(&c->ready));
    ZD_TRY(timeline_create(&c->done));
    if (c->setting.streams == STREAMS_NULL)
        return ZD_OK;
    ZD_TRY(stream_create("down", mode, &c->down));
    ZD_TRY(stream_create("up", mode, &c->up));
    return stream_create("compute", mode, &c->compute);
}

static const char *make_engine(struct engine_case *c)
{
    size_t bytes[OFFLOAD_PARTS], sum = 0;
    struct offload_place place = {
            .down = c->down,
            .up = c->up,
            .worker_threads = c->setting.threads,
            .first_cpu = c->setting.threads == 2 ? 1 : -1,
            .file_name = "rank0",
    };
    c->request = (struct offload_request){
            .options = &c->options,
            .optim = &c->optim,
            .dtype = c->setting.dtype,
            .segment_counts = segment_counts,
            .segment_count = SEGMENTS,
            .extents = c->extents,
            .extent_count = EXTENTS,
            .accumulates = c->setting.micros > 0,
            .params_on_host = params_are_sent(c),
    };
    arena_plan_init(&c->plan);
    if (offload_measure(&c->request, bytes) != ZD_OK ||
        offload_check(&c->options, bytes, 1) != ZD_OK ||
        offload_plan_spans(bytes, &c->plan) != ZD_OK ||
        arena_take(&c->arena, &c->plan) != ZD_OK ||
        offload_create(&c->request, &c->arena, &place, &c->offload) != ZD_OK)
        return "could not be created";
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        sum += bytes[part];
    return sum ? NULL : "measures nothing";
}

const char *begin_case(
        struct engine_case *c, const struct engine_setting *setting)
{
    const struct engine_variant *variant = setting->variant;
    memset(c, 0, sizeof *c);
    c->setting = *setting;
    c->optim = optim_options_default();
    c->optim.name = variant->name;
    c->optim.state_type = variant->state_type;
    c->optim.momentum = variant->momentum;
    c->optim.master = variant->master;
    c->optim.weight_decay = 0.1;
    c->options = offload_options_default();
    c->options.optimizer =
            setting->tier < NVME_DEVICE ? OFFLOAD_CPU : OFFLOAD_NVME;
    c->options.params = setting->tier == HOST_HOST || setting->tier == NVME_HOST
                                ? OFFLOAD_CPU
                        : setting->tier == NVME_NVME ? OFFLOAD_NVME
                                                     : OFFLOAD_NONE;
    if (setting->tier >= NVME_DEVICE) {
        scratch_init(&c->scratch);
        c->options.nvme_path = c->scratch.dir;
    }
    c->options.clipping = setting->clipping;
    c->options.chunk_bytes = setting->chunk_bytes;
    c->master_type =
            variant->master == OPTIM_MASTER_NONE ? DTYPE_BF16 : DTYPE_FP32;
    c->grad_type = setting->micros > 0 ? DTYPE_FP32 : setting->dtype;
    fill_extents(c);
    make_plain(c);
    c->source = calloc(LONGEST, sizeof(float));
    for (int s = 0; s < SEGMENTS; s++) {
        c->grads[s] = calloc(segment_counts[s], sizeof(float));
        c->params[s] = calloc(segment_counts[s], sizeof(float));
    }
    if (make_streams(c) != ZD_OK)
        return "no streams";
    const char *wrong = make_engine(c);
    if (!wrong && !params_are_sent(c))
        for (int s = 0; s < SEGMENTS; s++)
            offload_params_to(c->offload, s, c->params[s]);
    return wrong;
}

void end_case(struct engine_case *c)
{
    offload_destroy(c->offload);
    stream_destroy(c->down);
    stream_destroy(c->up);
    stream_destroy(c->compute);
    timeline_destroy(&c->ready);
    timeline_destroy(&c->done);
    arena_release(&c->arena);
    arena_plan_fini(&c->plan);
    free_plain(c);
    free(c->source);
    if (c->options.nvme_path)
        scratch_fini(&c->scratch);
    for (int s = 0; s < SEGMENTS; s++) {
        free(c->grads[s]);
        free(c->params[s]);
    }
}
