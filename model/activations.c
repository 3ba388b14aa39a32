#include "model/activations.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_CHUNK_TOKENS = 512,
    /* A chunk's logits: long enough to use the gradient of a large head well,
     * which is read and written once per chunk. */
    HEAD_CHUNK_BYTES = 256 << 20,
    /* A GPU does as many products in the time of that traffic as make a chunk
     * of some thousand tokens. */
    GPU_CHUNK_TOKENS = 8192,
    GPU_CHUNK_BYTES = 512 << 20
};

/* A stack of arrays; `peak` is how high it ever was. */
struct stack {
    char *base; /* NULL while planning */
    size_t top, peak;
    size_t element; /* bytes of the compute type */
};

static void *push_bytes(struct stack *s, size_t bytes)
{
    size_t offset = s->top;
    s->top += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (s->top > s->peak)
        s->peak = s->top;
    return s->base ? s->base + offset : NULL;
}

static void *push(struct stack *s, size_t rows, size_t columns)
{
    return push_bytes(s, rows * columns * s->element);
}

static float *push_floats(struct stack *s, size_t count)
{
    return push_bytes(s, count * sizeof(float));
}

static void *at(void *array, size_t elements, const struct stack *s)
{
    return array ? (char *)array + elements * s->element : NULL;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What every layout is made from. */
struct dims {
    const struct model_config *config;
    enum device_backend backend;
    enum dtype dtype, logits_dtype;
    size_t N, C, F, q, kv, H, KV;
    int logits_stride;
    int B, T;
    bool gpt2;
    unsigned joined;
    struct row_strides strides;
    /* adapters: of the layer that has most, r of all; of the head; the widest
     * in and out and the largest r of any; shares of dropout */
    size_t low, head_low, widest, most_in, most_r;
    bool drops;
    size_t attention_scratch;
    /* DoRA: floats of gains of a layer and of the head, of a product W A^T, the
     * widest product */
    size_t gains, head_gains, cross, columns;
    unsigned again; /* enum layer_part */
};

/* Columns of the product that weight `id` is a part of. */
static size_t product_columns(
        const struct param_table *table, int id, unsigned joined)
{
    const struct param *params = table->params;
    int first = id, end = id + 1;
    size_t columns = 0;
    while (params[first].joins & joined)
        first--;
    while (end < table->count && params[end].joins & joined)
        end++;
    if (end - first == 1)
        return (size_t)params[table->adapters[id].b].shape[0];
    for (int i = first; i < end; i++)
        columns += (size_t)params[i].shape[0];
    return columns;
}

/* What the adapters of a model need. */
static void measure_adapters(
        const struct param_table *table, const struct model_shape *shape,
        struct dims *d)
{
    d->drops = shape->dropout > 0;
    for (int unit = 0; table->adapters && unit < table->unit_count; unit++) {
        size_t low = 0, gains = 0;
        bool is_head = unit == table->unit_count - 1;
        for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
             id++) {
            const struct adapter *adapter = &table->adapters[id];
            if (!adapter->r)
                continue;
            size_t in = (size_t)table->params[adapter->a].shape[1];
            size_t out = (size_t)table->params[adapter->b].shape[0];
            low += (size_t)adapter->r;
            d->most_in = max_size(d->most_in, in);
            d->most_r = max_size(d->most_r, (size_t)adapter->r);
            if (!is_head)
                d->widest = max_size(d->widest, max_size(in, out));
            if (adapter->magnitude < 0)
                continue;
            gains += 2 * out;
            d->cross = max_size(d->cross, out * (size_t)adapter->r);
            if (!is_head)
                d->columns = max_size(
                        d->columns, product_columns(table, id, shape->joined));
        }
        if (is_head) {
            d->head_low = low;
            d->head_gains = gains;
        } else {
            d->low = max_size(d->low, low);
            d->gains = max_size(d->gains, gains);
        }
    }
}

static size_t attention_scratch(const struct dims *d)
{
    struct attention_shape shape = {
            .B = d->B,
            .T = d->T,
            .H = (int)d->H,
            .KV = (int)d->KV,
            .D = d->config->head_dim,
            .q_stride = d->strides.q,
            .k_stride = d->strides.k,
            .v_stride = d->strides.v,
            .scale = (float)(1.0 / sqrt((double)d->config->head_dim)),
    };
    return attention_scratch_bytes(&shape, d->dtype, d->backend);
}

static struct dims dims_of(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, int B, int T)
{
    struct dims d = {
            .config = config,
            .backend = shape_backend(shape),
            .dtype = shape->dtype,
            .logits_dtype = shape_logits_dtype(shape),
            .logits_stride =
                    logits_stride(shape_backend(shape), config->vocab_size),
            .N = (size_t)B * (size_t)T,
            .C = (size_t)config->hidden_size,
            .F = (size_t)config->intermediate_size,
            .q = (size_t)config->heads * (size_t)config->head_dim,
            .kv = (size_t)config->kv_heads * (size_t)config->head_dim,
            .H = (size_t)config->heads,
            .KV = (size_t)config->kv_heads,
            .B = B,
            .T = T,
            .gpt2 = config->family == MODEL_GPT2,
            .joined = shape->joined,
            .strides = activations_strides(config, shape->joined),
    };
    measure_adapters(table, shape, &d);
    return d;
}

struct row_strides activations_strides(
        const struct model_config *config, unsigned joined)
{
    int64_t q = (int64_t)config->heads * config->head_dim;
    int64_t kv = (int64_t)config->kv_heads * config->head_dim;
    int64_t F = config->intermediate_size, all = q + 2 * kv;
    struct row_strides s = {q, kv, q, kv, kv, F};
    if (config->family == MODEL_GPT2 || joined & JOIN_QKV)
        s.q_raw = s.k_raw = s.q = s.k = s.v = all;
    if (joined & JOIN_QKV && config->qk_norm)
        s.q = s.k = q + kv;
    if (joined & JOIN_GATE_UP)
        s.gate = 2 * F;
    return s;
}

/* Where q, k and v lie. */
struct heads {
    void *q_raw, *k_raw, *q, *k, *v;
};

/* `apart`: q and k before and after their norms have an array each. */
static struct heads push_heads(
        struct stack *s, const struct dims *d, bool apart)
{
    struct heads h;
    bool one = d->gpt2 || d->joined & JOIN_QKV;
    h.q = push(s, d->N, one ? d->q + 2 * d->kv : d->q);
    h.k = one ? at(h.q, d->q, s) : push(s, d->N, d->kv);
    h.v = one ? at(h.q, d->q + d->kv, s) : push(s, d->N, d->kv);
    h.q_raw = h.q;
    h.k_raw = h.k;
    if (apart && one) {
        h.q = push(s, d->N, d->q + d->kv);
        h.k = at(h.q, d->q, s);
    } else if (apart) {
        h.q_raw = push(s, d->N, d->q);
        h.k_raw = push(s, d->N, d->kv);
    }
    return h;
}

static void *push_attention_scratch(struct stack *s, const struct dims *d)
{
    return push_bytes(s, d->attention_scratch);
}

static void push_statistics(
        struct stack *s, const struct dims *d, struct layer_acts *a)
{
    a->rstd1 = push_floats(s, d->N);
    a->rstd2 = push_floats(s, d->N);
    a->mean1 = d->gpt2 ? push_floats(s, d->N) : NULL;
    a->mean2 = d->gpt2 ? push_floats(s, d->N) : NULL;
    a->lse = push_floats(s, d->N * d->H);
    if (d->config->qk_norm) {
        a->q_rstd = push_floats(s, d->N * d->H);
        a->k_rstd = push_floats(s, d->N * d->KV);
    }
}

/* What attention reads; q and k before their norms too, where they have any.
 * `shared` (may be NULL): has q and k for all layers. */
static void push_attention(
        struct stack *s, const struct dims *d, const struct layer_acts *shared,
        struct layer_acts *a)
{
    struct heads h = push_heads(s, d, d->config->qk_norm && !shared);
    a->q_raw = h.q_raw;
    a->k_raw = h.k_raw;
    a->q = shared ? shared->q : h.q;
    a->k = shared ? shared->k : h.k;
    a->v = h.v;
    a->att = push(s, d->N, d->q);
}

/* `shared` (may be NULL): has act for all layers. */
static void push_mlp(
        struct stack *s, const struct dims *d, const struct layer_acts *shared,
        struct layer_acts *a)
{
    bool one = d->joined & JOIN_GATE_UP;
    a->gate = push(s, d->N, one ? 2 * d->F : d->F);
    a->up = d->gpt2 ? NULL : one ? at(a->gate, d->F, s) : push(s, d->N, d->F);
    a->act = shared ? shared->act : push(s, d->N, d->F);
}

/* --- keep or compute again ------------------------------------------------ */

/* Of gradient_checkpointing = "selective": which arrays of a slot are kept.
 * What products and attention made is; the rest is made again from it, to the
 * same bits. `by`: what makes it.
 *
 *   array            by                        selective
 *   x, x2            sums with the norms       kept: norms are made from them
 *   q_raw, k_raw, v  products                  kept
 *   q, k             rotation, in place        kept: it is the same array
 *                    norms and rotation        again (Qwen3)
 *   att, lse         attention                 kept
 *   gate, up         products                  kept
 *   norm1, norm2     norms                     again
 *   act              swiglu                    again
 *                    a product's epilogue      kept (GPT-2: its bits are those
 *                                              of the product, not of gelu)
 *   means, rstd, low                           kept: small
 */
static unsigned parts_again(
        const struct model_config *config, struct checkpointing checkpointing)
{
    unsigned parts = PART_NORM1 | PART_NORM2;
    if (checkpointing.mode != CHECKPOINTING_SELECTIVE)
        return 0;
    if (config->family != MODEL_GPT2)
        parts |= PART_ACT;
    if (config->qk_norm)
        parts |= PART_HEADS;
    return parts;
}

/* Of one layer at a time: norm1 is read by the products of attention alone, and
 * norm2 by those behind it. */
static struct layer_acts push_shared(struct stack *s, const struct dims *d)
{
    struct layer_acts shared = {.again = d->again};
    if (d->again & (PART_NORM1 | PART_NORM2))
        shared.norm1 = shared.norm2 = push(s, d->N, d->C);
    if (d->again & PART_ACT)
        shared.act = push(s, d->N, d->F);
    if (d->again & PART_HEADS) {
        bool one = d->joined & JOIN_QKV;
        shared.q = push(s, d->N, one ? d->q + d->kv : d->q);
        shared.k = one ? at(shared.q, d->q, s) : push(s, d->N, d->kv);
    }
    return shared;
}

/* All of a layer side by side, but for what it shares with others: backward
 * reads it. */
static void push_slot(
        struct stack *s, const struct dims *d, bool own_x,
        const struct layer_acts *shared, struct layer_acts *a)
{
    if (own_x)
        a->x = push(s, d->N, d->C);
    a->again = d->again;
    push_statistics(s, d, a);
    a->norm1 = d->again & PART_NORM1 ? shared->norm1 : push(s, d->N, d->C);
    push_attention(s, d, d->again & PART_HEADS ? shared : NULL, a);
    a->x2 = push(s, d->N, d->C);
    a->proj = a->x2;
    a->norm2 = d->again & PART_NORM2 ? shared->norm2 : push(s, d->N, d->C);
    push_mlp(s, d, d->again & PART_ACT ? shared : NULL, a);
    a->low = push(s, d->N, d->low);
    a->gains = push_floats(s, d->gains);
}

/* The same with shared bytes: attention is over when the MLP begins, and one
 * array serves for everything (N, C) but x. */
static void push_lean(
        struct stack *s, const struct dims *d, bool decode,
        struct layer_acts *a, void **scratch)
{
    a->x = push(s, d->N, d->C);
    a->x2 = a->x;
    push_statistics(s, d, a);
    a->norm1 = push(s, d->N, d->C);
    a->norm2 = a->proj = a->mlp_out = a->norm1;
    a->low = push(s, d->N, d->low);
    a->gains = push_floats(
            s, decode ? (size_t)d->config->layers * d->gains : d->gains);
    size_t mark = s->top;
    push_attention(s, d, NULL, a);
    if (!decode)
        *scratch = push_attention_scratch(s, d);
    s->top = mark;
    push_mlp(s, d, NULL, a);
    s->top = s->peak;
}

static void push_grads(
        struct stack *s, const struct dims *d, struct layer_grads *g)
{
    unsigned all = JOIN_QKV | JOIN_GATE_UP;
    bool adds = !d->gpt2 && (d->joined & all) != all;
    g->hidden = push(s, d->N, max_size(d->C, d->q));
    if (adds && d->dtype != DTYPE_FP32)
        g->sum = push(s, d->N, d->C);
    size_t mark = s->top;
    g->act = push(s, d->N, d->F);
    s->top = mark;
    /* dense, a norm's gradient takes the place of what it is made from */
    struct heads h =
            push_heads(s, d, d->config->qk_norm && d->joined & JOIN_QKV);
    g->q_raw = h.q_raw;
    g->k_raw = h.k_raw;
    g->q = h.q;
    g->k = h.k;
    g->v = h.v;
    g->scratch = push_attention_scratch(s, d);
}

/* Equal pieces of at most the limit. */
static int head_chunk(const struct dims *d, int asked)
{
    bool gpu = d->backend == DEVICE_CUDA;
    size_t row = dtype_bytes(d->logits_dtype) * (size_t)d->logits_stride;
    size_t bytes = gpu ? GPU_CHUNK_BYTES : HEAD_CHUNK_BYTES;
    size_t tokens = gpu ? GPU_CHUNK_TOKENS : HEAD_CHUNK_TOKENS;
    size_t limit = (size_t)asked;
    if (!asked)
        limit = bytes / row > tokens ? tokens : bytes / row;
    limit = max_size(limit, 1);
    size_t pieces = (d->N + limit - 1) / limit;
    return (int)((d->N + pieces - 1) / pieces);
}

int model_head_chunk(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct dims d = dims_of(config, table, shape, shape->B, shape->T);
    return head_chunk(&d, shape->head_chunk);
}

static void push_head(
        struct stack *s, const struct dims *d, int chunk, bool train,
        struct head_acts *h)
{
    size_t n = (size_t)chunk, row = (size_t)d->logits_stride;
    h->chunk = chunk;
    h->stride = d->logits_stride;
    h->logits_dtype = d->logits_dtype;
    h->norm = push(s, n, d->C);
    h->mean = d->gpt2 ? push_floats(s, n) : NULL;
    h->rstd = push_floats(s, n);
    h->losses = push_floats(s, n);
    h->logits = push_bytes(s, n * row * dtype_bytes(d->logits_dtype));
    h->low = push(s, n, d->head_low);
    h->gains = push_floats(s, d->head_gains);
    if (!train)
        return;
    h->dlogits = d->dtype == d->logits_dtype ? h->logits : push(s, n, row);
    h->dnorm = push(s, n, d->C);
}

/* Products that cannot be added where they are made, and inputs of which some
 * were dropped; nothing without adapters. */
static void push_adapters(
        struct stack *s, const struct dims *d, int chunk, bool train,
        struct adapter_scratch *a)
{
    bool narrow = d->dtype != DTYPE_FP32, drops = train && d->drops;
    size_t layers = narrow ? d->widest : drops ? d->most_in : 0;
    bool head_dora = train && d->head_gains > 0;
    size_t logits = d->logits_dtype != DTYPE_FP32 || head_dora
                            ? (size_t)d->logits_stride
                            : 0;
    size_t head = narrow || drops ? max_size(d->C, logits) : 0;
    size_t wide =
            max_size(d->N * layers, d->head_low ? (size_t)chunk * head : 0);
    if (!d->most_r)
        return;
    a->wide = push(s, 1, wide);
    a->dropped = push(s, d->N, drops ? d->most_in : 0);
    a->du = push(s, d->N, train ? d->most_r : 0);
    if (!d->cross)
        return;
    a->cross = push_floats(s, d->cross);
    a->gram = push_floats(s, d->most_r * d->most_r);
    size_t scaled = d->N * d->columns;
    if (head_dora)
        scaled = max_size(scaled, (size_t)chunk * (size_t)d->logits_stride);
    a->scaled = push(s, 1, train ? scaled : 0);
}

/* Offloaded inputs take turns in the buffers; the last ones stay. */
static void push_inputs(
        struct stack *s, const struct dims *d, bool offload,
        struct activations *a)
{
    int buffers = a->segments;
    if (offload && buffers > RESIDUAL_BUFFERS)
        buffers = RESIDUAL_BUFFERS;
    size_t begin = s->top;
    for (int i = 0; i < buffers; i++)
        a->inputs[i] = push(s, d->N, d->C);
    for (int i = buffers; i < a->segments; i++)
        a->inputs[i] = a->inputs[i - buffers];
    a->offloaded = a->segments - buffers;
    a->input_bytes = buffers ? (s->top - begin) / (size_t)buffers : 0;
}

int activations_first_layer(
        const struct model_config *config, const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (table->params[id].trainable)
            return table->params[id].unit > 1 ? table->params[id].unit : 1;
    return config->layers + 1;
}

static enum zd_status alloc_layers(struct activations *a)
{
    size_t inputs = (size_t)(a->segments ? a->segments : 1);
    size_t slots = (size_t)(a->segment ? a->segment : 1);
    a->inputs = calloc(inputs, sizeof *a->inputs);
    a->slots = calloc(slots, sizeof *a->slots);
    if (a->inputs && a->slots)
        return ZD_OK;
    activations_fini(a);
    return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for the layers' arrays");
}

enum zd_status activations_train(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base, struct activations *out)
{
    struct dims d = dims_of(config, table, shape, shape->B, shape->T);
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    d.attention_scratch = attention_scratch(&d);
    d.again = parts_again(config, shape->checkpointing);
    struct activations a = {
            .first = activations_first_layer(config, table),
            .scratch_bytes = d.attention_scratch};
    int kept = config->layers + 1 - a.first;
    int segment = checkpointing_segment(shape->checkpointing, config->layers);
    a.recompute = segment > 0;
    a.segment = a.recompute && segment < kept ? segment : kept;
    a.segments = kept ? (kept + a.segment - 1) / a.segment : 0;
    ZD_TRY(alloc_layers(&a));

    push_inputs(&s, &d, shape->offload_activations, &a);
    a.last = push(&s, d.N, d.C);
    a.dx = push(&s, d.N, d.C);
    int chunk = head_chunk(&d, shape->head_chunk);
    push_adapters(&s, &d, chunk, true, &a.adapters);
    size_t below = s.top;
    if (a.first > 1) {
        push_lean(&s, &d, false, &a.lean, &a.lean_scratch);
        s.top = below;
    }
    struct layer_acts shared = push_shared(&s, &d);
    for (int i = 0; i < a.segment; i++)
        push_slot(&s, &d, i > 0, &shared, &a.slots[i]);
    size_t above = s.top;
    if (kept)
        a.scratch = push_attention_scratch(&s, &d);
    a.head_covers = a.recompute || !kept;
    s.top = a.recompute ? below : above;
    push_head(&s, &d, chunk, true, &a.head);
    s.top = above;
    if (kept)
        push_grads(&s, &d, &a.grads);
    a.bytes = s.peak;
    *out = a;
    return ZD_OK;
}

static enum zd_status lay_lean(
        const struct model_config *config, const struct dims *d, bool decode,
        int chunk, struct stack *s, struct activations *a)
{
    a->first = config->layers + 1;
    ZD_TRY(alloc_layers(a));
    push_adapters(s, d, chunk, false, &a->adapters);
    push_lean(s, d, decode, &a->lean, &a->lean_scratch);
    a->layer_gains = decode ? d->gains : 0;
    a->last = a->lean.x;
    push_head(s, d, chunk, false, &a->head);
    a->bytes = s->peak;
    return ZD_OK;
}

enum zd_status activations_eval(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base, struct activations *out)
{
    struct dims d = dims_of(config, table, shape, shape->eval_B, shape->T);
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    d.attention_scratch = attention_scratch(&d);
    struct activations a = {.scratch_bytes = d.attention_scratch};
    ZD_TRY(lay_lean(
            config, &d, false, head_chunk(&d, shape->head_chunk), &s, &a));
    *out = a;
    return ZD_OK;
}

enum zd_status activations_decode(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base, struct activations *out)
{
    struct dims d = dims_of(config, table, shape, 1, shape->decode_batch);
    d.logits_dtype = DTYPE_FP32; /* the host reads them */
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    struct activations a = {0};
    size_t rows = (size_t)config->layers * (size_t)shape->decode_capacity;
    a.cache_layer_bytes = (size_t)shape->decode_capacity * d.kv * s.element;
    a.k_cache = push(&s, rows, d.kv);
    a.v_cache = push(&s, rows, d.kv);
    ZD_TRY(lay_lean(config, &d, true, 1, &s, &a));
    *out = a;
    return ZD_OK;
}

void activations_fini(struct activations *acts)
{
    if (!acts)
        return;
    free(acts->inputs);
    free(acts->slots);
    memset(acts, 0, sizeof *acts);
}
