/* activations.c - lays out the passes on their stack. */
#include "base/must.h"
#include "model/layout.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum {
    HEAD_CHUNK_TOKENS = 512,
    /* A chunk's logits: large enough to amortize the gradient of a large head,
     * which is read and written once per chunk. */
    HEAD_CHUNK_BYTES = 256 << 20,
    /* A GPU computes the logits of some thousand tokens in the time of that
     * traffic. */
    GPU_CHUNK_TOKENS = 8192,
    GPU_CHUNK_BYTES = 512 << 20,
    /* if the head trains and a layer keeps as much */
    LARGE_CHUNK_TOKENS = 32768
};
#define LARGE_CHUNK_BYTES ((size_t)2 << 30)

/* --- dimensions ----------------------------------------------------------- */

struct row_strides activations_strides(
        const struct model_config *config, unsigned joined)
{
    int64_t q = (int64_t)config->heads * config->head_dim;
    int64_t kv = (int64_t)config->kv_heads * config->head_dim;
    int64_t F = config->intermediate_size, all = q + 2 * kv;
    struct row_strides s = {q, kv, q, kv, kv, F};
    joined |= config->family->fused;
    if (joined & JOIN_QKV)
        s.q_raw = s.k_raw = s.q = s.k = s.v = all;
    if (joined & JOIN_QKV && config->qk_norm)
        s.q = s.k = q + kv;
    if (joined & JOIN_GATE_UP)
        s.gate = 2 * F;
    return s;
}

struct attention_shape activations_attention(
        const struct model_config *config, const struct model_shape *model,
        int layer, int B, int T)
{
    struct row_strides strides = activations_strides(config, model->joined);
    struct attention_queries queries = {0};
    if (cp_size(model) > 1)
        queries = attention_share(T, model->cp.size, model->cp.place);
    return (struct attention_shape){
            .B = B,
            .T = T,
            .H = config->heads,
            .KV = kv_heads_used(config),
            .D = config->head_dim,
            .q_stride = strides.q,
            .k_stride = strides.k,
            .v_stride = strides.v,
            .scale =
                    (float)(config->attention_scale
                                    ? config->attention_scale
                                    : 1.0 / sqrt((double)config->head_dim)),
            .window = config->layer_attention[layer - 1].window,
            .softcap = (float)config->score_softcap,
            .queries = queries,
    };
}

void activations_share_heads(struct attention_shape *shape, int places)
{
    shape->H /= places;
    shape->KV /= places;
    shape->q_stride = shape->k_stride = shape->v_stride =
            (int64_t)(shape->H + 2 * shape->KV) * shape->D;
    shape->queries = (struct attention_queries){0};
}

/* Does the head's weight (also if tied) have a gradient? */
static bool head_trains(
        const struct model_config *config, const struct param_table *table)
{
    int unit = config->tied ? 0 : table->unit_count - 1;
    enum role role = config->tied ? ROLE_TOKENS : ROLE_HEAD;
    int id = table->unit_first[unit], end = table->unit_first[unit + 1];
    while (id < end && table->params[id].role != role)
        id++;
    return id < end && table->params[id].trainable;
}

/* The layout of a pass of N tokens. */
static struct layout layout_of(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, size_t N, char *base)
{
    enum device_backend backend = shape_backend(shape);
    size_t S = N / (size_t)tp_size(config);
    int pieces = shape->mlp_pieces > 1 ? shape->mlp_pieces : 1;
    unsigned joined = shape->joined | config->family->fused;
    return (struct layout){
            .base = base,
            .element = dtype_bytes(shape->dtype),
            .config = config,
            .table = table,
            .shape = shape,
            .family = config->family,
            .backend = backend,
            .dtype = shape->dtype,
            .logits_dtype = shape_logits_dtype(shape),
            .logits_stride = logits_stride(backend, config->vocab_size),
            .N = N,
            .S = S,
            .cp = (size_t)cp_size(shape),
            .pieces = pieces,
            .piece = (S + (size_t)pieces - 1) / (size_t)pieces,
            .C = (size_t)config->hidden_size,
            .F = (size_t)config->intermediate_size,
            .q = (size_t)config->heads * (size_t)config->head_dim,
            .kv = (size_t)config->kv_heads * (size_t)config->head_dim,
            .H = (size_t)config->heads,
            .KV = (size_t)config->kv_heads,
            .joined = joined,
            .adapters = adapter_sizes_of(table, shape->joined),
            .drops = shape->dropout > 0,
            .by_heads = cp_by_heads(shape),
            .fp8 = fp8_use_of(table, shape),
            .head_trains = head_trains(config, table),
    };
}

/* Not for decode steps, which need no scratch: asking a GPU's library takes a
 * while. */
static void measure_attention(struct layout *l, int B)
{
    const struct layer_attention *layers = l->config->layer_attention;
    for (int i = 0; i < l->config->layers; i++) {
        if (i && layers[i].window == layers[0].window)
            continue;
        struct attention_shape attention = activations_attention(
                l->config, l->shape, i + 1, B, l->shape->T);
        if (l->by_heads)
            activations_share_heads(&attention, (int)l->cp);
        l->attention_scratch = size_max(
                l->attention_scratch,
                attention_scratch_bytes(&attention, l->dtype, l->backend));
        if (i) /* there are at most two kinds */
            break;
    }
}

/* --- passes --------------------------------------------------------------- */

/* Tokens of a chunk. If the head trains, its gradient is read and written once
 * per chunk. A chunk may use as much memory as a layer: with recomputation no
 * layer has memory while the head runs; without, a layer is one of many.
 * Depends only on the shape, so that all modes of recomputation and offload
 * have the same bits. */
static size_t chunk_limit(const struct layout *l)
{
    size_t row = dtype_bytes(l->logits_dtype) * (size_t)l->logits_stride;
    size_t tokens = HEAD_CHUNK_TOKENS, bytes = HEAD_CHUNK_BYTES;
    if (l->backend == DEVICE_CUDA) {
        tokens = GPU_CHUNK_TOKENS;
        bytes = GPU_CHUNK_BYTES / l->cp; /* of one place's tokens */
    }
    if (l->backend == DEVICE_CUDA && l->head_trains) {
        tokens = LARGE_CHUNK_TOKENS;
        size_t mlp = (l->family->gated_mlp ? 3 : 2) * l->F / (size_t)l->pieces;
        size_t heads = 2 * l->q + 2 * l->kv;
        size_t layer = l->element * (l->S * 4 * l->C + l->N * (heads + mlp));
        bytes = size_max(bytes, size_min(layer, LARGE_CHUNK_BYTES));
    }
    return size_min(tokens, bytes / (size_t)tp_size(l->config) / row);
}

/* Chunks of equal size, at most the limit. */
static int head_chunk(const struct layout *l)
{
    size_t tp = (size_t)tp_size(l->config),
           asked = (size_t)l->shape->head_chunk;
    size_t limit = size_max(asked ? asked : chunk_limit(l), 1);
    limit = size_max(limit / tp, 1); /* per share */
    size_t pieces = (l->S + limit - 1) / limit;
    return (int)((l->S + pieces - 1) / pieces * tp);
}

int model_head_chunk(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct layout l = layout_of(
            config, table, shape, place_tokens(shape, shape->B), NULL);
    return head_chunk(&l);
}

static void push_head(
        struct layout *l, int chunk, bool train, struct head_acts *h)
{
    size_t n = (size_t)chunk, row = (size_t)l->logits_stride;
    h->chunk = chunk;
    h->stride = l->logits_stride;
    h->logits_dtype = l->logits_dtype;
    h->norm = push_rows(l, n, l->C);
    h->mean = l->family->layer_norm ? push_floats(l, n) : NULL;
    h->rstd = push_floats(l, n);
    h->losses = push_floats(l, n);
    size_t tp = (size_t)tp_size(l->config), scores = tp > 1 ? tp + 1 : 0;
    h->scores = push_bytes(l, scores * n * sizeof *h->scores);
    size_t logits = n * row * dtype_bytes(l->logits_dtype);
    h->logits = push_bytes(l, logits);
    if (l->decodes && tp > 1)
        h->all_logits = push_bytes(l, tp * logits);
    h->low = push_rows(l, n, l->adapters.head_low);
    h->gains = push_floats(l, l->adapters.head_gains);
    if (!train)
        return;
    h->dlogits = l->dtype == l->logits_dtype ? h->logits : push_rows(l, n, row);
    h->dnorm = push_rows(l, n, l->C);
}

int checkpointing_segment(struct checkpointing checkpointing, int layers)
{
    enum checkpointing_mode mode = checkpointing.mode;
    assert(mode != CHECKPOINTING_AUTO); /* train has resolved it */
    return mode == CHECKPOINTING_FULL    ? 1
           : mode == CHECKPOINTING_EVERY ? checkpointing.every
           : mode == CHECKPOINTING_SQRT  ? (int)lround(sqrt((double)layers))
                                         : 0;
}

int activations_first_layer(
        const struct model_config *config, const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (table->params[id].trainable)
            return table->params[id].unit > 1 ? table->params[id].unit : 1;
    return config->layers + 1;
}

static void alloc_layers(struct activations *a)
{
    a->inputs = zd_array((size_t)a->segments, sizeof *a->inputs);
    a->returned = zd_array((size_t)a->segments, sizeof *a->returned);
    a->slots = zd_array((size_t)a->segment, sizeof *a->slots);
}

/* Divides the layers into segments, the same for each micro-batch. */
static void begin_micros(const struct layout *l, struct activations *acts)
{
    int layers = l->config->layers;
    struct activations a = {
            .first = activations_first_layer(l->config, l->table),
            .mlp_pieces = l->pieces,
            .micros = shape_micros(l->shape),
            .scratch_bytes = l->attention_scratch};
    int kept = layers + 1 - a.first;
    int segment = checkpointing_segment(l->shape->checkpointing, layers);
    a.recompute = segment > 0;
    a.is_shared = a.recompute && a.micros > 1;
    a.head_covers = a.recompute || !kept;
    a.segment = a.recompute && segment < kept ? segment : kept;
    a.segments = kept ? (kept + a.segment - 1) / a.segment : 0;
    for (int m = 0; m < a.micros; m++) {
        acts[m] = a;
        alloc_layers(&acts[m]);
    }
}

/* Arrays of layers without a backward: each micro-batch has its own x. */
static void push_lean_micros(struct layout *l, struct activations *acts)
{
    for (int m = 0; m < acts->micros; m++)
        acts[m].lean.attention.x = push_rows(l, l->S, l->C);
    size_t begin = l->top;
    for (int m = 0; m < acts->micros; m++) {
        l->top = begin;
        layout_lean(l, false, &acts[m].lean, &acts[m].lean_scratch);
    }
}

static void push_slots(struct layout *l, struct activations *acts)
{
    struct layer_acts shared = layout_shared(l);
    for (int i = 0; i < acts->segment; i++) {
        bool is_shared = acts->is_shared && i == acts->segment - 1;
        for (int m = 0; m < acts->micros; m++)
            acts[m].slots[i].attention.x =
                    i > 0 ? push_rows(l, l->S, l->C) : NULL;
        size_t begin = l->top;
        for (int m = 0; m < acts->micros; m++) {
            l->top = is_shared ? begin : l->top;
            layout_slot(l, &shared, &acts[m].slots[i]);
        }
    }
}

static void lay_train(struct layout l, struct activations *acts)
{
    measure_attention(&l, l.shape->B);
    l.recompute = layout_recomputed(&l);
    layout_choose_codes(&l);
    begin_micros(&l, acts);
    bool has_kept = acts->first <= l.config->layers;

    layout_inputs(&l, l.shape->offload_activations, acts);
    acts->dx = push_rows(&l, l.S, l.C);
    for (int m = 0; m < acts->micros; m++) {
        acts[m].dx = acts[m].gathered = m ? acts[m - 1].last : acts->dx;
        acts[m].last = push_rows(&l, l.S, l.C);
    }
    int chunk = head_chunk(&l);
    layout_adapters(&l, chunk, true, &acts->adapters);
    size_t below = l.top;
    if (acts->first > 1) {
        push_lean_micros(&l, acts);
        l.top = below;
    }
    push_slots(&l, acts);
    size_t above = l.top;
    if (has_kept)
        acts->scratch = push_bytes(&l, l.attention_scratch);
    l.top = acts->recompute ? below : above;
    push_head(&l, chunk, true, &acts->head);
    /* arrays that serve one micro-batch at a time are the first one's */
    for (int m = 0; m < acts->micros; m++) {
        l.top = above;
        acts[m].adapters = acts->adapters;
        acts[m].scratch = acts->scratch;
        acts[m].head = acts->head;
        if (has_kept)
            layout_grads(&l, acts[m].dx, &acts[m].grads);
    }
    acts->bytes = l.peak;
}

/* A pass without a backward. */
static void lay_lean(
        struct layout *l, bool decode, int chunk, struct activations *a)
{
    a->first = l->config->layers + 1;
    a->mlp_pieces = l->pieces;
    alloc_layers(a);
    layout_adapters(l, chunk, false, &a->adapters);
    a->lean.attention.x = push_rows(l, l->S, l->C);
    layout_lean(l, decode, &a->lean, &a->lean_scratch);
    a->layer_gains = decode ? l->adapters.gains : 0;
    a->last = a->lean.attention.x;
    a->gathered = a->lean.attention.out;
    push_head(l, chunk, false, &a->head);
    a->bytes = l->peak;
}

static void lay_eval(struct layout l, struct activations *a)
{
    measure_attention(&l, l.shape->eval_B);
    a->scratch_bytes = l.attention_scratch;
    lay_lean(&l, false, head_chunk(&l), a);
}

static void lay_decode(struct layout l, struct activations *a)
{
    size_t texts = (size_t)decode_texts(l.shape);
    size_t capacity = (size_t)l.shape->decode_capacity;
    size_t rows = (size_t)l.config->layers * texts * capacity;
    l.logits_dtype = DTYPE_FP32; /* the host reads logits */
    l.pieces = 1, l.piece = l.S = l.N;
    l.decodes = true;
    l.by_heads = false;
    a->cache_text_bytes = capacity * l.kv * l.element;
    a->cache_layer_bytes = texts * a->cache_text_bytes;
    a->k_cache = push_rows(&l, rows, l.kv);
    a->v_cache = push_rows(&l, rows, l.kv);
    lay_lean(&l, true, (int)texts, a);
}

struct activations *activations_lay_out(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct activations *passes =
            zd_array((size_t)activations_passes(shape), sizeof *passes);
    size_t train = place_tokens(shape, shape->B);
    size_t eval = place_tokens(shape, shape->eval_B);
    size_t decode = (size_t)shape->decode_batch;
    if (shape->train)
        lay_train(
                layout_of(config, table, shape, train, base),
                &passes[PASS_TRAIN]);
    if (shape->eval_B)
        lay_eval(
                layout_of(config, table, shape, eval, base),
                &passes[PASS_EVAL]);
    if (shape->decode_capacity)
        lay_decode(
                layout_of(config, table, shape, decode, base),
                &passes[PASS_DECODE]);
    return passes;
}

void activations_free(struct activations *passes, int count)
{
    for (int i = 0; passes && i < count; i++) {
        free(passes[i].inputs);
        free(passes[i].returned);
        free(passes[i].slots);
    }
    free(passes);
}
