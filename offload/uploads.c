/* uploads.c - copies parameters that stay on the device up as workers make
 * them: the thread of the feed `up` queues the copies, by segment and chunk. */
#include "offload/engine.h"

/* Waits for chunk `index`; returns how many chunks from it on have final
 * parameters. */
static int await_updated(struct offload *offload, int index, int end)
{
    int count = 0;
    ZD_LOCKED(&offload->lock);
    offload->awaited = index;
    while (!offload->made[index])
        pthread_cond_wait(&offload->progress, &offload->lock);
    while (index + count < end && offload->made[index + count])
        count++;
    return count;
}

/* Queues copies for chunks of one segment. Only jobs write where they are
 * copied from. */
static enum zd_status send_chunks(struct offload *offload, int index, int count)
{
    const struct chunk *chunks = &offload->chunks[index];
    char *device = offload->segments[chunks->segment].device;
    for (int i = 0, joined; i < count; i += joined) {
        int there = i; /* that must go up: up to this one */
        struct chunk_copy copy;
        while (there < count && offload->made[index + there] != PARAM_AT_HOME)
            there++;
        joined = 1;
        if (there == i)
            continue;
        joined = chunks_join(
                &offload->store_request, &chunks[i], there - i, true,
                feed_piece(&offload->up), &copy);
        ZD_TRY(stream_copy(
                offload->place.up, device + copy.at, copy.host, copy.bytes));
    }
    return ZD_OK;
}

static enum zd_status send_segment(void *ctx, int64_t index)
{
    struct offload *offload = ctx;
    const struct segment *segment = &offload->segments[index];
    int end = segment->first_chunk + segment->chunk_count;
    for (int first = segment->first_chunk, count; first < end; first += count) {
        count = await_updated(offload, first, end);
        ZD_TRY(send_chunks(offload, first, count));
    }
    return ZD_OK;
}

/* Elements of a segment that are copied up: all but those that an update writes
 * in place on the device. */
static size_t elements_up(
        const struct offload *offload, const struct segment *segment,
        bool by_update)
{
    size_t elements = segment->device ? segment->elements : 0;
    int end = segment->first_chunk + segment->chunk_count;
    for (int c = segment->first_chunk; c < end; c++)
        if (by_update && visit_is_home(offload, c))
            elements -= offload->chunks[c].count;
    return elements;
}

void uploads_begin(struct offload *offload, bool by_update)
{
    size_t elements = 0;
    for (int s = 0; s < offload->request.segment_count; s++) {
        uploads_await(offload, s);
        elements += elements_up(offload, &offload->segments[s], by_update);
    }
    report_add(offload, 0, elements * dtype_bytes(offload->request.dtype));
    ZD_LOCKED(&offload->lock);
    for (int c = 0; c < offload->chunk_count; c++)
        offload->made[c] = PARAM_OLD;
}

void uploads_note(struct offload *offload, int index, enum param_place place)
{
    offload->made[index] = place;
    if (index == offload->awaited)
        pthread_cond_broadcast(&offload->progress);
}

enum zd_status uploads_send(
        struct offload *offload, int index, struct token *sent_out)
{
    struct segment *segment = &offload->segments[index];
    if (!segment->device || !segment->chunk_count)
        return ZD_OK;
    ZD_TRY(feed_work(&offload->up, send_segment, offload, index));
    return feed_record(&offload->up, &segment->up, sent_out);
}

enum zd_status uploads_await(struct offload *offload, int index)
{
    return feed_await(
            &offload->up, timeline_last(&offload->segments[index].up));
}
