/* small_engine.h - an engine of one or two segments, each one extent, with the
 * memory and streams it needs. */
#pragma once

#include "offload/offload.h"
#include "tests/support/must.h"

struct small_engine {
    struct offload_options options;
    struct optim_options optim;
    size_t counts[2];
    struct offload_extent extents[2];
    struct offload_request request;
    struct offload_place place;
    struct arena_plan plan;
    struct arena arena;
    struct offload *offload;
};

/* Fills everything up to `place` with defaults: AdamW over all elements, on the
 * host, two workers. The caller changes it before small_engine_make. */
static inline void small_engine_init(
        struct small_engine *e, int segments, size_t first, size_t second)
{
    *e = (struct small_engine){
            .options = offload_options_default(),
            .optim = optim_options_default(),
            .counts = {first, second},
            .place = {.worker_threads = 2, .first_cpu = -1},
    };
    e->options.optimizer = OFFLOAD_CPU;
    for (int s = 0; s < segments; s++)
        e->extents[s] = (struct offload_extent){
                .segment = s,
                .count = e->counts[s],
                .layout = {{OPTIM_FP32, OPTIM_FP32}},
        };
    e->request = (struct offload_request){
            .options = &e->options,
            .optim = &e->optim,
            .segment_counts = e->counts,
            .segment_count = segments,
            .extents = e->extents,
            .extent_count = segments,
    };
}

static inline enum zd_status small_engine_streams(
        struct small_engine *e, enum stream_mode mode)
{
    ZD_TRY(stream_create("down", mode, &e->place.down));
    return stream_create("up", mode, &e->place.up);
}

static inline enum zd_status small_engine_make(struct small_engine *e)
{
    size_t bytes[OFFLOAD_PARTS];
    arena_plan_init(&e->plan);
    e->request.undo_first = offload_undo_first(&e->request);
    offload_measure(&e->request, bytes);
    ZD_TRY(offload_plan_spans(bytes, &e->plan));
    ZD_TRY(arena_take(&e->arena, &e->plan));
    return offload_create(&e->request, &e->arena, &e->place, &e->offload);
}

static inline void small_engine_end(struct small_engine *e)
{
    offload_destroy(e->offload);
    stream_destroy(e->place.down);
    stream_destroy(e->place.up);
    arena_release(&e->arena);
    arena_plan_fini(&e->plan);
}
