#include "base/must.h"
#include "model/activation_parts.h"

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
    h->norm = push_rows(s, n, d->C);
    h->mean = d->family->layer_norm ? push_floats(s, n) : NULL;
    h->rstd = push_floats(s, n);
    h->losses = push_floats(s, n);
    h->logits = push_bytes(s, n * row * dtype_bytes(d->logits_dtype));
    h->low = push_rows(s, n, d->head_low);
    h->gains = push_floats(s, d->head_gains);
    if (!train)
        return;
    h->dlogits = d->dtype == d->logits_dtype ? h->logits : push_rows(s, n, row);
    h->dnorm = push_rows(s, n, d->C);
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
    a->slots = zd_array((size_t)a->segment, sizeof *a->slots);
}

struct activations activations_train(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct dims d = dims_of(config, table, shape, shape->B, shape->T);
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    d.attention_scratch = dims_attention_scratch(&d);
    d.recompute = parts_recomputed(config, shape->checkpointing);
    struct activations a = {
            .first = activations_first_layer(config, table),
            .scratch_bytes = d.attention_scratch};
    int kept = config->layers + 1 - a.first;
    int segment = checkpointing_segment(shape->checkpointing, config->layers);
    a.recompute = segment > 0;
    a.segment = a.recompute && segment < kept ? segment : kept;
    a.segments = kept ? (kept + a.segment - 1) / a.segment : 0;
    alloc_layers(&a);

    push_inputs(&s, &d, shape->offload_activations, &a);
    a.last = push_rows(&s, d.N, d.C);
    a.dx = a.gathered = push_rows(&s, d.N, d.C);
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
    return a;
}

static void lay_lean(
        const struct model_config *config, const struct dims *d, bool decode,
        int chunk, struct stack *s, struct activations *a)
{
    a->first = config->layers + 1;
    alloc_layers(a);
    push_adapters(s, d, chunk, false, &a->adapters);
    push_lean(s, d, decode, &a->lean, &a->lean_scratch);
    a->layer_gains = decode ? d->gains : 0;
    a->last = a->lean.x;
    a->gathered = a->lean.norm1;
    push_head(s, d, chunk, false, &a->head);
    a->bytes = s->peak;
}

struct activations activations_eval(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct dims d = dims_of(config, table, shape, shape->eval_B, shape->T);
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    d.attention_scratch = dims_attention_scratch(&d);
    struct activations a = {.scratch_bytes = d.attention_scratch};
    lay_lean(config, &d, false, head_chunk(&d, shape->head_chunk), &s, &a);
    return a;
}

struct activations activations_decode(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct dims d = dims_of(config, table, shape, 1, shape->decode_batch);
    d.logits_dtype = DTYPE_FP32; /* the host reads them */
    struct stack s = {.base = base, .element = dtype_bytes(shape->dtype)};
    struct activations a = {0};
    size_t texts = (size_t)decode_texts(shape);
    size_t rows = texts * (size_t)shape->decode_capacity;
    a.cache_text_bytes = (size_t)shape->decode_capacity * d.kv * s.element;
    a.cache_layer_bytes = texts * a.cache_text_bytes;
    a.k_cache = push_rows(&s, (size_t)config->layers * rows, d.kv);
    a.v_cache = push_rows(&s, (size_t)config->layers * rows, d.kv);
    lay_lean(config, &d, true, (int)texts, &s, &a);
    return a;
}

void activations_fini(struct activations *acts)
{
    if (!acts)
        return;
    free(acts->inputs);
    free(acts->slots);
    memset(acts, 0, sizeof *acts);
}
