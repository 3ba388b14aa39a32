/* residuals.c - offloads the residual stream between forward and backward. A
 * micro-batches have A + 1 buffers on the device; the input of segment s in
 * micro-batch m is number j = s A + m. With one micro-batch:
 *
 *     forward    input s is in buffer s % 2; it goes to the host while its
 *                segment is computed, before segment s + 1 writes input s + 2
 *     backward input s - 1 returns to the other buffer during recomputation and
 *                backward of segment s
 *
 * and the last two inputs stay: backward begins with them. With several
 * micro-batches, a segment writes its output over the input that was used
 * before its own. Micro-batches run from 1 to A, but in the last segment but
 * one from A to 1: then input 1 of that segment remains beside the inputs of
 * the last one. Backward runs from 1 to A in each segment; during each, the
 * next input is copied over the one just finished. The A + 1 inputs with which
 * backward begins stay. */
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

/* The buffer of an input in forward or in backward, found by its address
 * (slots.c). */
static int buffer_of(const struct pass *pass, int segment)
{
    const struct activations *acts = pass->acts;
    const char *first = acts->first_buffer, *input = pass->inputs[segment];
    return (int)((size_t)(input - first) / acts->input_bytes);
}

/* Waits until an input's buffer may be used. */
static enum zd_status await_buffer(
        struct model *model, const struct pass *pass, int segment)
{
    struct residuals *r = &model->residuals;
    double began = clock_seconds();
    ZD_TRY(stream_wait(NULL, r->moved[buffer_of(pass, segment)]));
    r->report.wait_seconds += clock_seconds() - began;
    return ZD_OK;
}

/* Copies a segment's input to the host or back, after the kernels queued so
 * far. The copy down has finished before the copy back: forward waited for it
 * before reusing the buffer. */
static enum zd_status move(
        struct model *model, const struct pass *pass, int segment, bool down)
{
    struct residuals *r = &model->residuals;
    struct stream *stream = down ? r->streams.down : r->streams.up;
    int number = segment * pass->acts->micros + pass->micro;
    int buffer = buffer_of(pass, segment);
    number -= segment == pass->acts->segments - 2; /* its first input stays */
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
