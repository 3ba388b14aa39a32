/* visit.c - chunks that the device updates: their records and gradients are
 * copied there and back, while the host's workers update the others.
 *
 *     up       | chunk 2 | chunk 5 | chunk 7 |
 *     update             | chunk 2 | chunk 5 | ..
 *     down                         | chunk 2 | chunk 5 | ..
 *
 * A visitor is a worker with a buffer on the device. It takes its chunks in the
 * same order as workers, and does what they do except the update. There are
 * several, so that one chunk is copied up while another is updated and a third
 * copied down. */
#include "offload/engine.h"

#include "base/must.h"
#include "optim/device.h"

/* --- which chunks --------------------------------------------------------- */

static double share_of(const struct offload_request *request)
{
    double share = request->options->device_update;
    return share > 0 ? share : 0;
}

/* Spread evenly, so that device and host finish a segment at about the same
 * time. */
void visits_choose(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, bool *visits)
{
    double share = share_of(request), seen = 0, visiting = 0;
    for (int i = 0; i < chunk_count; i++) {
        double count = (double)chunks[i].count;
        seen += count;
        visits[i] = visiting + count / 2 < share * seen;
        visiting += visits[i] ? count : 0;
    }
}

/* If parameters stay on the device, the update writes them in place, but only
 * once the norm is known: a skipped step needs the old ones. */
static bool is_made_at_home(
        const struct offload_request *request, const struct chunk *chunk)
{
    return !request->params_on_host && chunk->segment < request->undo_first;
}

static void add_visit(
        const struct offload_request *request, const struct chunk *chunk,
        bool at_home, struct offload_visits *sum)
{
    uint64_t states = record_bytes(request, chunk, RECORD_ALIGN);
    uint64_t param = chunk->count * dtype_bytes(request->dtype);
    sum->up += states + chunk->count * dtype_bytes(offload_grad_type(request));
    sum->down += states + (at_home ? 0 : param);
    sum->home += at_home ? param : 0;
}

struct offload_visits offload_visits_of(const struct offload_request *request)
{
    struct offload_visits sum = {0};
    int count;
    for (int i = 0; i < request->extent_count; i++)
        sum.held += request->extents[i].count;
    ZD_FREED struct chunk *chunks = chunks_cut(request, &count);
    ZD_FREED bool *visits = zd_array((size_t)count, sizeof *visits);
    visits_choose(request, chunks, count, visits);
    for (int i = 0; i < count; i++)
        if (visits[i])
            add_visit(
                    request, &chunks[i], is_made_at_home(request, &chunks[i]),
                    &sum);
    return sum;
}

bool visit_is_home(const struct offload *offload, int index)
{
    const struct chunk *chunk = &offload->chunks[index];
    return offload->visits[index] && offload->segments[chunk->segment].device &&
           is_made_at_home(&offload->request, chunk);
}

void visits_count(struct offload *offload, int first, int count)
{
    struct offload_visits sum = {0};
    for (int c = first; c < first + count; c++)
        if (offload->visits[c])
            add_visit(
                    &offload->request, &offload->chunks[c],
                    visit_is_home(offload, c), &sum);
    report_add(offload, sum.down, sum.up);
}

/* --- a visitor ------------------------------------------------------------ */

/* Its buffer: a record, the gradient, the parameter. */
struct buffer {
    size_t grad, param, bytes;
};

static struct buffer buffer_of(
        const struct offload_request *request, size_t states, size_t count)
{
    size_t whole = optim_whole_qblocks(count); /* of 64 bytes and more */
    struct buffer at = {.grad = states};
    at.param = at.grad + whole * dtype_bytes(offload_grad_type(request));
    at.bytes = at.param + whole * dtype_bytes(request->dtype);
    return at;
}

static struct buffer largest_of(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count)
{
    size_t states = record_largest(request, chunks, chunk_count, RECORD_ALIGN);
    size_t count = 0;
    for (int i = 0; i < chunk_count; i++)
        count = chunks[i].count > count ? chunks[i].count : count;
    return buffer_of(request, states, count);
}

size_t visits_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count)
{
    return share_of(request) > 0
                   ? VISITORS * largest_of(request, chunks, chunk_count).bytes
                   : 0;
}

enum zd_status visits_begin(struct offload *offload)
{
    struct visits *all = &offload->visitors;
    struct buffer at = largest_of(
            &offload->request, offload->chunks, offload->chunk_count);
    enum stream_mode mode = device_backend() == DEVICE_CUDA
                                    ? STREAM_CUDA
                                    : offload->place.streams;
    char *memory;
    if (!(share_of(&offload->request) > 0) || !offload->chunk_count)
        return ZD_OK;
    memory = arena_span(offload->arena, "offload.visits");
    all->device = device_current();
    ZD_TRY(stream_create("visits up", mode, &all->up));
    ZD_TRY(stream_create("visits down", mode, &all->down));
    for (; all->count < VISITORS; all->count++) {
        struct visitor *visitor = &all->visitors[all->count];
        ZD_TRY(guest_create(
                &visitor->guest, memory + (size_t)all->count * at.bytes));
        if (mode == STREAM_CUDA)
            ZD_TRY(stream_create("offload-visit", mode, &visitor->stream));
    }
    return ZD_OK;
}

void visits_end(struct offload *offload)
{
    struct visits *all = &offload->visitors;
    stream_destroy(all->up);
    stream_destroy(all->down);
    for (int i = 0; i < VISITORS; i++) {
        stream_destroy(all->visitors[i].stream);
        guest_destroy(&all->visitors[i].guest);
    }
}

void visitor_enter(const struct worker *worker)
{
    device_use(worker->offload->visitors.device);
    stream_use(worker->visitor->stream);
}

/* --- a visit -------------------------------------------------------------- */

/* On the CPU the visitor's thread is the device. */
static enum zd_status update(
        const struct optim_span *span, const struct optim_step *step)
{
    if (device_backend() == DEVICE_CUDA)
        return optim_device()->update(span, step);
    optim_update(span, step);
    return ZD_OK;
}

/* All visitors share the streams. */
static enum zd_status move(
        struct visits *all, struct stream *stream, struct event *after,
        const struct guest_copy *copies, struct event *done)
{
    ZD_LOCKED(&all->lock);
    return guest_move(stream, after, copies, done);
}

static enum zd_status make(
        struct visits *all, const struct guest *guest,
        const struct guest_copy *up, const struct guest_copy *down,
        const struct optim_span *there, const struct optim_step *step)
{
    ZD_TRY(move(all, all->up, guest->left, up, guest->arrived));
    ZD_TRY(stream_wait(NULL, guest->arrived));
    ZD_TRY(update(there, step));
    ZD_TRY(stream_record(NULL, guest->updated));
    ZD_TRY(move(all, all->down, guest->updated, down, guest->left));
    return event_wait(guest->left);
}

enum zd_status visit_update(
        const struct worker *worker, const struct chunk *chunk,
        const struct optim_span *here, const struct optim_step *step)
{
    struct offload *offload = worker->offload;
    const struct offload_request *request = &offload->request;
    const struct offload_extent *extent = &request->extents[chunk->extent];
    const struct guest *guest = &worker->visitor->guest;
    char *home = offload->segments[chunk->segment].device;
    size_t wide = dtype_bytes(request->dtype);
    size_t states = record_bytes(request, chunk, RECORD_ALIGN);
    bool at_home = visit_is_home(offload, (int)(chunk - offload->chunks));
    struct buffer at = buffer_of(request, states, chunk->count);
    struct optim_span there = *here;
    struct chunk_memory memory;
    record_memory(request, chunk, RECORD_ALIGN, guest->buffer, &memory);
    there.master = memory.master;
    there.lanes = memory.lanes;
    there.grad = guest->buffer + at.grad;
    there.param = at_home ? home + (extent->offset + chunk->begin) * wide
                          : guest->buffer + at.param;
    const struct guest_copy up[GUEST_COPIES] = {
            {there.master, here->master, states},
            {guest->buffer + at.grad, here->grad,
             chunk->count * dtype_bytes(offload_grad_type(request))}};
    const struct guest_copy down[GUEST_COPIES] = {
            {here->master, there.master, states},
            {here->param, there.param, at_home ? 0 : chunk->count * wide}};
    return make(&offload->visitors, guest, up, down, &there, step);
}
