/* activations.c - how the arrays of a pass are laid on their stack. Without a
 * base every array is NULL, and what counts is how high the stack was. */
#include "model/activations.h"
#include "base/must.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEAD_CHUNK_TOKENS = 512,
    /* A chunk's logits: long enough to use the gradient of a large head well,
     * which is read and written once per chunk. */
    HEAD_CHUNK_BYTES = 256 << 20,
    /* In the time of that traffic a GPU computes the logits of some thousand
     * tokens. */
    GPU_CHUNK_TOKENS = 8192,
    GPU_CHUNK_BYTES = 512 << 20,
    /* of a head that trains, where a layer keeps as much */
    LARGE_CHUNK_TOKENS = 32768
};
#define LARGE_CHUNK_BYTES ((size_t)2 << 30)

/* A pass being laid out: a stack of arrays, and the dimensions of the pass. */
struct layout {
    char *base;       /* NULL while planning */
    size_t top, peak; /* of the stack, now and at its highest */
    size_t element;   /* bytes of the compute type */
    const struct model_config *config;
    const struct model_family *family;
    enum device_backend backend;
    enum dtype dtype, logits_dtype;
    size_t N, C, F, q, kv, H, KV;
    size_t S;     /* tokens of the share: N without tensor parallelism */
    int pieces;   /* of the MLP; its longest has .. */
    size_t piece; /* .. so many tokens of the share */
    int logits_stride;
    unsigned joined;
    size_t attention_scratch;
    unsigned recompute; /* enum layer_part */
    struct fp8_use fp8;
    bool keeps_codes[FP8_GROUPS]; /* in place of a group's input */
    struct adapter_sizes adapters;
    bool drops, decodes, by_heads, head_trains;
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

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

/* Does the head's weight, a tied one too, have a gradient? */
static bool head_trains(
        const struct model_config *config, const struct param_table *table)
{
    int unit = config->tied ? 0 : table->unit_count - 1;
    enum role role = config->tied ? ROLE_TOKENS : ROLE_HEAD;
    for (int id = 0; id < table->count; id++)
        if (table->params[id].unit == unit && table->params[id].role == role)
            return table->params[id].trainable;
    return false;
}

/* N tokens. */
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
            .family = config->family,
            .backend = backend,
            .dtype = shape->dtype,
            .logits_dtype = shape_logits_dtype(shape),
            .logits_stride = logits_stride(backend, config->vocab_size),
            .N = N,
            .S = S,
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

/* Not for a decode step, which has none: a GPU's library is asked, and that
 * takes it a while. */
static void measure_attention(
        struct layout *l, const struct model_shape *shape, int B)
{
    const struct layer_attention *layers = l->config->layer_attention;
    for (int i = 0; i < l->config->layers; i++) {
        if (i && layers[i].window == layers[0].window)
            continue;
        struct attention_shape attention =
                activations_attention(l->config, shape, i + 1, B, shape->T);
        if (l->by_heads)
            activations_share_heads(&attention, cp_size(shape));
        l->attention_scratch = max_size(
                l->attention_scratch,
                attention_scratch_bytes(&attention, l->dtype, l->backend));
        if (i) /* there are two kinds at most */
            break;
    }
}

/* --- arrays --------------------------------------------------------------- */

static void *push_bytes(struct layout *l, size_t bytes)
{
    size_t offset = l->top;
    l->top += (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (l->top > l->peak)
        l->peak = l->top;
    return l->base ? l->base + offset : NULL;
}

static void *push_rows(struct layout *l, size_t rows, size_t columns)
{
    return push_bytes(l, rows * columns * l->element);
}

static float *push_floats(struct layout *l, size_t count)
{
    return push_bytes(l, count * sizeof(float));
}

static void *at(void *array, size_t elements, const struct layout *l)
{
    return array ? (char *)array + elements * l->element : NULL;
}

/* Where q, k and v lie. */
struct heads {
    void *q_raw, *k_raw, *q, *k, *v;
};

/* `apart`: q and k before and after their norms have an array each. */
static struct heads push_heads(struct layout *l, bool apart)
{
    struct heads h;
    bool one = l->joined & JOIN_QKV;
    h.q = push_rows(l, l->N, one ? l->q + 2 * l->kv : l->q);
    h.k = one ? at(h.q, l->q, l) : push_rows(l, l->N, l->kv);
    h.v = one ? at(h.q, l->q + l->kv, l) : push_rows(l, l->N, l->kv);
    h.q_raw = h.q;
    h.k_raw = h.k;
    if (apart && one) {
        h.q = push_rows(l, l->N, l->q + l->kv);
        h.k = at(h.q, l->q, l);
    } else if (apart) {
        h.q_raw = push_rows(l, l->N, l->q);
        h.k_raw = push_rows(l, l->N, l->kv);
    }
    return h;
}

/* Of a piece, with those of all shares. */
static size_t piece_tokens(const struct layout *l)
{
    return l->piece * (size_t)tp_size(l->config);
}

static float *push_rstd(struct layout *l, enum role norm)
{
    return family_has(l->family, norm) ? push_floats(l, l->S) : NULL;
}

static void push_statistics(struct layout *l, struct layer_acts *a)
{
    a->rstd1 = push_rstd(l, ROLE_NORM1);
    a->rstd2 = push_rstd(l, ROLE_NORM2);
    a->post1_rstd = push_rstd(l, ROLE_POST1);
    a->post2_rstd = push_rstd(l, ROLE_POST2);
    a->mean1 = l->family->layer_norm ? push_floats(l, l->S) : NULL;
    a->mean2 = l->family->layer_norm ? push_floats(l, l->S) : NULL;
    a->lse = push_floats(l, l->N * l->H);
    if (l->config->qk_norm) {
        a->q_rstd = push_floats(l, l->N * l->H);
        a->k_rstd = push_floats(l, l->N * l->KV);
    }
}

/* What attention reads; q and k before their norms too, where they have any.
 * `shared` (may be NULL): has q and k for all layers. */
static void push_attention(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    struct heads h = push_heads(l, l->config->qk_norm && !shared);
    a->q_raw = h.q_raw;
    a->k_raw = h.k_raw;
    a->q = shared ? shared->q : h.q;
    a->k = shared ? shared->k : h.k;
    a->v = h.v;
    a->att = push_rows(l, l->N, l->q);
}

/* Of all tokens, for attention by heads. */
static void push_share(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    a->heads = push_rows(l, l->N, l->q + 2 * l->kv);
    a->heads_att = shared && l->recompute & PART_OUTPUT
                           ? shared->heads_att
                           : push_rows(l, l->N, l->q);
}

/* By heads: `shared` has q, k and v of the place's tokens, which are over when
 * they are exchanged; a norm's backward reads what was before it. */
static void push_by_heads(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    bool one = l->joined & JOIN_QKV;
    a->q = a->q_raw = shared->q;
    a->k = a->k_raw = shared->k;
    a->v = shared->v;
    if (l->config->qk_norm) {
        a->q_raw = push_rows(l, l->N, one ? l->q + 2 * l->kv : l->q);
        a->k_raw = one ? at(a->q_raw, l->q, l) : push_rows(l, l->N, l->kv);
        a->v = one ? at(a->q_raw, l->q + l->kv, l) : shared->v;
    }
    a->att = push_rows(l, l->N, l->q);
    push_share(l, shared, a);
}

/* `shared` (may be NULL): has act for all layers. */
static void push_mlp(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    bool one = l->joined & JOIN_GATE_UP;
    a->gate = push_rows(l, l->N, one ? 2 * l->F : l->F);
    a->up = !l->family->gated_mlp ? NULL
            : one                 ? at(a->gate, l->F, l)
                                  : push_rows(l, l->N, l->F);
    a->act = shared ? shared->act : push_rows(l, l->N, l->F);
}

/* --- keep or recompute ---------------------------------------------------- */

/* gradient_checkpointing = "selective": which arrays of a slot are kept.
 * Outputs of matmuls and attention are; the rest is recomputed from them, to
 * the same bits.
 *
 *   array            made by                   selective
 *   x, x2            sums with the norms       kept: norms are made from them
 *   proj, mlp_out    matmuls                   kept, where a norm reads them
 *   q_raw, k_raw, v  matmuls                   kept
 *   q, k             rotation, in place        kept: it is the same array
 *                    norms and rotation        recomputed (Qwen3); by heads
 *                                              what was exchanged is kept
 *   att, lse         attention                 kept; by heads att is once
 *                                              more exchanged for heads_att
 *   gate, up         matmuls                   kept
 *   norm1, norm2     norms                     recomputed
 *   act              swiglu                    recomputed
 *                    a matmul's epilogue       kept (GPT-2: its bits are those
 *                                              of the matmul, not of gelu)
 *   means, rstd, low                           kept: small
 *
 * Of an MLP in pieces nothing is kept in any mode: see push_piece. */
static unsigned parts_recomputed(
        const struct model_config *config, const struct model_shape *shape)
{
    const struct model_family *family = config->family;
    bool is_tiled = shape->mlp_pieces > 1;
    unsigned mlp = (family_has(family, ROLE_NORM2) ? PART_NORM2 : 0) |
                   (family->recompute_act ? PART_ACT : 0);
    if (shape->checkpointing.mode != CHECKPOINTING_SELECTIVE)
        return is_tiled ? PART_MLP : 0;
    return (is_tiled ? PART_MLP : mlp) |
           (family_has(family, ROLE_NORM1) ? PART_NORM1 : 0) |
           (cp_by_heads(shape) ? PART_OUTPUT
            : config->qk_norm  ? PART_HEADS
                               : 0);
}

/* Whose transposed codes backward reads in place of an input that is not kept
 * otherwise: not of what is recomputed, of shares of tokens, which backward
 * gathers, or of a norm that there is not. Attention's backward reads o's. */
static void choose_codes(struct layout *l)
{
    const struct fp8_use *use = &l->fp8;
    bool *keeps = l->keeps_codes;
    bool whole = tp_size(l->config) == 1;
    unsigned mlp = l->recompute & PART_MLP;
    keeps[FP8_QKV] = whole && family_has(l->family, ROLE_NORM1) &&
                     !(l->recompute & PART_NORM1);
    keeps[FP8_GATE_UP] = whole && family_has(l->family, ROLE_NORM2) && !mlp &&
                         !(l->recompute & PART_NORM2);
    keeps[FP8_DOWN] = !mlp && !(l->recompute & PART_ACT);
    for (int g = 0; g < FP8_GROUPS; g++)
        keeps[g] &= use->has[g] && use->trains[g] && !use->adapts[g];
}

static void push_codes(struct layout *l, struct layer_acts *a)
{
    const struct fp8_use *use = &l->fp8;
    if (use->mode == FP8_TENSORWISE)
        a->x_amax = push_floats(l, FP8_GROUPS);
    for (int g = 0; g < FP8_GROUPS; g++) {
        int n = (int)l->N, in = use->in[g];
        if (!l->keeps_codes[g])
            continue;
        a->xt[g].codes = push_bytes(l, fp8_transposed_bytes(n, in));
        a->xt[g].scales = push_floats(l, fp8_transposed_scales(use, n, in));
    }
}

/* What a norm makes of `x`; without it, what reads the norm reads x. */
static void *push_norm(
        struct layout *l, enum role norm, void *x, bool is_shared, void *shared)
{
    return !family_has(l->family, norm) ? x
           : is_shared                  ? shared
                                        : push_rows(l, l->S, l->C);
}

/* What the MLP makes of a piece of the tokens, for all pieces of all layers:
 * from the norm before it to what the norm after it reads. */
static void push_piece(struct layout *l, struct layer_acts *a)
{
    size_t N = l->N, S = l->S;
    l->S = l->piece;
    l->N = piece_tokens(l);
    a->norm2 = push_norm(l, ROLE_NORM2, NULL, false, NULL);
    push_mlp(l, NULL, a);
    a->mlp_out = push_norm(l, ROLE_POST2, NULL, false, NULL);
    a->mlp_low = push_rows(l, l->N, l->adapters.low);
    l->N = N, l->S = S;
}

/* Adapters keep u of all tokens, but of an MLP in pieces. */
static size_t low_of(const struct layout *l)
{
    return l->pieces > 1 ? l->adapters.attention_low : l->adapters.low;
}

/* Do all layers share what the group reads? */
static bool shares(const struct layout *l, unsigned part, enum fp8_group group)
{
    return l->recompute & part || l->keeps_codes[group];
}

/* Of one layer at a time: only attention's matmuls read norm1, and only those
 * after them norm2. */
static struct layer_acts push_shared(struct layout *l)
{
    struct layer_acts shared = {.recompute = l->recompute};
    if (shares(l, PART_NORM1, FP8_QKV) || shares(l, PART_NORM2, FP8_GATE_UP))
        shared.norm1 = shared.norm2 = push_rows(l, l->S, l->C);
    if (shares(l, PART_ACT, FP8_DOWN))
        shared.act = push_rows(l, l->N, l->F);
    if (l->by_heads && !l->config->qk_norm) {
        struct heads h = push_heads(l, false);
        shared.q = h.q, shared.k = h.k, shared.v = h.v;
    } else if (l->by_heads || l->recompute & PART_HEADS) {
        bool one = l->joined & JOIN_QKV;
        shared.q = push_rows(l, l->N, one ? l->q + l->kv : l->q);
        shared.k = one ? at(shared.q, l->q, l) : push_rows(l, l->N, l->kv);
        if (l->by_heads && !one)
            shared.v = push_rows(l, l->N, l->kv);
    }
    if (l->recompute & PART_OUTPUT)
        shared.heads_att = push_rows(l, l->N, l->q);
    if (l->recompute & PART_MLP)
        push_piece(l, &shared);
    return shared;
}

static void share_mlp(const struct layer_acts *shared, struct layer_acts *a)
{
    a->gate = shared->gate;
    a->up = shared->up;
    a->act = shared->act;
    a->mlp_out = shared->mlp_out;
    a->mlp_low = shared->mlp_low;
}

/* All that a layer's backward reads, but for what layers share; x only where
 * it is not one of the inputs. */
static void push_slot(
        struct layout *l, bool own_x, const struct layer_acts *shared,
        struct layer_acts *a)
{
    if (own_x)
        a->x = push_rows(l, l->S, l->C);
    a->recompute = l->recompute;
    push_statistics(l, a);
    push_codes(l, a);
    a->norm1 = push_norm(
            l, ROLE_NORM1, a->x, shares(l, PART_NORM1, FP8_QKV), shared->norm1);
    if (l->by_heads)
        push_by_heads(l, shared, a);
    else
        push_attention(l, l->recompute & PART_HEADS ? shared : NULL, a);
    a->x2 = push_rows(l, l->S, l->C);
    a->post1 = a->x2;
    a->proj = push_norm(l, ROLE_POST1, a->x2, false, NULL);
    a->norm2 = push_norm(
            l, ROLE_NORM2, a->x2, shares(l, PART_NORM2 | PART_MLP, FP8_GATE_UP),
            shared->norm2);
    if (l->recompute & PART_MLP) {
        share_mlp(shared, a);
    } else {
        push_mlp(l, shares(l, PART_ACT, FP8_DOWN) ? shared : NULL, a);
        a->mlp_out = push_norm(l, ROLE_POST2, NULL, false, NULL);
    }
    a->low = push_rows(l, l->N, low_of(l));
    a->gains = push_floats(l, l->adapters.gains);
}

/* A layer that keeps nothing: attention is over when the MLP begins, and one
 * array serves for everything (N, C) but x. */
static void push_lean(
        struct layout *l, bool decode, struct layer_acts *a, void **scratch)
{
    a->x = push_rows(l, l->S, l->C);
    a->x2 = a->x;
    push_statistics(l, a);
    a->proj = push_rows(l, l->S, l->C);
    a->post1 = a->mlp_out = a->post2 = a->proj;
    a->norm1 = push_norm(l, ROLE_NORM1, a->x, true, a->proj);
    a->norm2 = push_norm(l, ROLE_NORM2, a->x2, true, a->proj);
    a->low = push_rows(l, l->N, low_of(l));
    size_t gains = l->adapters.gains;
    a->gains =
            push_floats(l, decode ? (size_t)l->config->layers * gains : gains);
    size_t mark = l->top;
    push_attention(l, NULL, a);
    if (l->by_heads)
        push_share(l, NULL, a);
    if (!decode)
        *scratch = push_bytes(l, l->attention_scratch);
    l->top = mark;
    if (l->pieces > 1)
        push_piece(l, a);
    else
        push_mlp(l, NULL, a);
    l->top = l->peak;
}

/* Does a branch join the residual stream other than as it is? */
static bool is_changed(const struct layout *l, enum role post)
{
    return l->config->residual_scale || family_has(l->family, post);
}

static void push_grads(struct layout *l, void *dx, struct layer_grads *g)
{
    const struct model_family *family = l->family;
    bool adds = !(l->joined & JOIN_QKV) ||
                (family->gated_mlp && !(l->joined & JOIN_GATE_UP));
    g->hidden = push_rows(l, 1, max_size(l->S * l->C, l->N * l->q));
    if (adds && l->dtype != DTYPE_FP32)
        g->sum = push_rows(l, l->N, l->C);
    size_t mark = l->top;
    g->mlp_out = is_changed(l, ROLE_POST2) ? g->hidden : dx;
    g->proj = is_changed(l, ROLE_POST1) ? push_rows(l, l->S, l->C) : dx;
    l->top = mark;
    g->act = push_rows(l, piece_tokens(l), l->F);
    l->top = mark;
    /* without gaps, a norm's gradient overwrites the one it is made from */
    struct heads h = push_heads(l, l->config->qk_norm && l->joined & JOIN_QKV);
    g->q_raw = h.q_raw;
    g->k_raw = h.k_raw;
    g->q = h.q;
    g->k = h.k;
    g->v = h.v;
    g->scratch = push_bytes(l, l->attention_scratch);
}

/* Elements of an array for all tokens in attention, in turn with a piece of
 * them in the MLP. */
static size_t in_turn(const struct layout *l, const size_t columns[BRANCHES])
{
    return max_size(
            l->N * columns[BRANCH_ATTENTION],
            piece_tokens(l) * columns[BRANCH_MLP]);
}

/* Scratch of all adapters, `chunk` tokens at a time in the head; nothing
 * without adapters. */
static void push_adapters(
        struct layout *l, int chunk, bool train, struct adapter_scratch *a)
{
    const struct adapter_sizes *s = &l->adapters;
    bool narrow = l->dtype != DTYPE_FP32 && l->backend != DEVICE_CUDA;
    bool drops = train && l->drops;
    size_t layers = narrow ? in_turn(l, s->widest) : 0;
    size_t dropped = drops ? in_turn(l, s->most_in) : 0;
    bool head_dora = train && s->head_gains > 0;
    size_t logits = l->logits_dtype != DTYPE_FP32 || head_dora
                            ? (size_t)l->logits_stride
                            : 0;
    size_t head = narrow || drops ? max_size(l->C, logits) : 0;
    size_t wide = max_size(
            narrow ? layers : dropped, s->head_low ? (size_t)chunk * head : 0);
    if (!s->most_r)
        return;
    a->wide = push_rows(l, 1, wide);
    a->dropped = push_rows(l, 1, dropped);
    a->du = push_rows(l, l->N, train ? s->most_r : 0);
    if (!s->cross)
        return;
    a->cross = push_floats(l, s->cross);
    a->gram = push_floats(l, s->most_r * s->most_r);
    size_t scaled = in_turn(l, s->columns);
    if (head_dora)
        scaled = max_size(scaled, (size_t)chunk * (size_t)l->logits_stride);
    a->scaled = push_rows(l, 1, train ? scaled : 0);
}

/* Offloaded inputs take turns in the buffers; what backward begins with stays,
 * and it goes on in them where forward has ended (residuals.c). */
static void push_inputs(
        struct layout *l, bool offload, struct activations *acts)
{
    int micros = acts->micros, count = acts->segments * micros;
    bool leaves = offload && count > micros + 1;
    int buffers = leaves ? micros + 1 : count;
    int turn = count - 2 * micros; /* the last segment but one begins */
    void **at = zd_array((size_t)buffers, sizeof *at);
    size_t begin = l->top;
    for (int i = 0; i < buffers; i++)
        at[i] = push_rows(l, l->S, l->C);
    for (int m = 0; m < micros; m++) {
        struct activations *a = &acts[m];
        for (int s = 0; s < a->segments; s++) {
            int number = s * micros + m;
            bool is_last = s == a->segments - 1;
            int visit = (a->segments - 1 - s) * micros + m;
            a->inputs[s] = a->returned[s] = at[number % buffers];
            if (leaves && is_last)
                a->inputs[s] = at[(turn + 1 + m) % buffers];
            if (leaves)
                a->returned[s] = at[(turn + 1 + visit) % buffers];
        }
        a->buffers = buffers;
        a->first_buffer = buffers ? at[0] : NULL;
        a->offloaded = leaves ? count - buffers : 0;
        a->input_bytes = buffers ? (l->top - begin) / (size_t)buffers : 0;
        a->moved_bytes = l->S * l->C * l->element;
    }
    free(at);
}

/* --- passes --------------------------------------------------------------- */

/* What a layer keeps for its backward. */
static size_t layer_bytes(const struct layout *l)
{
    size_t mlp = (l->family->gated_mlp ? 3 : 2) * l->F / (size_t)l->pieces;
    return l->element * (l->S * 4 * l->C + l->N * (2 * l->q + 2 * l->kv + mlp));
}

/* Tokens of a chunk. The gradient of a head that trains is read and written
 * once a chunk. Where layers are recomputed, one has no memory while the head
 * runs; else it is one of many. The shape alone decides, so that every way to
 * recompute or offload has the same bits. */
static size_t chunk_limit(const struct layout *l)
{
    size_t row = dtype_bytes(l->logits_dtype) * (size_t)l->logits_stride;
    size_t tokens = HEAD_CHUNK_TOKENS, bytes = HEAD_CHUNK_BYTES;
    if (l->backend == DEVICE_CUDA) {
        tokens = GPU_CHUNK_TOKENS;
        bytes = GPU_CHUNK_BYTES;
    }
    if (l->backend == DEVICE_CUDA && l->head_trains) {
        tokens = LARGE_CHUNK_TOKENS;
        bytes = max_size(bytes, min_size(layer_bytes(l), LARGE_CHUNK_BYTES));
    }
    return min_size(tokens, bytes / (size_t)tp_size(l->config) / row);
}

/* Equal pieces of at most the limit. */
static int head_chunk(const struct layout *l, int asked)
{
    size_t tp = (size_t)tp_size(l->config);
    size_t limit = max_size(asked ? (size_t)asked : chunk_limit(l), 1);
    limit = max_size(limit / tp, 1); /* of a share */
    size_t pieces = (l->S + limit - 1) / limit;
    return (int)((l->S + pieces - 1) / pieces * tp);
}

int model_head_chunk(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct layout l = layout_of(
            config, table, shape, place_tokens(shape, shape->B), NULL);
    return head_chunk(&l, shape->head_chunk);
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
    switch (checkpointing.mode) {
    case CHECKPOINTING_NONE:
    case CHECKPOINTING_SELECTIVE:
        return 0;
    case CHECKPOINTING_FULL:
        return 1;
    case CHECKPOINTING_EVERY:
        return checkpointing.every;
    case CHECKPOINTING_SQRT:
        return (int)lround(sqrt((double)layers));
    case CHECKPOINTING_AUTO:
        break;
    }
    assert(!"auto is settled before it gets here");
    return 0;
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

/* How the layers are cut, the same for each micro-batch. */
static void begin_micros(
        const struct layout *l, const struct param_table *table,
        const struct model_shape *shape, struct activations *acts)
{
    int layers = l->config->layers;
    struct activations a = {
            .first = activations_first_layer(l->config, table),
            .mlp_pieces = l->pieces,
            .micros = shape_micros(shape),
            .scratch_bytes = l->attention_scratch};
    int kept = layers + 1 - a.first;
    int segment = checkpointing_segment(shape->checkpointing, layers);
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

/* Arrays of layers that have no backward: another micro-batch has its own x. */
static void push_lean_micros(struct layout *l, struct activations *acts)
{
    push_lean(l, false, &acts->lean, &acts->lean_scratch);
    for (int m = 1; m < acts->micros; m++) {
        const struct layer_acts *of = &acts->lean;
        struct layer_acts *a = &acts[m].lean;
        *a = *of;
        acts[m].lean_scratch = acts->lean_scratch;
        a->x = a->x2 = push_rows(l, l->S, l->C);
        a->norm1 = of->norm1 == of->x ? a->x : of->norm1;
        a->norm2 = of->norm2 == of->x ? a->x : of->norm2;
    }
}

static void push_slots(struct layout *l, struct activations *acts)
{
    struct layer_acts shared = push_shared(l);
    for (int i = 0; i < acts->segment; i++) {
        bool is_shared = acts->is_shared && i == acts->segment - 1;
        const struct layer_acts *of = &acts->slots[i];
        push_slot(l, i > 0, &shared, &acts->slots[i]);
        for (int m = 1; m < acts->micros; m++) {
            struct layer_acts *a = &acts[m].slots[i];
            if (!is_shared) {
                push_slot(l, i > 0, &shared, a);
                continue;
            }
            *a = *of;
            a->x = i > 0 ? push_rows(l, l->S, l->C) : NULL;
            if (of->norm1 == of->x)
                a->norm1 = a->x;
        }
    }
}

/* What is in use for one micro-batch at a time is that of the first. */
static void share_micros(struct activations *acts)
{
    for (int m = 1; m < acts->micros; m++) {
        struct activations *a = &acts[m];
        a->adapters = acts->adapters;
        a->scratch = acts->scratch;
        a->head = acts->head;
        a->grads = acts->grads;
        if (a->grads.mlp_out == acts->dx)
            a->grads.mlp_out = a->dx;
        if (a->grads.proj == acts->dx)
            a->grads.proj = a->dx;
    }
}

static void lay_train(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base, struct activations *acts)
{
    struct layout l = layout_of(
            config, table, shape, place_tokens(shape, shape->B), base);
    measure_attention(&l, shape, shape->B);
    l.recompute = parts_recomputed(config, shape);
    choose_codes(&l);
    begin_micros(&l, table, shape, acts);
    bool has_kept = acts->first <= config->layers;

    push_inputs(&l, shape->offload_activations, acts);
    acts->dx = push_rows(&l, l.S, l.C);
    for (int m = 0; m < acts->micros; m++) {
        acts[m].dx = acts[m].gathered = m ? acts[m - 1].last : acts->dx;
        acts[m].last = push_rows(&l, l.S, l.C);
    }
    int chunk = head_chunk(&l, shape->head_chunk);
    push_adapters(&l, chunk, true, &acts->adapters);
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
    l.top = above;
    if (has_kept)
        push_grads(&l, acts->dx, &acts->grads);
    share_micros(acts);
    acts->bytes = l.peak;
}

/* A pass without a backward. */
static void lay_lean(
        struct layout *l, bool decode, int chunk, struct activations *a)
{
    a->first = l->config->layers + 1;
    a->mlp_pieces = l->pieces;
    alloc_layers(a);
    push_adapters(l, chunk, false, &a->adapters);
    push_lean(l, decode, &a->lean, &a->lean_scratch);
    a->layer_gains = decode ? l->adapters.gains : 0;
    a->last = a->lean.x;
    a->gathered = a->lean.proj;
    push_head(l, chunk, false, &a->head);
    a->bytes = l->peak;
}

static struct activations lay_eval(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct layout l = layout_of(
            config, table, shape, place_tokens(shape, shape->eval_B), base);
    measure_attention(&l, shape, shape->eval_B);
    struct activations a = {.scratch_bytes = l.attention_scratch};
    lay_lean(&l, false, head_chunk(&l, shape->head_chunk), &a);
    return a;
}

static struct activations lay_decode(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct layout l =
            layout_of(config, table, shape, (size_t)shape->decode_batch, base);
    l.logits_dtype = DTYPE_FP32; /* the host reads them */
    l.pieces = 1, l.piece = l.S = l.N;
    l.decodes = true;
    l.by_heads = false;
    struct activations a = {0};
    size_t texts = (size_t)decode_texts(shape);
    size_t rows = texts * (size_t)shape->decode_capacity;
    a.cache_text_bytes = (size_t)shape->decode_capacity * l.kv * l.element;
    a.cache_layer_bytes = texts * a.cache_text_bytes;
    a.k_cache = push_rows(&l, (size_t)config->layers * rows, l.kv);
    a.v_cache = push_rows(&l, (size_t)config->layers * rows, l.kv);
    lay_lean(&l, true, (int)texts, &a);
    return a;
}

struct activations *activations_lay_out(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct activations *passes =
            zd_array((size_t)activations_passes(shape), sizeof *passes);
    if (shape->train)
        lay_train(config, table, shape, base, &passes[PASS_TRAIN]);
    if (shape->eval_B)
        passes[PASS_EVAL] = lay_eval(config, table, shape, base);
    if (shape->decode_capacity)
        passes[PASS_DECODE] = lay_decode(config, table, shape, base);
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
