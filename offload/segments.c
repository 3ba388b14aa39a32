/* segments.c - leases of segments' host memory.
 *
 *   slot gradients come down (FILL), further micro-batches are added (CHANGE),
 * a job updates, redoes, undoes or rounds (CHANGE); now it has parameters:
 * copied up (READ), then dropped params if parameters have a separate array:
 * jobs write there (FILL, CHANGE), copies up read; the job drops the slot
 *
 * Streams wait only for records of other streams, and the trainer waits for
 * jobs, so no stream waits for a worker that has not started. */
#include "offload/engine.h"

static bool has_own_params(const struct offload *offload)
{
    return offload->request.accumulates && offload->request.params_on_host;
}

struct lease *segment_params(struct offload *offload, int index)
{
    struct segment *segment = &offload->segments[index];
    return has_own_params(offload) ? &segment->params : &segment->slot;
}

/* --- waits ---------------------------------------------------------------- */

/* Waits until what was fed is queued; later work of `stream` waits for it. The
 * report counts the trainer's wait. */
static enum zd_status wait_fed(
        struct feed *feed, enum wait_for what, struct token token,
        struct stream *stream)
{
    struct offload *offload = token.of->owner;
    WAITING(offload, what);
    ZD_TRY(feed_await(feed, token));
    ZD_TRY(stream_wait_record(stream, token.of->event, token.number));
    return offload_failure(offload);
}

static enum zd_status wait_down(
        struct timeline *timeline, uint64_t number, struct stream *stream)
{
    struct offload *offload = timeline->owner;
    return wait_fed(
            &offload->down, WAIT_DOWN, (struct token){timeline, number},
            stream);
}

enum zd_status segments_wait_up(
        struct timeline *timeline, uint64_t number, struct stream *stream)
{
    struct offload *offload = timeline->owner;
    return wait_fed(
            &offload->up, WAIT_UP, (struct token){timeline, number}, stream);
}

/* --- life ----------------------------------------------------------------- */

enum zd_status segments_create(struct offload *offload)
{
    for (int s = 0; s < offload->request.segment_count; s++) {
        struct segment *segment = &offload->segments[s];
        lease_init(&segment->slot, "offload.slots", s);
        lease_init(&segment->params, "offload.params", s);
        if (offload->request.params_on_host) { /* they are cleared */
            lease_acquire(segment_params(offload, s), LEASE_FILL, "clear");
            lease_release(segment_params(offload, s), (struct token){0});
        }
        tally_init(&segment->jobs);
        ZD_TRY(timeline_create(&segment->down));
        ZD_TRY(timeline_create(&segment->up));
        segment->down.wait = wait_down;
        segment->down.owner = offload;
    }
    return ZD_OK;
}

void segments_destroy(struct offload *offload)
{
    ZD_EACH(segment, offload->segments, offload->request.segment_count) {
        tally_fini(&segment->jobs);
        timeline_destroy(&segment->down);
        timeline_destroy(&segment->up);
    }
}

/* --- jobs ----------------------------------------------------------------- */

void segments_note_begun(struct offload *offload, const struct job *job)
{
    if (job->is_over_all)
        for (int s = 0; s < offload->request.segment_count; s++)
            offload->segments[s].chunks_left = offload->segments[s].chunk_count;
}

/* In a job over one segment, the last chunk to end completes the job. */
void segments_note_chunk(
        struct offload *offload, const struct job *job, int chunk)
{
    struct segment *segment =
            &offload->segments[offload->chunks[chunk].segment];
    bool is_last = job->is_over_all ? --segment->chunks_left == 0
                                    : job->finished == job->count;
    if (is_last)
        tally_done(&segment->jobs, job->ticket);
}

/* --- gradients come down -------------------------------------------------- */

/* Later work of the stream `down` waits for the tokens, except its own. With
 * `after_out`, jobs are not waited for: the next job follows them. */
static enum zd_status follow(
        struct offload *offload, int index, const struct lease_tokens *tokens,
        uint64_t *after_out)
{
    struct segment *segment = &offload->segments[index];
    for (int i = 0; i < tokens->count; i++) {
        struct token token = tokens->token[i];
        bool is_job = token.of == &segment->jobs.timeline;
        if (is_job && after_out)
            *after_out = token.number;
        else if (is_job)
            ZD_TRY(token_wait(NULL, token));
        else if (token.of == &segment->up) {
            ZD_TRY(uploads_await(offload, index));
            ZD_TRY(feed_wait(&offload->down, token));
        }
    }
    return ZD_OK;
}

enum zd_status segment_take_grads(
        struct offload *offload, int index, int micro, bool updates,
        uint64_t *after_out)
{
    struct segment *segment = &offload->segments[index];
    struct lease *slot = &segment->slot, *params = &segment->params;
    const char *who = "gradients down";
    bool is_home = offload->request.params_on_host && !has_own_params(offload);
    *after_out = 0;
    if (is_home && lease_is(slot, LEASE_READY))
        lease_drop(slot, who); /* parameters */
    struct lease_tokens tokens =
            lease_acquire(slot, micro ? LEASE_CHANGE : LEASE_FILL, who);
    ZD_TRY(follow(offload, index, &tokens, micro ? after_out : NULL));
    if (!updates || !has_own_params(offload))
        return ZD_OK;
    tokens = lease_acquire(params, LEASE_CHANGE, who);
    return follow(offload, index, &tokens, NULL);
}

void segment_grads_taken(
        struct offload *offload, int index, bool updates, uint64_t ticket)
{
    struct segment *segment = &offload->segments[index];
    struct token worked = tally_token(&segment->jobs, ticket);
    lease_note(&segment->slot, timeline_last(&segment->down));
    lease_release(&segment->slot, worked);
    if (updates)
        segment->made = worked;
    if (updates && has_own_params(offload))
        lease_release(&segment->params, worked);
}

/* --- jobs over all chunks ------------------------------------------------- */

/* For workers, while no job runs: waits until copies up are done. */
static enum zd_status take(
        struct offload *offload, int index, struct lease *lease,
        const char *who)
{
    bool has_content = lease_is(lease, LEASE_READY);
    struct lease_tokens tokens =
            lease_acquire(lease, has_content ? LEASE_CHANGE : LEASE_FILL, who);
    for (int i = 0; i < tokens.count; i++)
        if (tokens.token[i].of == &offload->segments[index].up) {
            ZD_TRY(uploads_await(offload, index));
            ZD_TRY(event_wait(tokens.token[i].of->event));
        }
    return ZD_OK;
}

enum zd_status segments_take(
        struct offload *offload, int count, const char *who)
{
    for (int s = 0; s < count; s++) {
        ZD_TRY(take(offload, s, &offload->segments[s].slot, who));
        if (has_own_params(offload))
            ZD_TRY(take(offload, s, &offload->segments[s].params, who));
    }
    return ZD_OK;
}

void segments_taken(struct offload *offload, int count, uint64_t ticket)
{
    ZD_EACH(segment, offload->segments, count) {
        struct token worked =
                tally_token(&segment->jobs, segment->chunk_count ? ticket : 0);
        segment->made = worked;
        lease_release(&segment->slot, worked);
        if (has_own_params(offload))
            lease_release(&segment->params, worked);
    }
}

enum zd_status segments_leave(
        struct offload *offload, bool sends, const char *who)
{
    bool is_home = offload->request.params_on_host && !has_own_params(offload);
    for (int s = 0; s < offload->request.segment_count && !is_home; s++) {
        struct lease *slot = &offload->segments[s].slot;
        struct token sent = {0};
        if (!offload->request.segment_counts[s]) /* it has no gradients */
            continue;
        if (sends && !offload->request.params_on_host) {
            lease_acquire(slot, LEASE_READ, "parameters up");
            ZD_TRY(uploads_send(offload, s, &sent));
            lease_release(slot, sent);
        }
        lease_drop(slot, who);
    }
    return ZD_OK;
}

void segments_settle(struct offload *offload)
{
    for (int s = 0; s < offload->request.segment_count; s++) {
        lease_settle(&offload->segments[s].slot);
        lease_settle(&offload->segments[s].params);
    }
}
