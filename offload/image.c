#include "offload/image.h"

#include <string.h>

/* The part that holds the states' arrays. */
static const enum offload_part part_of[OPTIM_ARRAYS] = {
        [OPTIM_ARRAY_M] = OFFLOAD_STATES_32BIT,
        [OPTIM_ARRAY_V] = OFFLOAD_STATES_32BIT,
        [OPTIM_ARRAY_8BIT] = OFFLOAD_STATES_8BIT,
        [OPTIM_ARRAY_SCALES] = OFFLOAD_SCALES,
        [OPTIM_ARRAY_BF16] = OFFLOAD_STATES_BF16,
};

void image_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS],
        struct extent_place *places)
{
    size_t master_bytes = dtype_bytes(offload_master_type(request->optim));
    size_t *ends[OPTIM_ARRAYS];
    for (int i = 0; i < OPTIM_ARRAYS; i++)
        ends[i] = &bytes[part_of[i]];
    for (int i = 0; i < request->extent_count; i++) {
        const struct offload_extent *extent = &request->extents[i];
        size_t count = optim_whole_qblocks(extent->count);
        struct extent_place place = {
                .master = bytes[OFFLOAD_MASTER],
                .lanes =
                        optim_place_in_arrays(&extent->layout, count, 1, ends)};
        bytes[OFFLOAD_MASTER] += count * master_bytes;
        if (places)
            places[i] = place;
    }
}

void image_chunk(
        const struct image *image, const struct chunk *chunk,
        struct chunk_memory *memory)
{
    const struct offload_request *request = image->request;
    const struct extent_place *place = &image->places[chunk->extent];
    char *arrays[OPTIM_ARRAYS];
    for (int i = 0; i < OPTIM_ARRAYS; i++)
        arrays[i] = image->part[part_of[i]];
    memory->master =
            image->part[OFFLOAD_MASTER] + place->master +
            chunk->begin * dtype_bytes(offload_master_type(request->optim));
    memory->lanes = optim_lanes_at(
            &request->extents[chunk->extent].layout, &place->lanes, arrays,
            chunk->begin);
}

void chunk_copy(
        const struct offload_request *request, const struct chunk *chunk,
        const struct chunk_memory *to, const struct chunk_memory *from)
{
    memcpy(to->master, from->master,
           chunk->count * dtype_bytes(offload_master_type(request->optim)));
    optim_lanes_copy(
            &request->extents[chunk->extent].layout, &to->lanes, &from->lanes,
            chunk->count);
}

size_t image_undo_bytes(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}
