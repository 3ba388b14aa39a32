#include "base/must.h"
#include "offload/cut.h"
#include "offload/store.h"

const struct part_span part_spans[OFFLOAD_PARTS] = {
        [OFFLOAD_STATES] = {"offload.states", ARENA_HOST, SPAN_OPTIMIZER},
        [OFFLOAD_SLOTS] = {"offload.slots", ARENA_PINNED, SPAN_GRADS},
        [OFFLOAD_ACCUMULATORS] =
                {"offload.accumulators", ARENA_PINNED, SPAN_GRADS},
        [OFFLOAD_PARAMS] = {"offload.params", ARENA_PINNED, SPAN_PARAMS},
        [OFFLOAD_STAGING] = {"offload.staging", ARENA_PINNED, SPAN_BUFFERS},
        [OFFLOAD_UNDO] = {"offload.undo", ARENA_HOST, SPAN_BUFFERS},
        [OFFLOAD_VISITS] = {"offload.visits", ARENA_DEVICE, SPAN_BUFFERS},
        [OFFLOAD_RING] = {"offload.ring", ARENA_PINNED, SPAN_BUFFERS},
        [OFFLOAD_FILE] = {"offload.file", ARENA_DISK, SPAN_OPTIMIZER},
};

struct chunk *chunks_cut(
        const struct offload_request *request, int *count_out)
{
    size_t most = cut_most(request->options), count = 0;
    for (int i = 0; i < request->extent_count; i++)
        count += cut_count(request->extents[i].count, most);
    struct chunk *chunks = zd_array(count, sizeof *chunks), *next = chunks;
    for (int i = 0; i < request->extent_count; i++) {
        const struct offload_extent *extent = &request->extents[i];
        size_t parts = cut_count(extent->count, most);
        for (size_t part = 0; part < parts; part++) {
            struct cut cut = cut_at(extent->count, most, part);
            *next++ = (struct chunk){
                    .extent = i,
                    .segment = extent->segment,
                    .begin = cut.begin,
                    .count = cut.count};
        }
    }
    *count_out = (int)count;
    return chunks;
}

enum dtype offload_master_type(const struct optim_options *options)
{
    return options->master == OPTIM_MASTER_NONE ? DTYPE_BF16 : DTYPE_FP32;
}

enum dtype offload_grad_type(const struct offload_request *request)
{
    return request->accumulates ? DTYPE_FP32 : request->dtype;
}

bool offload_grads_in_file(const struct offload_request *request)
{
    return offload_params_in_file(request) && !request->accumulates;
}

bool offload_params_in_file(const struct offload_request *request)
{
    return request->options->params == OFFLOAD_NVME;
}

void chunk_slots(
        const struct store_request *store, const struct chunk *chunk,
        struct chunk_memory *memory)
{
    const struct offload_request *request = store->request;
    size_t at = store->segment_offsets[chunk->segment] +
                request->extents[chunk->extent].offset + chunk->begin;
    memory->slot = NULL;
    memory->param = NULL;
    if (request->accumulates)
        memory->slot =
                (float *)arena_span(store->arena, "offload.accumulators") + at;
    else if (!offload_grads_in_file(request))
        memory->slot = (char *)arena_span(store->arena, "offload.slots") +
                       at * dtype_bytes(request->dtype);
    if (offload_params_in_file(request))
        return;
    if (request->accumulates && request->params_on_host)
        memory->param = (char *)arena_span(store->arena, "offload.params") +
                        at * dtype_bytes(request->dtype);
    else
        memory->param = memory->slot;
}

static struct chunk_copy copy_of(
        const struct store_request *store, const struct chunk *chunk,
        bool of_params)
{
    const struct offload_request *request = store->request;
    size_t wide = dtype_bytes(
            of_params ? request->dtype : offload_grad_type(request));
    size_t at = request->extents[chunk->extent].offset + chunk->begin;
    struct chunk_memory memory;
    chunk_slots(store, chunk, &memory);
    return (struct chunk_copy){
            at * wide, of_params ? memory.param : memory.slot,
            chunk->count * wide};
}

int chunks_join(
        const struct store_request *store, const struct chunk *chunks,
        int count, bool of_params, size_t most, struct chunk_copy *copy_out)
{
    struct chunk_copy copy = copy_of(store, chunks, of_params);
    int joined = 1;
    for (; joined < count; joined++) {
        struct chunk_copy next = copy_of(store, &chunks[joined], of_params);
        if (next.at != copy.at + copy.bytes ||
            next.host != copy.host + copy.bytes ||
            copy.bytes + next.bytes > most)
            break;
        copy.bytes += next.bytes;
    }
    *copy_out = copy;
    return joined;
}
