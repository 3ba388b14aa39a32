#include "offload/cut.h"
#include "offload/store.h"

int chunks_cut(const struct offload_request *request, struct chunk *chunks)
{
    size_t most = cut_most(request->options);
    int count = 0;
    for (int i = 0; i < request->run_count; i++) {
        const struct offload_run *run = &request->runs[i];
        size_t parts = cut_count(run->count, most);
        for (size_t part = 0; chunks && part < parts; part++) {
            struct cut cut = cut_at(run->count, most, part);
            chunks[(size_t)count + part] = (struct chunk){
                    .run = i,
                    .segment = run->segment,
                    .begin = cut.begin,
                    .count = cut.count};
        }
        count += (int)parts;
    }
    return count;
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
                request->runs[chunk->run].offset + chunk->begin;
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
