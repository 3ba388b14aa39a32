#include "offload/stage.h"

#include "offload/cut.h"

/* Elements of the largest chunk. */
static size_t buffer_elements(const struct offload_request *request)
{
    size_t most = cut_most(request->options), largest = 0;
    for (int i = 0; i < request->extent_count; i++) {
        size_t count = optim_whole_qblocks(request->extents[i].count);
        largest = largest > count ? largest : count;
    }
    return largest < most ? largest : most;
}

size_t stage_grad_bytes(const struct offload_request *request)
{
    if (!request->accumulates && !offload_grads_in_file(request))
        return 0;
    return STAGE_BUFFERS * buffer_elements(request) *
           dtype_bytes(offload_grad_type(request));
}

size_t stage_bytes(const struct offload_request *request)
{
    size_t bytes = stage_grad_bytes(request);
    if (offload_params_in_file(request))
        bytes += STAGE_BUFFERS * buffer_elements(request) *
                 dtype_bytes(request->dtype);
    return bytes;
}

void stage_init(struct stage *stage, void *memory, size_t buffer_bytes)
{
    *stage = (struct stage){.memory = memory, .buffer_bytes = buffer_bytes};
    for (int i = 0; i < STAGE_BUFFERS; i++) {
        tally_init(&stage->filled[i]);
        tally_init(&stage->emptied[i]);
    }
}

void stage_fini(struct stage *stage)
{
    for (int i = 0; i < STAGE_BUFFERS; i++) {
        tally_fini(&stage->filled[i]);
        tally_fini(&stage->emptied[i]);
    }
}

void *stage_buffer(const struct stage *stage, uint64_t number)
{
    return stage->memory + number % STAGE_BUFFERS * stage->buffer_bytes;
}

/* The passages of one buffer are its turns 0, 1, ..: turn k may begin when the
 * buffer was emptied k times, and is complete when it was filled k + 1
 * times. */
struct token stage_empty(struct stage *stage, uint64_t number)
{
    return tally_token(
            &stage->emptied[number % STAGE_BUFFERS], number / STAGE_BUFFERS);
}

struct token stage_full(struct stage *stage, uint64_t number)
{
    return tally_token(
            &stage->filled[number % STAGE_BUFFERS], number / STAGE_BUFFERS + 1);
}

void stage_note_filled(struct stage *stage, uint64_t number)
{
    tally_next(&stage->filled[number % STAGE_BUFFERS]);
}

void stage_note_emptied(struct stage *stage, uint64_t number)
{
    tally_next(&stage->emptied[number % STAGE_BUFFERS]);
}
