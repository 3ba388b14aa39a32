/* batch.c - prepares the tokens of a pass for kernels.
 *
 * On the CPU kernels read the caller's arrays and those computed here. For a
 * GPU all are packed into one of two pinned slots and copied at once on the
 * compute stream, after the previous pass's kernels. Meanwhile the host fills
 * the other slot; it waits only if it is two passes ahead.
 *
 *     tokens | positions | doc_start | first_tokens | targets | rows | places |
 *     token_order | position_order
 */
#include "model/internal.h"

#include <string.h>

enum zd_status batch_upload_init(struct model *model, const struct arena *arena)
{
    struct batch_upload *u = &model->upload;
    size_t tokens = model_most_tokens(&model->shape);
    u->planes = CPU_PLANES * tokens;
    u->staging = arena_span(arena, "model.batch");
    if (shape_backend(&model->shape) != DEVICE_CUDA)
        return ZD_OK;
    u->planes = batch_planes(model->config, &model->shape) *
                batch_plane_tokens(tokens);
    u->device = u->staging;
    u->staging = arena_span(arena, "model.batch.staging");
    u->counts = arena_span(arena, "model.batch.counts");
    for (int slot = 0; slot < BATCH_SLOTS; slot++)
        ZD_TRY(event_create(&u->sent[slot]));
    return ZD_OK;
}

void batch_upload_fini(struct batch_upload *upload)
{
    for (int slot = 0; slot < BATCH_SLOTS; slot++)
        event_destroy(upload->sent[slot]);
}

/* The number of attention's queries. */
static int query_count(const struct pass *pass)
{
    return pass->by_heads ? pass->B * pass->T : pass->N;
}

/* Does a document begin at query n? attention_start must be a host array. */
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
    for (int r = 0, n = 0; r < pass->run_count; r++)
        for (int i = 0; i < pass->runs[r].count; i++)
            positions[n++] = pass->runs[r].past + i;
    memset(positions + pass->N - pass->pads, 0,
           (size_t)pass->pads * sizeof *positions);
    for (int n = 0; !pass->decode && n < pass->N; n++)
        positions[n] = attention_token(all, n % all.rows) - pass->doc_start[n];
    for (int n = 0; n < query_count(pass); n++)
        pass->documents += begins_document(pass, positions, n);
}

/* Fills attention_shape.first_tokens. */
static void fill_first_tokens(
        int32_t *first, const int32_t *positions, const struct pass *pass,
        int documents)
{
    struct attention_shape shape = {
            .B = pass->B, .T = pass->T, .documents = documents};
    int bucket = attention_bucket(&shape), count = 0;
    int queries = query_count(pass);
    for (int n = 0; n < queries && bucket; n++)
        if (begins_document(pass, positions, n))
            first[count++] = n;
    while (bucket && count <= bucket)
        first[count++] = queries;
}

/* The planes of a pass: host and device memory. */
struct packer {
    int32_t *host, *device; /* the same on the CPU */
    size_t plane, used;
};

/* The next plane: on the CPU `values` itself if given, else new memory. */
static int32_t *pack(
        struct packer *p, const int32_t *values, int N, const int32_t **device)
{
    int32_t *to = p->host + p->used;
    if (values && p->host == p->device) {
        *device = values;
        return NULL;
    }
    if (values)
        memcpy(to, values, (size_t)N * sizeof *to);
    *device = p->device + p->used;
    p->used += p->plane;
    return to;
}

/* Memory for one value per attention query, in as many planes as needed. */
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

/* Converts ids to rows of this place's table. */
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

/* Orders targets by the head's chunks: each has tokens of all shares. */
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

/* --- rows of the head ------------------------------------------------------
 */

/* Counts the rows that the head computes, those with a target. Call before
 * targets move to the device. False: the head computes all rows. */
static bool count_head_rows(const struct model *model, struct pass *pass)
{
    /* Rounds up to multiples of `step`, so that the head's matmuls have few
     * shapes: libraries cache objects per shape. */
    enum { SHAPES = 16, EDGE = 16 };
    int chunk = pass->acts->head.chunk, targets = 0;
    int step = ((chunk + SHAPES - 1) / SHAPES + EDGE - 1) / EDGE * EDGE;
    /* dropout of the head's adapter depends on rows of the pass */
    bool drops = pass->drops && !model->config->tied &&
                 param_has_adapter(model->table, model->head);
    pass->head_rows = pass->N;
    if (!pass->targets || drops)
        return false;
    for (int n = 0; n < pass->N; n++)
        targets += pass->targets[n] >= 0;
    int rows = ((targets > 0 ? targets : 1) + step - 1) / step * step;
    if (rows >= pass->N)
        return false;
    pass->head_targets = targets;
    pass->head_rows = rows;
    return true;
}

static void fill_head_rows(
        const struct pass *pass, const int32_t *given, int32_t *targets,
        int32_t *rows, int32_t *places)
{
    int count = 0;
    for (int n = 0; n < pass->N; n++) {
        bool has_target = given[n] >= 0;
        places[n] = has_target ? count : pass->head_targets;
        if (has_target) {
            rows[count] = n;
            targets[count++] = given[n];
        }
    }
    for (; count < pass->head_rows; count++) {
        rows[count] = 0;
        targets[count] = -1;
    }
}

/* --- all of it ------------------------------------------------------------ */

/* Packs the orders in which gradients of the tables are added up. */
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

/* `from`: the pass with the caller's arrays. */
static void pack_targets(
        const struct model *model, const struct pass *from, struct pass *pass,
        struct packer *p)
{
    if (from->targets && tp_size(model->config) > 1) {
        fill_chunk_targets(model, from, pack(p, NULL, 0, &pass->targets));
        pass->head_rows = pass->N;
    } else if (count_head_rows(model, pass)) {
        int32_t *targets = pack(p, NULL, 0, &pass->targets);
        int32_t *rows = pack(p, NULL, 0, &pass->rows);
        fill_head_rows(
                pass, from->targets, targets, rows,
                pack(p, NULL, 0, &pass->places));
    } else if (from->targets) {
        pack(p, from->targets, pass->N, &pass->targets);
    }
}

enum zd_status batch_place(
        struct model *model, struct pass *pass, bool has_backward)
{
    struct batch_upload *u = &model->upload;
    const struct pass from = *pass;
    bool is_cut = tp_size(model->config) > 1;
    int slot = u->next++ % BATCH_SLOTS;
    struct packer p = {.plane = (size_t)pass->N};
    p.host = p.device = u->staging + (size_t)pass->micro * u->planes;
    if (u->device) {
        p.plane = batch_plane_tokens((size_t)pass->N);
        p.host = u->staging + (size_t)slot * u->planes;
        p.device = u->device + (size_t)pass->micro * u->planes;
        ZD_TRY(event_wait(u->sent[slot]));
    }
    int32_t *tokens =
            pack(&p, is_cut ? NULL : from.tokens, pass->N, &pass->tokens);
    if (is_cut)
        fill_own_ids(model, &from, tokens);
    int32_t *positions = pack(&p, NULL, 0, &pass->positions);
    fill_positions(positions, pass);
    pass->own_positions =
            pass->positions + model->config->tp.place * pass->share;
    if (from.doc_start && u->device) {
        int32_t *first;
        pack_queries(&p, pass, from.attention_start, &pass->attention_start);
        first = pack_queries(&p, pass, NULL, &pass->first_tokens);
        fill_first_tokens(first, positions, &from, pass->documents);
    }
    pack_targets(model, &from, pass, &p);
    if (!u->device)
        return ZD_OK;
    if (has_backward && model->unit_trains[0])
        pack_orders(model, pass, &p, tokens, positions);
    ZD_TRY(stream_copy(NULL, p.device, p.host, p.used * sizeof *p.host));
    return stream_record(NULL, u->sent[slot]);
}
