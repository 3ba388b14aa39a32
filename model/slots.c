/* slots.c - lays out the arrays of a layer: kept for backward, shared between
 * layers, gradients, and scratch. */
#include "base/must.h"
#include "model/layout.h"

static void *at(void *array, size_t elements, const struct layout *l)
{
    return array ? (char *)array + elements * l->element : NULL;
}

static bool is_joined(const struct layout *l)
{
    return l->joined & JOIN_QKV;
}

/* q, k, and with `v` also v: one array if joined, else one each. */
static struct qkv push_heads(struct layout *l, bool v)
{
    struct qkv h = {0};
    bool one = is_joined(l);
    size_t kv = v ? 2 * l->kv : l->kv;
    h.q = h.q_raw = push_rows(l, l->N, one ? l->q + kv : l->q);
    h.k = h.k_raw = one ? at(h.q, l->q, l) : push_rows(l, l->N, l->kv);
    if (v)
        h.v = one ? at(h.q, l->q + l->kv, l) : push_rows(l, l->N, l->kv);
    return h;
}

/* `apart`: q and k before and after their norms are separate arrays. */
static struct qkv push_qkv(struct layout *l, bool apart)
{
    struct qkv h = push_heads(l, true);
    if (apart) {
        struct qkv normed = push_heads(l, false);
        h.q = normed.q;
        h.k = normed.k;
    }
    return h;
}

/* Tokens of a piece in all shares. */
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
    struct branch_acts *branches[] = {&a->attention, &a->mlp};
    for (int i = 0; i < 2; i++) {
        struct branch_acts *b = branches[i];
        b->rstd = push_rstd(l, i ? ROLE_NORM2 : ROLE_NORM1);
        b->post_rstd = push_rstd(l, i ? ROLE_POST2 : ROLE_POST1);
        b->mean = l->family->layer_norm ? push_floats(l, l->S) : NULL;
    }
    a->lse = push_floats(l, l->N * l->H);
    if (l->config->qk_norm) {
        a->q_rstd = push_floats(l, l->N * l->H);
        a->k_rstd = push_floats(l, l->N * l->KV);
    }
}

/* What attention reads, and q and k before their norms, if any. `shared` (may
 * be NULL) has q and k for all layers. */
static void push_attention(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    a->qkv = push_qkv(l, l->config->qk_norm && !shared);
    if (shared)
        a->qkv.q = shared->qkv.q, a->qkv.k = shared->qkv.k;
    a->att = push_rows(l, l->N, l->q);
}

/* Arrays of all tokens, for attention by heads. */
static void push_share(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    a->heads = push_rows(l, l->N, l->q + 2 * l->kv);
    a->heads_att = shared && l->recompute & PART_OUTPUT
                           ? shared->heads_att
                           : push_rows(l, l->N, l->q);
}

/* By heads: `shared` has q, k and v of the place's tokens, which are dead after
 * the exchange; but a norm's backward reads its input. */
static void push_by_heads(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    if (l->config->qk_norm) {
        struct qkv raw = push_heads(l, is_joined(l));
        a->qkv.q_raw = raw.q;
        a->qkv.k_raw = raw.k;
        a->qkv.v = raw.v ? raw.v : shared->qkv.v;
    }
    a->att = push_rows(l, l->N, l->q);
    push_share(l, shared, a);
}

/* `shared` (may be NULL) has act for all layers. */
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
 * Of an MLP in pieces nothing is kept in any mode: see push_piece. Where
 * nothing else is recomputed and attention is by heads, att is kept twice, and
 * norm1 is recomputed in its place. */
unsigned layout_recomputed(const struct layout *l)
{
    const struct model_family *family = l->family;
    enum checkpointing_mode mode = l->shape->checkpointing.mode;
    bool is_tiled = l->pieces > 1;
    unsigned mlp = (family_has(family, ROLE_NORM2) ? PART_NORM2 : 0) |
                   (family->gated_mlp ? PART_ACT : 0);
    unsigned norm1 = family_has(family, ROLE_NORM1) ? PART_NORM1 : 0;
    bool twice = mode == CHECKPOINTING_NONE && l->by_heads;
    if (mode != CHECKPOINTING_SELECTIVE)
        return (is_tiled ? PART_MLP : 0) | (twice ? norm1 : 0);
    return (is_tiled ? PART_MLP : mlp) | norm1 |
           (l->by_heads          ? PART_OUTPUT
            : l->config->qk_norm ? PART_HEADS
                                 : 0);
}

/* The groups whose input is kept only as transposed codes. Not if the input is
 * recomputed, is a share of tokens (which backward gathers), or is x itself
 * (without a norm); nor o's, which attention's backward reads. */
void layout_choose_codes(struct layout *l)
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

/* The output of a norm of `x`; without the norm, x. */
static void *push_norm(
        struct layout *l, enum role norm, void *x, bool is_shared, void *shared)
{
    return !family_has(l->family, norm) ? x
           : is_shared                  ? shared
                                        : push_rows(l, l->S, l->C);
}

/* The MLP's arrays for one piece of the tokens, shared by all pieces of all
 * layers: from the norm before it to the input of the norm after it. */
static void push_piece(struct layout *l, struct layer_acts *a)
{
    size_t N = l->N, S = l->S;
    l->S = l->piece;
    l->N = piece_tokens(l);
    a->mlp.norm = push_norm(l, ROLE_NORM2, NULL, false, NULL);
    push_mlp(l, NULL, a);
    a->mlp.out = push_norm(l, ROLE_POST2, NULL, false, NULL);
    a->mlp_low = push_rows(l, l->N, l->adapters.low);
    l->N = N, l->S = S;
}

/* Adapters keep u for all tokens, except for an MLP in pieces. */
static size_t low_of(const struct layout *l)
{
    return l->pieces > 1 ? l->adapters.attention_low : l->adapters.low;
}

/* Do all layers share the group's input? */
static bool shares(const struct layout *l, unsigned part, enum fp8_group group)
{
    return l->recompute & part || l->keeps_codes[group];
}

/* For one layer at a time. norm1 and norm2 may share memory: only attention's
 * matmuls read norm1, and only later ones norm2. */
struct layer_acts layout_shared(struct layout *l)
{
    struct layer_acts shared = {.recompute = l->recompute};
    if (shares(l, PART_NORM1, FP8_QKV) || shares(l, PART_NORM2, FP8_GATE_UP))
        shared.attention.norm = shared.mlp.norm = push_rows(l, l->S, l->C);
    if (shares(l, PART_ACT, FP8_DOWN))
        shared.act = push_rows(l, l->N, l->F);
    if (l->by_heads || l->recompute & PART_HEADS)
        shared.qkv = push_heads(
                l, l->by_heads && !(l->config->qk_norm && is_joined(l)));
    if (l->recompute & PART_OUTPUT)
        shared.heads_att = push_rows(l, l->N, l->q);
    if (l->recompute & PART_MLP)
        push_piece(l, &shared);
    return shared;
}

void layout_slot(
        struct layout *l, const struct layer_acts *shared, struct layer_acts *a)
{
    struct branch_acts *in = &a->attention, *mlp = &a->mlp;
    void *x = in->x;
    *a = *shared;
    in->x = x;
    push_statistics(l, a);
    push_codes(l, a);
    in->norm = push_norm(
            l, ROLE_NORM1, in->x, shares(l, PART_NORM1, FP8_QKV),
            shared->attention.norm);
    if (l->by_heads)
        push_by_heads(l, shared, a);
    else
        push_attention(l, l->recompute & PART_HEADS ? shared : NULL, a);
    mlp->x = in->post = push_rows(l, l->S, l->C);
    in->out = push_norm(l, ROLE_POST1, mlp->x, false, NULL);
    mlp->norm = push_norm(
            l, ROLE_NORM2, mlp->x,
            shares(l, PART_NORM2 | PART_MLP, FP8_GATE_UP), shared->mlp.norm);
    if (!(l->recompute & PART_MLP)) {
        push_mlp(l, shares(l, PART_ACT, FP8_DOWN) ? shared : NULL, a);
        mlp->out = push_norm(l, ROLE_POST2, NULL, false, NULL);
    }
    a->low = push_rows(l, l->N, low_of(l));
    a->gains = push_floats(l, l->adapters.gains);
}

/* A layer that keeps nothing: attention's arrays are dead when the MLP begins,
 * and one array serves for all (N, C) except x. */
void layout_lean(
        struct layout *l, bool decode, struct layer_acts *a, void **scratch)
{
    struct branch_acts *in = &a->attention, *mlp = &a->mlp;
    mlp->x = in->x;
    push_statistics(l, a);
    in->out = in->post = mlp->out = mlp->post = push_rows(l, l->S, l->C);
    in->norm = push_norm(l, ROLE_NORM1, in->x, true, in->out);
    mlp->norm = push_norm(l, ROLE_NORM2, mlp->x, true, in->out);
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

/* Is a branch's output changed before the residual sum? */
static bool is_changed(const struct layout *l, enum role post)
{
    return l->config->residual_scale || family_has(l->family, post);
}

/* With tensor parallelism `sum` has all tokens. It then overlaps hidden, proj
 * and act, which are dead when it is used. */
void layout_grads(struct layout *l, void *dx, struct layer_grads *g)
{
    const struct model_family *family = l->family;
    bool adds = !(l->joined & JOIN_QKV) ||
                (family->gated_mlp && !(l->joined & JOIN_GATE_UP));
    size_t begin = l->top;
    if (adds && l->dtype != DTYPE_FP32)
        g->sum = push_rows(l, l->N, l->C);
    size_t end = l->top;
    if (tp_size(l->config) > 1) /* then matmuls accumulate to all_tokens[0] */
        l->top = begin;
    g->hidden = push_rows(l, 1, size_max(l->S * l->C, l->N * l->q));
    size_t mark = l->top;
    g->mlp_out = is_changed(l, ROLE_POST2) ? g->hidden : dx;
    g->proj = is_changed(l, ROLE_POST1) ? push_rows(l, l->S, l->C) : dx;
    l->top = mark;
    g->act = push_rows(l, piece_tokens(l), l->F);
    l->top = size_max(mark, end);
    /* in dense rows, a norm's gradient overwrites the gradient of its output */
    g->qkv = push_qkv(l, l->config->qk_norm && is_joined(l));
    g->scratch = push_bytes(l, l->attention_scratch);
}

/* Elements of an array that serves all tokens in attention, then a piece of
 * them in the MLP. */
static size_t in_turn(const struct layout *l, const size_t columns[BRANCHES])
{
    return size_max(
            l->N * columns[BRANCH_ATTENTION],
            piece_tokens(l) * columns[BRANCH_MLP]);
}

void layout_adapters(
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
    size_t head = narrow || drops ? size_max(l->C, logits) : 0;
    size_t wide = size_max(
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
        scaled = size_max(scaled, (size_t)chunk * (size_t)l->logits_stride);
    a->scaled = push_rows(l, 1, train ? scaled : 0);
}

/* Offloaded inputs share the buffers; those with which backward begins stay,
 * and backward continues where forward has ended (residuals.c). */
void layout_inputs(struct layout *l, bool offload, struct activations *acts)
{
    int micros = acts->micros, count = acts->segments * micros;
    bool leaves = offload && count > micros + 1;
    int buffers = leaves ? micros + 1 : count;
    int turn = count - 2 * micros; /* the last segment but one begins */
    ZD_FREED void **at = zd_array((size_t)buffers, sizeof *at);
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
}
