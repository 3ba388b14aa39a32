/* residuals.c - the residual stream between forward and backward, when it is
 * offloaded. With S segments and two buffers on the device:
 *
 *     forward    input s is in buffer s % 2; it goes to the host while its
 *                segment is computed, before segment s + 1 writes input s + 2
 *     backward   input s - 1 comes back into the other buffer while segment s
 *                is recomputed and gone back through
 *
 * The last two inputs never leave: backward begins with them. */
#include "model/internal.h"

#include "base/clock.h"

enum zd_status residuals_init(struct residuals *r, char *host)
{
    r->host = host;
    for (int b = 0; b < RESIDUAL_BUFFERS; b++) {
        ZD_TRY(event_create(&r->computed[b]));
        ZD_TRY(event_create(&r->moved[b]));
    }
    return ZD_OK;
}

void residuals_fini(struct residuals *r)
{
    for (int b = 0; b < RESIDUAL_BUFFERS; b++) {
        event_destroy(r->computed[b]);
        event_destroy(r->moved[b]);
    }
}

/* Until the buffer of a segment's input may be used by what follows. */
static enum zd_status await_buffer(struct model *model, int segment)
{
    struct residuals *r = &model->residuals;
    double began = clock_seconds();
    ZD_TRY(stream_wait(NULL, r->moved[segment % RESIDUAL_BUFFERS]));
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
    int buffer = segment % RESIDUAL_BUFFERS;
    size_t bytes = (size_t)pass->share * (size_t)model->config->hidden_size *
                   dtype_bytes(model->kernels->dtype);
    char *host = r->host + (size_t)segment * pass->acts->input_bytes;
    char *device = pass->acts->inputs[segment];
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
    int i = layer - acts->first, segment = i / acts->segment;
    if (i % acts->segment == 0 && segment < acts->offloaded)
        ZD_TRY(move(model, pass, segment, true));
    bool ends = (i + 1) % acts->segment == 0;
    if (ends && segment + 1 < acts->segments)
        return await_buffer(model, segment + 1);
    return ZD_OK;
}

enum zd_status residuals_return(
        struct model *model, const struct pass *pass, int segment)
{
    const struct activations *acts = pass->acts;
    if (segment > 0 && segment - 1 < acts->offloaded)
        ZD_TRY(move(model, pass, segment - 1, false));
    return segment < acts->offloaded ? await_buffer(model, segment) : ZD_OK;
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
