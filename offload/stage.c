#include "offload/stage.h"

#include "offload/cut.h"

/* Of the largest chunk that there is. */
static size_t buffer_elements(const struct offload_request *request)
{
    size_t most = cut_most(request->options), largest = 0;
    for (int i = 0; i < request->run_count; i++) {
        size_t count = optim_whole_qblocks(request->runs[i].count);
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
    pthread_mutex_init(&stage->lock, NULL);
    pthread_cond_init(&stage->changed, NULL);
}

void stage_fini(struct stage *stage)
{
    pthread_cond_destroy(&stage->changed);
    pthread_mutex_destroy(&stage->lock);
}

void *stage_buffer(const struct stage *stage, uint64_t number)
{
    return stage->memory + number % STAGE_BUFFERS * stage->buffer_bytes;
}

/* Numbers that pass through one buffer are its turns 0, 1, ..: turn k may begin
 * when the buffer was emptied k times, and is there when it was filled k + 1
 * times. */
void stage_await_empty(struct stage *stage, uint64_t number)
{
    pthread_mutex_lock(&stage->lock);
    while (stage->emptied[number % STAGE_BUFFERS] < number / STAGE_BUFFERS)
        pthread_cond_wait(&stage->changed, &stage->lock);
    pthread_mutex_unlock(&stage->lock);
}

void stage_await_filled(struct stage *stage, uint64_t number)
{
    pthread_mutex_lock(&stage->lock);
    while (stage->filled[number % STAGE_BUFFERS] <= number / STAGE_BUFFERS)
        pthread_cond_wait(&stage->changed, &stage->lock);
    pthread_mutex_unlock(&stage->lock);
}

static void note(struct stage *stage, uint64_t *times)
{
    pthread_mutex_lock(&stage->lock);
    ++*times;
    pthread_cond_broadcast(&stage->changed);
    pthread_mutex_unlock(&stage->lock);
}

void stage_note_filled(struct stage *stage, uint64_t number)
{
    note(stage, &stage->filled[number % STAGE_BUFFERS]);
}

void stage_note_emptied(struct stage *stage, uint64_t number)
{
    note(stage, &stage->emptied[number % STAGE_BUFFERS]);
}
