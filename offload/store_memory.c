/* store_memory.c - chunks that are always in memory: nothing to read, write or
 * wait for. */
#include "offload/image.h"

#include <stdlib.h>

struct store_memory {
    struct store store; /* first: the store that others see */
    struct store_request request;
    struct image image;
    struct run_place *places; /* owned */
    const int *chunks;        /* of the list begun */
};

static enum zd_status memory_begin(
        struct store *store, const struct store_list *list)
{
    ((struct store_memory *)store)->chunks = list->chunks;
    return ZD_OK;
}

static enum zd_status memory_acquire(
        struct store *store, int at, struct chunk_memory *memory_out)
{
    struct store_memory *memory = (struct store_memory *)store;
    const struct chunk *chunk = &memory->request.chunks[memory->chunks[at]];
    image_chunk(&memory->image, chunk, memory_out);
    chunk_slots(&memory->request, chunk, memory_out);
    return ZD_OK;
}

static enum zd_status memory_release(struct store *store, int at)
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
        .begin = memory_begin,
        .acquire = memory_acquire,
        .release = memory_release,
        .finish = memory_finish,
        .destroy = memory_destroy,
};

enum zd_status store_memory_create(
        const struct store_request *request, struct store **store_out)
{
    static const struct {
        enum offload_part part;
        const char *name;
    } spans[] = {
            {OFFLOAD_MASTER, "offload.master"},
            {OFFLOAD_STATES_8BIT, "offload.states.8bit"},
            {OFFLOAD_SCALES, "offload.states.scales"},
            {OFFLOAD_STATES_BF16, "offload.states.bf16"},
            {OFFLOAD_STATES_32BIT, "offload.states.32bit"},
    };
    size_t bytes[OFFLOAD_PARTS] = {0};
    size_t runs = (size_t)request->request->run_count;
    struct store_memory *memory = calloc(1, sizeof *memory);
    struct run_place *places = calloc(runs + 1, sizeof *places);
    if (!memory || !places) {
        free(memory);
        free(places);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "no memory for the offload "
                "engine's %zu runs",
                runs);
    }
    image_measure(request->request, bytes, places);
    memory->store.ops = &memory_ops;
    memory->request = *request;
    memory->places = places;
    memory->image.request = request->request;
    memory->image.places = places;
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++)
        if (bytes[spans[i].part])
            memory->image.part[spans[i].part] =
                    arena_span(request->arena, spans[i].name);
    *store_out = &memory->store;
    return ZD_OK;
}
