#include "model/activation_parts.h"

#include <stdint.h>

void *push_bytes(struct stack *s, size_t bytes)
{
    size_t offset = s->top;
    s->top += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (s->top > s->peak)
        s->peak = s->top;
    return s->base ? s->base + offset : NULL;
}

void *push_rows(struct stack *s, size_t rows, size_t columns)
{
    return push_bytes(s, rows * columns * s->element);
}

float *push_floats(struct stack *s, size_t count)
{
    return push_bytes(s, count * sizeof(float));
}

static void *at(void *array, size_t elements, const struct stack *s)
{
    return array ? (char *)array + elements * s->element : NULL;
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
    bool one = d->family->fused_qkv || d->joined & JOIN_QKV;
    h.q = push_rows(s, d->N, one ? d->q + 2 * d->kv : d->q);
    h.k = one ? at(h.q, d->q, s) : push_rows(s, d->N, d->kv);
    h.v = one ? at(h.q, d->q + d->kv, s) : push_rows(s, d->N, d->kv);
    h.q_raw = h.q;
    h.k_raw = h.k;
    if (apart && one) {
        h.q = push_rows(s, d->N, d->q + d->kv);
        h.k = at(h.q, d->q, s);
    } else if (apart) {
        h.q_raw = push_rows(s, d->N, d->q);
        h.k_raw = push_rows(s, d->N, d->kv);
    }
    return h;
}

void *push_attention_scratch(struct stack *s, const struct dims *d)
{
    return push_bytes(s, d->attention_scratch);
}

static void push_statistics(
        struct stack *s, const struct dims *d, struct layer_acts *a)
{
    a->rstd1 = push_floats(s, d->N);
    a->rstd2 = push_floats(s, d->N);
    a->mean1 = d->family->layer_norm ? push_floats(s, d->N) : NULL;
    a->mean2 = d->family->layer_norm ? push_floats(s, d->N) : NULL;
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
    a->att = push_rows(s, d->N, d->q);
}

/* `shared` (may be NULL): has act for all layers. */
static void push_mlp(
        struct stack *s, const struct dims *d, const struct layer_acts *shared,
        struct layer_acts *a)
{
    bool one = d->joined & JOIN_GATE_UP;
    a->gate = push_rows(s, d->N, one ? 2 * d->F : d->F);
    a->up = !d->family->gated_mlp ? NULL
            : one                 ? at(a->gate, d->F, s)
                                  : push_rows(s, d->N, d->F);
    a->act = shared ? shared->act : push_rows(s, d->N, d->F);
}

/* --- keep or recompute ---------------------------------------------------- */

/* gradient_checkpointing = "selective": which arrays of a slot are kept.
 * Outputs of matmuls and attention are; the rest is recomputed from them, to
 * the same bits.
 *
 *   array            made by                   selective
 *   x, x2            sums with the norms       kept: norms are made from them
 *   q_raw, k_raw, v  matmuls                   kept
 *   q, k             rotation, in place        kept: it is the same array
 *                    norms and rotation        recomputed (Qwen3)
 *   att, lse         attention                 kept
 *   gate, up         matmuls                   kept
 *   norm1, norm2     norms                     recomputed
 *   act              swiglu                    recomputed
 *                    a matmul's epilogue       kept (GPT-2: its bits are those
 *                                              of the matmul, not of gelu)
 *   means, rstd, low                           kept: small
 */
unsigned parts_recomputed(
        const struct model_config *config, struct checkpointing checkpointing)
{
    unsigned parts = PART_NORM1 | PART_NORM2;
    if (checkpointing.mode != CHECKPOINTING_SELECTIVE)
        return 0;
    if (config->family->recompute_act)
        parts |= PART_ACT;
    if (config->qk_norm)
        parts |= PART_HEADS;
    return parts;
}

/* Of one layer at a time: only attention's matmuls read norm1, and only those
 * after them norm2. */
struct layer_acts push_shared(struct stack *s, const struct dims *d)
{
    struct layer_acts shared = {.recompute = d->recompute};
    if (d->recompute & (PART_NORM1 | PART_NORM2))
        shared.norm1 = shared.norm2 = push_rows(s, d->N, d->C);
    if (d->recompute & PART_ACT)
        shared.act = push_rows(s, d->N, d->F);
    if (d->recompute & PART_HEADS) {
        bool one = d->joined & JOIN_QKV;
        shared.q = push_rows(s, d->N, one ? d->q + d->kv : d->q);
        shared.k = one ? at(shared.q, d->q, s) : push_rows(s, d->N, d->kv);
    }
    return shared;
}

/* All of a layer side by side, but for what it shares with others: backward
 * reads it. */
void push_slot(
        struct stack *s, const struct dims *d, bool own_x,
        const struct layer_acts *shared, struct layer_acts *a)
{
    if (own_x)
        a->x = push_rows(s, d->N, d->C);
    a->recompute = d->recompute;
    push_statistics(s, d, a);
    a->norm1 = d->recompute & PART_NORM1 ? shared->norm1
                                         : push_rows(s, d->N, d->C);
    push_attention(s, d, d->recompute & PART_HEADS ? shared : NULL, a);
    a->x2 = push_rows(s, d->N, d->C);
    a->proj = a->x2;
    a->norm2 = d->recompute & PART_NORM2 ? shared->norm2
                                         : push_rows(s, d->N, d->C);
    push_mlp(s, d, d->recompute & PART_ACT ? shared : NULL, a);
    a->low = push_rows(s, d->N, d->low);
    a->gains = push_floats(s, d->gains);
}

/* The same with shared bytes: attention is over when the MLP begins, and one
 * array serves for everything (N, C) but x. */
void push_lean(
        struct stack *s, const struct dims *d, bool decode,
        struct layer_acts *a, void **scratch)
{
    a->x = push_rows(s, d->N, d->C);
    a->x2 = a->x;
    push_statistics(s, d, a);
    a->norm1 = push_rows(s, d->N, d->C);
    a->norm2 = a->proj = a->mlp_out = a->norm1;
    a->low = push_rows(s, d->N, d->low);
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

void push_grads(struct stack *s, const struct dims *d, struct layer_grads *g)
{
    const struct model_family *family = d->family;
    bool adds = (!family->fused_qkv && !(d->joined & JOIN_QKV)) ||
                (family->gated_mlp && !(d->joined & JOIN_GATE_UP));
    g->hidden = push_rows(s, d->N, max_size(d->C, d->q));
    if (adds && d->dtype != DTYPE_FP32)
        g->sum = push_rows(s, d->N, d->C);
    size_t mark = s->top;
    g->act = push_rows(s, d->N, d->F);
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

/* Products that cannot be added where they are made, and inputs of which some
 * were dropped; nothing without adapters. */
void push_adapters(
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
    a->wide = push_rows(s, 1, wide);
    a->dropped = push_rows(s, d->N, drops ? d->most_in : 0);
    a->du = push_rows(s, d->N, train ? d->most_r : 0);
    if (!d->cross)
        return;
    a->cross = push_floats(s, d->cross);
    a->gram = push_floats(s, d->most_r * d->most_r);
    size_t scaled = d->N * d->columns;
    if (head_dora)
        scaled = max_size(scaled, (size_t)chunk * (size_t)d->logits_stride);
    a->scaled = push_rows(s, 1, train ? scaled : 0);
}

/* Offloaded inputs take turns in the buffers; the last ones stay. */
void push_inputs(
        struct stack *s, const struct dims *d, bool offload,
        struct activations *a)
{
    int buffers = a->segments;
    if (offload && buffers > RESIDUAL_BUFFERS)
        buffers = RESIDUAL_BUFFERS;
    size_t begin = s->top;
    for (int i = 0; i < buffers; i++)
        a->inputs[i] = push_rows(s, d->N, d->C);
    for (int i = buffers; i < a->segments; i++)
        a->inputs[i] = a->inputs[i - buffers];
    a->offloaded = a->segments - buffers;
    a->input_bytes = buffers ? (s->top - begin) / (size_t)buffers : 0;
}
