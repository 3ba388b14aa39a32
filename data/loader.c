/* The loader: a thread that reads batches into a ring of buffers.
 *
 *      valid for the caller        read ahead
 *   | b-K+1 ..            b | b+1 ..           b+P |     K + P buffers
 *
 * b is the batch of the latest call. A batch stays valid for K calls, so the
 * thread may be P batches ahead and not touch one of them.
 *
 * States of a buffer, and its owner:
 *
 *   FREE --(produced + 1 <= consumed + P)--> FILLING --(produced++)--> READY
 *    ^                                                                   |
 *    +---(K calls later: consumed - K passes it)--- HELD <--(consumed++)-+
 *
 *   FREE, FILLING  the loader's thread      READY  no one, until the next call
 *   HELD           the caller, who only reads
 *
 * `produced` is written by the thread alone and `consumed` by the caller alone,
 * both under the mutex, which is what hands a buffer over. A failure is handed
 * over likewise: `error` belongs to the thread until `failed` is set, then to
 * the caller. The dataset is the thread's until it is joined. */
#include "data/dataset_internal.h"

#include "base/clock.h"
#include "base/must.h"
#include "base/threads.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct loader {
    struct dataset *dataset; /* the thread's, while it runs */
    struct loader_order order;
    int64_t first_batch, batch_count;
    int B, T, ahead, slot_count;
    struct loader_batch *slots;
    int32_t *memory; /* of them in turn: tokens, targets, doc_start */
    uint64_t came;   /* of dataset->coming, when it was last told; consumer's */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t may_produce, may_consume;
    int64_t produced, consumed; /* batches */
    bool stopping, failed;
    struct zd_error error; /* of batch `produced`, when failed */
};

size_t loader_bytes(int batches, int B, int T)
{
    return (size_t)batches * 3 * (size_t)B * (size_t)T * sizeof(int32_t);
}

/* Shorten the rows from T to what the longest one, of `longest` tokens, needs;
 * returns the new length. */
static int close_up(
        int32_t *tokens, int32_t *targets, int32_t *doc_start, int B, int T,
        int longest)
{
    enum { DISTANCES = 16, EDGE = 16 };
    int step = ((T + DISTANCES - 1) / DISTANCES + EDGE - 1) / EDGE * EDGE;
    int near = ((longest > 0 ? longest : 1) + step - 1) / step * step;
    int32_t *const arrays[] = {tokens, targets, doc_start};
    if (near >= T)
        return T;
    for (int i = 0; i < 3; i++)
        for (size_t b = 1; b < (size_t)B; b++)
            memmove(arrays[i] + b * (size_t)near, arrays[i] + b * (size_t)T,
                    (size_t)near * sizeof *tokens);
    return near;
}

/* Returns the pieces' doc_start, which lies after their tokens; that of the
 * whole rows stays. */
static int32_t *take_pieces(
        int32_t *tokens, int32_t *targets, int32_t *doc_start, int B, int T,
        int places, int place)
{
    size_t piece = (size_t)(T / (2 * places));
    int32_t *starts = tokens + 2 * (size_t)B * piece;
    int32_t *const from_arrays[] = {tokens, targets, doc_start};
    int32_t *const to_arrays[] = {tokens, targets, starts};
    const size_t from[] = {
            (size_t)place * piece, (size_t)(2 * places - 1 - place) * piece};
    for (int i = 0; i < 3; i++)
        for (size_t b = 0; b < 2 * (size_t)B; b++) /* moves toward the start */
            memmove(to_arrays[i] + b * piece,
                    from_arrays[i] + b / 2 * (size_t)T + from[b % 2],
                    piece * sizeof *tokens);
    return starts;
}

/* A row without targets: it adds nothing. */
static void mask_row(int32_t *tokens, int32_t *targets, int32_t *starts, int T)
{
    memset(tokens, 0, (size_t)T * sizeof *tokens);
    memset(starts, 0, (size_t)T * sizeof *starts);
    for (int t = 0; t < T; t++)
        targets[t] = -1;
}

enum zd_status batch_read(
        struct dataset *dataset, const struct loader_order *order,
        int64_t batch, int B, int T, int32_t *memory,
        struct loader_batch *batch_out)
{
    int longest = 0;
    size_t array = (size_t)B * (size_t)T;
    int32_t *tokens = memory, *targets = tokens + array;
    int32_t *starts = targets + array;
    struct loader_batch made = {tokens, targets, starts, starts};
    enum zd_status status = ZD_OK;
    for (int b = 0; b < B; b++) {
        int count = 0;
        size_t row = (size_t)b * (size_t)T;
        int64_t sample = order->sample_of(order->ctx, batch, b);
        if (sample >= 0 && status == ZD_OK)
            status = dataset_sample(
                    dataset, sample, tokens + row, targets + row, starts + row,
                    &count);
        if (sample < 0 || status != ZD_OK)
            mask_row(tokens + row, targets + row, starts + row, T);
        made.token_count += count;
        longest = count > longest ? count : longest;
        for (int t = 0; t < T; t++)
            made.target_count += targets[row + (size_t)t] >= 0;
    }
    made.T = close_up(
            tokens, targets, starts, B, T, order->keeps_length ? T : longest);
    if (order->places > 1)
        made.doc_start = take_pieces(
                tokens, targets, starts, B, T, order->places, order->place);
    *batch_out = made;
    return status;
}

static enum zd_status fill(struct loader *loader, int slot, int64_t batch)
{
    size_t bytes = loader_bytes(1, loader->B, loader->T);
    return batch_read(
            loader->dataset, &loader->order, batch, loader->B, loader->T,
            loader->memory + (size_t)slot * (bytes / sizeof *loader->memory),
            &loader->slots[slot]);
}

static void *produce(void *argument)
{
    struct loader *loader = argument;
    for (int64_t i = 0; i < loader->batch_count; i++) {
        pthread_mutex_lock(&loader->mutex);
        while (!loader->stopping &&
               loader->produced >= loader->consumed + loader->ahead)
            pthread_cond_wait(&loader->may_produce, &loader->mutex);
        bool goes_on = !loader->stopping;
        pthread_mutex_unlock(&loader->mutex);
        if (!goes_on)
            break;
        int slot = (int)(i % loader->slot_count);
        assert(loader->produced == i); /* no one else writes it */
        enum zd_status status = fill(loader, slot, loader->first_batch + i);
        pthread_mutex_lock(&loader->mutex);
        if (status == ZD_OK) {
            loader->produced++;
        } else {
            loader->failed = true;
            loader->error = *zd_error_get();
        }
        pthread_cond_signal(&loader->may_consume);
        pthread_mutex_unlock(&loader->mutex);
        if (status != ZD_OK)
            break;
    }
    return NULL;
}

static void loader_free(struct loader *loader)
{
    pthread_cond_destroy(&loader->may_consume);
    pthread_cond_destroy(&loader->may_produce);
    pthread_mutex_destroy(&loader->mutex);
    free(loader->slots);
    free(loader);
}

enum zd_status loader_create(
        struct dataset *dataset, struct loader_order order, int64_t first_batch,
        int64_t batch_count, int B, int T, int keep, int ahead, void *memory,
        struct loader **out)
{
    struct loader *loader = zd_array(1, sizeof *loader);
    assert(dataset->T == T);
    assert(keep > 0 && ahead > 0);
    *loader = (struct loader){
            .dataset = dataset,
            .order = order,
            .first_batch = first_batch,
            .batch_count = batch_count,
            .B = B,
            .T = T,
            .ahead = ahead,
            .slot_count = keep + ahead,
            .slots = zd_array((size_t)(keep + ahead), sizeof *loader->slots),
            .memory = memory,
            .came = atomic_load(&dataset->coming.completed),
    };
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->may_produce, NULL);
    pthread_cond_init(&loader->may_consume, NULL);
    if (thread_start(&loader->thread, "zerod-batches", produce, loader) != 0) {
        loader_free(loader);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "cannot start the data loader");
    }
    *out = loader;
    return ZD_OK;
}

bool loader_wait(struct loader *loader, int ms)
{
    double end = clock_seconds() + 1e-3 * ms;
    struct timespec until = {(time_t)end, (long)(1e9 * (end - floor(end)))};
    int error = 0;
    pthread_mutex_lock(&loader->mutex);
    while (loader->produced <= loader->consumed && !loader->failed && !error)
        error = pthread_cond_clockwait(
                &loader->may_consume, &loader->mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&loader->mutex);
    uint64_t came = atomic_load(&loader->dataset->coming.completed);
    if (came != loader->came)
        progress_completed();
    loader->came = came;
    return !error;
}

enum zd_status loader_next(
        struct loader *loader, struct loader_batch *batch_out)
{
    int64_t batch = loader->consumed; /* written by this thread alone */
    assert(batch < loader->batch_count);
    ZD_LOCKED(&loader->mutex);
    /* what was handed out `keep` calls ago may be written over now */
    loader->consumed++;
    pthread_cond_signal(&loader->may_produce);
    while (loader->produced <= batch && !loader->failed)
        pthread_cond_wait(&loader->may_consume, &loader->mutex);
    if (loader->produced <= batch) {
        zd_error_set(&loader->error);
        return loader->error.status;
    }
    *batch_out = loader->slots[batch % loader->slot_count];
    return ZD_OK;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->stopping = true;
    pthread_cond_signal(&loader->may_produce);
    pthread_mutex_unlock(&loader->mutex);
    atomic_store(&loader->dataset->interrupted, true);
    pthread_join(loader->thread, NULL);
    atomic_store(&loader->dataset->interrupted, false);
    loader_free(loader);
}
