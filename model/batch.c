/* batch.c - the tokens of a pass, where kernels read them.
 *
 * The CPU reads the caller's arrays. For a GPU what a pass reads is packed into
 * one of two pinned slots and goes up in one copy of the compute stream, after
 * the kernels of the pass before: the host fills the other slot meanwhile and
 * waits for nothing, unless it is two passes ahead.
 *
 *     tokens | positions | doc_start | first_tokens | targets | rows | places |
 *     token_order | position_order
 */
#include "model/internal.h"

#include <string.h>

enum { ALIGN_TOKENS = ARENA_ALIGN / (int)sizeof(int32_t) };

size_t batch_plane_tokens(size_t tokens)
{
    return (tokens + ALIGN_TOKENS - 1) / ALIGN_TOKENS * ALIGN_TOKENS;
}

enum zd_status batch_upload_init(
        struct batch_upload *upload, const struct arena *arena)
{
    upload->device = arena_span(arena, "model.batch");
    upload->staging = arena_span(arena, "model.batch.staging");
    upload->counts = arena_span(arena, "model.batch.counts");
    for (int slot = 0; slot < BATCH_SLOTS; slot++)
        ZD_TRY(event_create(&upload->sent[slot]));
    return ZD_OK;
}

void batch_upload_fini(struct batch_upload *upload)
{
    for (int slot = 0; slot < BATCH_SLOTS; slot++)
        event_destroy(upload->sent[slot]);
}

static void fill_decode_positions(int32_t *positions, const struct pass *pass)
{
    int n = 0;
    for (int r = 0; r < pass->run_count; r++)
        for (int i = 0; i < pass->runs[r].count; i++)
            positions[n++] = pass->runs[r].past + i;
    memset(positions + n, 0, (size_t)pass->pads * sizeof *positions);
}

/* Attention's. */
static int query_count(const struct pass *pass)
{
    return pass->by_heads ? pass->B * pass->T : pass->N;
}

/* Does a document begin with the query, where attention_start is the host's? */
static bool begins_document(
        const struct pass *pass, const int32_t *positions, int n)
{
    return pass->by_heads ? pass->attention_start[n] == n % pass->T
                          : positions[n] == 0;
}

/* Positions count from the document's first token. */
static void fill_positions(int32_t *positions, struct pass *pass)
{
    struct attention_shape shape = {.T = pass->T, .queries = pass->queries};
    struct attention_queries all = attention_queries(&shape);
    pass->documents = 0;
    if (pass->decode)
        fill_decode_positions(positions, pass);
    for (int n = 0; n < pass->N; n++) {
        if (!pass->decode)
            positions[n] =
                    attention_token(all, n % all.rows) - pass->doc_start[n];
    }
    for (int n = 0; n < query_count(pass); n++)
        pass->documents += begins_document(pass, positions, n);
}

/* Where documents begin, as attention_shape.first_tokens has it. */
static void fill_first_tokens(
        int32_t *first, const int32_t *positions, const struct pass *pass)
{
    struct attention_shape shape = {
            .B = pass->B, .T = pass->T, .documents = pass->documents};
    int bucket = attention_bucket(&shape), count = 0;
    int queries = query_count(pass);
    for (int n = 0; n < queries && bucket; n++)
        if (begins_document(pass, positions, n))
            first[count++] = n;
    while (bucket && count <= bucket)
        first[count++] = queries;
}

/* The next plane of a slot; its place on the device. */
struct packer {
    int32_t *host, *device;
    size_t plane, used;
};

static int32_t *pack(
        struct packer *p, const int32_t *values, int N, const int32_t **device)
{
    int32_t *to = p->host + p->used;
    if (values)
        memcpy(to, values, (size_t)N * sizeof *to);
    *device = p->device + p->used;
    p->used += p->plane;
    return to;
}

/* Room for a value of each of attention's queries, of as many planes as they
 * take. */
static int32_t *pack_queries(
        struct packer *p, const struct pass *pass, const int32_t *values,
        const int32_t **device)
{
    int32_t *to = pack(p, values, query_count(pass), device);
    p->used += (size_t)(query_count(pass) / pass->N - 1) * p->plane;
    return to;
}

/* --- tensor parallelism ----------------------------------------------------
 */

/* As rows of this place's table. */
static void fill_own_ids(
        const struct model *model, const struct pass *pass, int32_t *ids)
{
    const struct vocabulary_slice *own = &model->vocabulary;
    int tokens = pass->N - pass->pads;
    for (int n = 0; n < pass->N; n++) {
        int id = n < tokens ? pass->tokens[n] - own->first : -1;
        ids[n] = id >= 0 && id < own->count ? id : -1;
    }
}

/* In the order of the head's chunks: of each the tokens of all shares. */
static void fill_chunk_targets(
        const struct model *model, const struct pass *pass, int32_t *targets)
{
    int places = tp_size(model->config);
    int chunk = pass->acts->head.chunk / places;
    for (int begin = 0; begin < pass->share; begin += chunk)
        for (int place = 0; place < places; place++)
            for (int i = begin; i < begin + chunk && i < pass->share; i++)
                *targets++ = pass->targets[place * pass->share + i];
}

static const int32_t *own_positions(
        const struct model *model, const struct pass *pass)
{
    return pass->positions + model->config->tp.place * pass->share;
}

/* --- on a GPU ------------------------------------------------------------- */

/* Gradients of the tables are added up in the order of their rows. */
static void pack_orders(
        const struct model *model, struct pass *pass, struct packer *p,
        const int32_t *tokens, const int32_t *positions)
{
    int32_t *counts = model->upload.counts;
    embedding_order(
            pack(p, NULL, 0, &pass->token_order), tokens, pass->N,
            model->config->vocab_size, counts);
    if (role_id(model, 0, ROLE_POSITIONS) >= 0)
        embedding_order(
                pack(p, NULL, 0, &pass->position_order),
                positions + model->config->tp.place * pass->share, pass->share,
                pass->T, counts);
}

static void pack_head_rows(struct pass *pass, struct packer *p)
{
    const int32_t *on_device;
    int32_t *targets = pack(p, NULL, 0, &on_device);
    int32_t *rows = pack(p, NULL, 0, &pass->rows);
    head_rows_fill(pass, targets, rows, pack(p, NULL, 0, &pass->places));
    pass->targets = on_device;
}

static enum zd_status send(
        struct model *model, struct pass *pass, bool has_backward)
{
    struct batch_upload *u = &model->upload;
    int slot = u->next++ % BATCH_SLOTS;
    size_t room = batch_planes(model->config, &model->shape) * u->plane;
    const int32_t *tokens = pass->tokens;
    struct packer p = {
            .host = u->staging + (size_t)slot * room,
            .device = u->device + (size_t)pass->micro * room,
            .plane = batch_plane_tokens((size_t)pass->N)};
    ZD_TRY(event_wait(u->sent[slot]));
    if (tp_size(model->config) > 1) {
        const int32_t *on_device;
        int32_t *ids = pack(&p, NULL, 0, &on_device);
        fill_own_ids(model, pass, ids);
        pass->tokens = on_device;
        tokens = ids;
    } else {
        pack(&p, tokens, pass->N, &pass->tokens);
    }
    int32_t *positions = pack(&p, NULL, 0, &pass->positions);
    fill_positions(positions, pass);
    if (pass->doc_start) {
        const int32_t *on_device;
        pack_queries(&p, pass, pass->attention_start, &on_device);
        fill_first_tokens(
                pack_queries(&p, pass, NULL, &pass->first_tokens), positions,
                pass);
        pass->attention_start = on_device;
    }
    pass->own_positions = own_positions(model, pass);
    if (pass->targets && tp_size(model->config) > 1) {
        const int32_t *on_device;
        fill_chunk_targets(model, pass, pack(&p, NULL, 0, &on_device));
        pass->targets = on_device;
        pass->head_rows = pass->N;
    } else if (head_rows_count(model, pass))
        pack_head_rows(pass, &p);
    else if (pass->targets)
        pack(&p, pass->targets, pass->N, &pass->targets);
    if (has_backward && model->unit_trains[0])
        pack_orders(model, pass, &p, tokens, positions);
    ZD_TRY(stream_copy(NULL, p.device, p.host, p.used * sizeof *p.host));
    return stream_record(NULL, u->sent[slot]);
}

enum zd_status batch_place(
        struct model *model, struct pass *pass, bool has_backward)
{
    if (model->upload.device)
        return send(model, pass, has_backward);
    size_t own = CPU_PLANES * model->upload.plane;
    int32_t *positions = model->planes + (size_t)pass->micro * own;
    int32_t *targets = positions + pass->N;
    int32_t *rows = targets + pass->N, *places = rows + pass->N;
    fill_positions(positions, pass);
    pass->positions = positions;
    pass->own_positions = own_positions(model, pass);
    if (tp_size(model->config) > 1) {
        fill_own_ids(model, pass, rows);
        pass->tokens = rows;
        if (pass->targets) {
            fill_chunk_targets(model, pass, targets);
            pass->targets = targets;
        }
        pass->head_rows = pass->N;
        return ZD_OK;
    }
    if (!head_rows_count(model, pass))
        return ZD_OK;
    head_rows_fill(pass, targets, rows, places);
    pass->targets = targets, pass->rows = rows, pass->places = places;
    return ZD_OK;
}
