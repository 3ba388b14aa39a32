#include "offload/image.h"

#include <string.h>

/* Where values of a lane lie; OFFLOAD_PARTS for a format without any. */
static enum offload_part image_lane_part(enum optim_format format)
{
    switch (format) {
    case OPTIM_FP32:
        return OFFLOAD_STATES_32BIT;
    case OPTIM_BF16:
        return OFFLOAD_STATES_BF16;
    case OPTIM_8BIT:
        return OFFLOAD_STATES_8BIT;
    case OPTIM_NONE:
    case OPTIM_BLOCKS:
        break;
    }
    return OFFLOAD_PARTS;
}

/* The part's length before, which is where the next array begins. */
static size_t grow(
        size_t bytes[OFFLOAD_PARTS], enum offload_part part, size_t by)
{
    size_t begin = bytes[part];
    bytes[part] += by;
    return begin;
}

void image_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS],
        struct run_place *places)
{
    size_t master_bytes = dtype_bytes(offload_master_type(request->optim));
    for (int i = 0; i < request->run_count; i++) {
        const struct offload_run *run = &request->runs[i];
        size_t count = offload_run_padded(run);
        struct run_place place = {
                .master = grow(bytes, OFFLOAD_MASTER, count * master_bytes)};
        for (int lane = 0; lane < OPTIM_LANES; lane++) {
            enum optim_format format = run->layout.lane[lane];
            enum offload_part part = image_lane_part(format);
            if (part == OFFLOAD_PARTS)
                continue;
            place.state[lane] =
                    grow(bytes, part, optim_lane_bytes(format, count));
            place.scale[lane] =
                    grow(bytes, OFFLOAD_SCALES,
                         optim_scale_count(format, count) * sizeof(float));
        }
        if (places)
            places[i] = place;
    }
}

void image_chunk(
        const struct image *image, const struct chunk *chunk,
        struct chunk_memory *memory)
{
    const struct offload_request *request = image->request;
    const struct run_place *place = &image->places[chunk->run];
    const struct offload_run *run = &request->runs[chunk->run];
    memory->master =
            image->part[OFFLOAD_MASTER] + place->master +
            chunk->begin * dtype_bytes(offload_master_type(request->optim));
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = run->layout.lane[lane];
        enum offload_part part = image_lane_part(format);
        memory->state[lane] = NULL;
        memory->scale[lane] = NULL;
        if (part == OFFLOAD_PARTS)
            continue;
        memory->state[lane] = image->part[part] + place->state[lane] +
                              optim_lane_bytes(format, chunk->begin);
        if (format != OPTIM_8BIT)
            continue;
        void *scales = image->part[OFFLOAD_SCALES] + place->scale[lane];
        memory->scale[lane] =
                (float *)scales + optim_scale_count(format, chunk->begin);
    }
}

void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from)
{
    const struct offload_run *run = &request->runs[chunk->run];
    memcpy(to->master, from->master,
           chunk->count * dtype_bytes(offload_master_type(request->optim)));
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = run->layout.lane[lane];
        if (to->state[lane])
            memcpy(to->state[lane], from->state[lane],
                   optim_lane_bytes(format, chunk->count));
        if (to->scale[lane])
            memcpy(to->scale[lane], from->scale[lane],
                   optim_scale_count(format, chunk->count) * sizeof(float));
    }
}

size_t image_undo_bytes(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}
