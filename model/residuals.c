/* residuals.c - the residual stream between forward and backward, when it is
 * offloaded. Of A micro-batches there are A + 1 buffers on the device; input m
 * of segment s is number j = s A + m. With one micro-batch:
 *
 *     forward    input s is in buffer s % 2; it goes to the host while its
 *                segment is computed, before segment s + 1 writes input s + 2
 *     backward   input s - 1 comes back into the other buffer while segment s
 *                is recomputed and gone back through
 *
 * and the last two inputs never leave: backward begins with them. With several,
 * a segment of a micro-batch writes its output over the input that was used
 * before its own. They take turns from 1 to A, but in the last segment but one
 * from A to 1: so that what is left beside the last segment's inputs is input 1
 * of that one. Backward goes from 1 to A in each segment, and while it is at
 * one the next input comes over that which it has left. The A + 1 with which it
 * begins never leave. */
#include "model/internal.h"

#include "base/clock.h"
#include "base/must.h"

#include <stdlib.h>

enum zd_status residuals_init(struct residuals *r, char *host, int buffers)
{
    r->host = host;
    r->buffers = buffers;
    r->computed = zd_array((size_t)buffers, sizeof *r->computed);
    r->moved = zd_array((size_t)buffers, sizeof *r->moved);
    for (int b = 0; b < buffers; b++) {
        ZD_TRY(event_create(&r->computed[b]));
        ZD_TRY(event_create(&r->moved[b]));
    }
    return ZD_OK;
}

void residuals_fini(struct residuals *r)
{
    for (int b = 0; b < r->buffers; b++) {
        event_destroy(r->computed[b]);
        event_destroy(r->moved[b]);
    }
    free(r->computed);
    free(r->moved);
}

static bool moves(const struct pass *pass, int segment)
{
    int turn = pass->acts->segments - 2;
    return pass->acts->offloaded &&
           (segment < turn || (segment == turn && pass->micro > 0));
}

static int segment_of(const struct pass *pass, int layer)
{
    return (layer - pass->acts->first) / pass->acts->segment;
}

/* The buffer in which an input lies in forward, or in backward, by its memory
 * (slots.c). */
static int buffer_of(const struct pass *pass, int segment)
{
    const struct activations *acts = pass->acts;
    const char *first = acts->first_buffer, *input = pass->inputs[segment];
    return (int)((size_t)(input - first) / acts->input_bytes);
}

/* Until an input's buffer may be used by what follows. */
static enum zd_status await_buffer(
        struct model *model, const struct pass *pass, int segment)
{
    struct residuals *r = &model->residuals;
    double began = clock_seconds();
    ZD_TRY(stream_wait(NULL, r->moved[buffer_of(pass, segment)]));
    r->report.wait_seconds += clock_seconds() - began;
    return ZD_OK;
}

/* Copy a segment's input to the host or back, after the kernels queued so far.
 * Its way down is over before it comes back: forward waited for it before it
 * wrote another input into the buffer. */
static enum zd_status move(
        struct model *model, const struct pass *pass, int segment, bool down)
{
    struct residuals *r = &model->residuals;
    struct stream *stream = down ? r->streams.down : r->streams.up;
    int number = segment * pass->acts->micros + pass->micro;
    int buffer = buffer_of(pass, segment);
    number -= segment == pass->acts->segments - 2; /* its first stays */
    size_t bytes = (size_t)pass->share * (size_t)model->config->hidden_size *
                   dtype_bytes(model->kernels->dtype);
    char *host = r->host + (size_t)number * pass->acts->input_bytes;
    char *device = pass->inputs[segment];
    ZD_TRY(stream_record(NULL, r->computed[buffer]));
    ZD_TRY(stream_wait(stream, r->computed[buffer]));
    ZD_TRY(stream_copy(
            stream, down ? host : device, down ? device : host, bytes));
    *(down ? &r->report.down_bytes : &r->report.up_bytes) += bytes;
    return stream_record(stream, r->moved[buffer]);
}

enum zd_status residuals_leave(
        struct model *model, const struct pass *pass, int layer)
{
    const struct activations *acts = pass->acts;
    if (!acts->offloaded)
        return ZD_OK;
    int i = layer - acts->first, segment = segment_of(pass, layer);
    if (i % acts->segment == 0 && moves(pass, segment))
        ZD_TRY(move(model, pass, segment, true));
    bool ends = (i + 1) % acts->segment == 0 && segment + 1 < acts->segments;
    return ends ? await_buffer(model, pass, segment + 1) : ZD_OK;
}

enum zd_status residuals_fetch(
        struct model *model, const struct pass *pass, int layer)
{
    int below = segment_of(pass, layer) - 1;
    bool comes = below >= 0 && moves(pass, below);
    return comes ? move(model, pass, below, false) : ZD_OK;
}

enum zd_status residuals_await(
        struct model *model, const struct pass *pass, int layer)
{
    int segment = segment_of(pass, layer);
    bool comes = moves(pass, segment);
    return comes ? await_buffer(model, pass, segment) : ZD_OK;
}

void model_set_streams(struct model *model, const struct model_streams *streams)
{
    model->residuals.streams = *streams;
}

struct model_offload_report model_offload_report_take(struct model *model)
{
    struct model_offload_report report = model->residuals.report;
    model->residuals.report = (struct model_offload_report){0};
    return report;
}
