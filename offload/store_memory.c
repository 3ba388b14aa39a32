/* store_memory.c - chunks that are always in memory: nothing to read, write or
 * wait for. */
#include "base/must.h"
#include "offload/image.h"

#include <stdlib.h>

struct store_memory {
    struct store store; /* first: the store that others see */
    struct store_request request;
    struct image image;
    struct extent_place *places; /* owned */
    const int *chunks;           /* of the list begun */
};

static enum zd_status memory_acquire(
        struct store *store, int index, struct chunk_memory *memory_out)
{
    struct store_memory *memory = (struct store_memory *)store;
    const struct chunk *chunk = &memory->request.chunks[index];
    image_chunk(&memory->image, chunk, memory_out);
    chunk_slots(&memory->request, chunk, memory_out);
    return ZD_OK;
}

static enum zd_status memory_release(struct store *store, int chunk)
{
    return ZD_OK;
}

static enum zd_status memory_finish(struct store *store)
{
    return ZD_OK;
}

static void memory_destroy(struct store *store)
{
    struct store_memory *memory = (struct store_memory *)store;
    free(memory->places);
    free(memory);
}

static const struct store_ops memory_ops = {
        .acquire = memory_acquire,
        .release = memory_release,
        .finish = memory_finish,
        .destroy = memory_destroy,
};

struct store *store_memory_create(const struct store_request *request)
{
    size_t bytes[OFFLOAD_PARTS] = {0};
    struct store_memory *memory = zd_array(1, sizeof *memory);
    memory->places = zd_array(
            (size_t)request->request->extent_count, sizeof *memory->places);
    image_measure(request->request, bytes, memory->places);
    memory->store.ops = &memory_ops;
    memory->request = *request;
    memory->image.request = request->request;
    memory->image.places = memory->places;
    for (int part = OFFLOAD_MASTER; part <= OFFLOAD_STATES_32BIT; part++)
        if (bytes[part])
            memory->image.part[part] =
                    arena_span(request->arena, part_spans[part].name);
    return &memory->store;
}
