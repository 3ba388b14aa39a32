#include "model/internal.h"

#include "base/number/sizes.h"
#include "base/spans.h"

#include <assert.h>

static size_t share_count(const struct model *model, int rows)
{
    return (size_t)rows * (size_t)model->config->hidden_size;
}

enum zd_status tokens_gather(
        const struct model *model, int i, void *share, int rows, void **all_out)
{
    *all_out = share;
    if (tp_size(model->config) == 1)
        return ZD_OK;
    *all_out = model->gathered.all_tokens[i];
    return places_call(
            model, PLACES_TOKENS_GATHER, *all_out, share,
            share_count(model, rows));
}

void *tokens_part(const struct model *model, void *share)
{
    bool is_cut = share && tp_size(model->config) > 1;
    return is_cut ? model->gathered.all_tokens[0] : share;
}

enum zd_status tokens_scatter(
        const struct model *model, void *share, void *part, int rows)
{
    if (part == share)
        return ZD_OK;
    return places_call(
            model, PLACES_TOKENS_SCATTER, share, part,
            share_count(model, rows));
}

enum zd_status norm_sums_gather(const struct model *model, int count)
{
    float *const *sums = model->gathered.norm_sums;
    return places_call(
            model, PLACES_SCORES_GATHER, sums[1], sums[0], (size_t)count);
}

/* --- how much --------------------------------------------------------------
 */

/* Computes a micro-batch's traffic. */
struct traffic {
    const struct model_config *config;
    const struct param_table *table;
    const struct model_shape *shape;
    int first, segment;     /* the first layer with a backward; layers of a
                               segment */
    uint64_t layers, kept;  /* all layers, and those with a backward */
    size_t tokens, element; /* the place's tokens; bytes of the compute type */
    bool is_tiled;
    struct model_exchange out;
};

/* Is it the last layer of a recomputed segment? */
static bool is_last(const struct traffic *t, int layer)
{
    return t->segment && ((layer - t->first + 1) % t->segment == 0 ||
                          layer == t->config->layers);
}

/* Does backward recompute the layer's MLP as part of its segment? */
static bool repeats_mlp(const struct traffic *t, int layer)
{
    return t->segment && !(is_last(t, layer) && t->is_tiled);
}

/* Does a tensor of roles first .. last train? */
static bool trains(
        const struct traffic *t, int unit, enum role first, enum role last)
{
    const struct param_table *table = t->table;
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++) {
        const struct param *p = &table->params[id];
        if (p->role >= first && p->role <= last && p->trainable)
            return true;
    }
    return false;
}

/* Adds the gathers and scatters of all tokens in a layer's backward and
 * recomputation, as forward_kept and recompute_mlp do them. */
static void add_backward(
        const struct traffic *t, int layer, int *gathers, int *scatters)
{
    int post = family_has(t->config->family, ROLE_POST2);
    bool again = repeats_mlp(t, layer);
    bool needs_input = layer > t->first || trains(t, 0, ROLE_NONE, ROLES) ||
                       trains(t, layer, ROLE_NORM1, ROLE_NORM1_BIAS);
    /* norm2 and mlp_out, proj, norm1 */
    *gathers += 4 + (t->segment > 0) + again + t->is_tiled;
    *scatters += 1 + needs_input + (t->segment > 0);
    *scatters += t->is_tiled ? post : 0;
    if (again)
        *scatters += is_last(t, layer) ? post : 1;
}

/* Keys and values: in forward, recomputation and backward. */
static void add_keys(struct traffic *t)
{
    uint64_t gathers = t->layers + t->kept, segment = (uint64_t)t->segment;
    size_t row = 2 * (size_t)kv_heads_used(t->config) *
                 (size_t)t->config->head_dim * t->element;
    if (segment)
        gathers += t->kept - (t->kept + segment - 1) / segment;
    t->out.kv_gathered = gathers * t->tokens * row;
    t->out.kv_scattered = t->kept * t->tokens * row;
    t->out.largest_kv = place_tokens(t->shape, 1) / 2 * row;
}

/* Exchanges of q, k and v, of the output, and of their gradients. With
 * `selective` backward exchanges the output again (PART_OUTPUT). */
static void add_heads(struct traffic *t)
{
    const struct model_shape *shape = t->shape;
    size_t head = (size_t)t->config->head_dim * t->element;
    size_t q = (size_t)(t->config->heads / cp_size(shape)) * head;
    size_t kv = 2 * (size_t)(t->config->kv_heads / cp_size(shape)) * head;
    int train = shape->train ? shape->B : 0, eval = shape->eval_B;
    uint64_t turns = t->layers + (t->segment ? 2 : 1) * t->kept;
    uint64_t again = cp_sends_output_again(shape) ? t->kept * q : 0;
    t->out.heads = t->tokens * (turns * (2 * q + kv) + again);
    t->out.largest_heads =
            place_tokens(shape, train > eval ? train : eval) * (q + kv);
}

/* Floats of amax that fp8_linear.c exchanges: for the inputs of o and down,
 * which are cut; for the gradients of the other groups' outputs; and for all
 * weights, all groups of a layer at once. */
static size_t maxima_told(const struct traffic *t)
{
    struct fp8_use use = fp8_use_of(t->table, t->shape);
    size_t floats = 0, pieces = t->is_tiled ? (size_t)t->shape->mlp_pieces : 1;
    if (use.mode != FP8_TENSORWISE)
        return 0;
    for (int layer = 1; layer <= t->config->layers; layer++) {
        bool backward = layer >= t->first, again = backward && t->segment;
        size_t mlps = 1 + (backward && repeats_mlp(t, layer)) +
                      (backward && t->is_tiled);
        floats += FP8_GROUPS;
        floats += use.has[FP8_O] ? 1 + again : 0;
        floats += use.has[FP8_DOWN] ? mlps * pieces : 0;
        floats += backward && use.has[FP8_QKV];
        floats += backward && use.has[FP8_GATE_UP] ? pieces : 0;
    }
    return floats;
}

/* Bytes of row scores (sliced vocabulary), amax, and sums of norms: in forward,
 * recomputation and backward. */
static void add_scores(struct traffic *t)
{
    const struct model_shape *shape = t->shape;
    struct model_shape eval = *shape;
    eval.B = shape->eval_B > shape->B ? shape->eval_B : shape->B;
    size_t chunk = (size_t)model_head_chunk(t->config, t->table, &eval);
    size_t logits =
            (size_t)logits_stride(shape_backend(shape), t->config->vocab_size);
    size_t sums = (size_t)norms_cut(t->config) * sizeof(float);
    bool again = t->segment > 0 ||
                 (shape->checkpointing.mode == CHECKPOINTING_SELECTIVE &&
                  !cp_by_heads(shape));
    uint64_t norms = t->layers + t->kept * (again ? 2 : 1);
    logits *= shape->decode_capacity ? (size_t)decode_texts(shape) : 0;
    t->out.scores = t->tokens * (sizeof(struct row_score) + norms * sums) +
                    maxima_told(t) * sizeof(float);
    size_t largest[] = {
            chunk * sizeof(struct row_score), logits * sizeof(float),
            FP8_GROUPS * sizeof(float), model_most_tokens(shape) * sums};
    for (int i = 0; i < 4; i++)
        t->out.largest_scores = size_max(t->out.largest_scores, largest[i]);
}

static void add_tokens(struct traffic *t)
{
    int layers = t->config->layers, head = layers + 1;
    size_t tp = (size_t)tp_size(t->config);
    size_t row = (size_t)t->config->hidden_size * t->element;
    bool dx = trains(t, head, ROLE_FINAL_NORM, ROLE_FINAL_NORM_BIAS) ||
              t->first < head;
    /* the embedding's rows, norms of each layer and of the head */
    int gathers = 2 * layers + 1, scatters = 2 * layers + 1 + dx;
    for (int layer = t->first; layer <= layers; layer++)
        add_backward(t, layer, &gathers, &scatters);
    gathers += trains(t, 0, ROLE_TOKENS, ROLE_TOKENS);
    t->out.gathered = (uint64_t)gathers * (t->tokens / tp) * row;
    t->out.scattered = (uint64_t)scatters * (t->tokens / tp) * row;
    t->out.largest_share = model_most_tokens(t->shape) / tp * row;
    add_scores(t);
}

struct model_exchange model_exchange(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    if (tp_size(config) == 1 && cp_size(shape) == 1)
        return (struct model_exchange){0};
    struct traffic t = {
            .config = config,
            .table = table,
            .shape = shape,
            .first = activations_first_layer(config, table),
            .segment =
                    checkpointing_segment(shape->checkpointing, config->layers),
            .layers = (uint64_t)config->layers,
            .tokens = place_tokens(shape, shape->B),
            .element = dtype_bytes(shape->dtype),
            .is_tiled = shape->mlp_pieces > 1};
    t.kept = (uint64_t)(config->layers + 1 - t.first);
    if (tp_size(config) > 1)
        add_tokens(&t);
    if (cp_by_heads(shape))
        add_heads(&t);
    else if (cp_size(shape) > 1)
        add_keys(&t);
    return t.out;
}

/* --- units ----------------------------------------------------------------
 */

void hooks_begin(
        struct model *model, const struct unit_events *program,
        const struct model_hooks *hooks)
{
    model->program = program;
    model->hooks = hooks;
    model->event = 0;
}

void hooks_end(const struct model *model)
{
    assert(model->event == model->program->count);
}

static void expect(struct model *model, int unit, bool acquire)
{
    assert(model->event < model->program->count);
    const struct unit_event *e = &model->program->list[model->event++];
    assert(e->unit == unit && e->acquire == acquire);
    (void)e;
}

static void note_span(
        const struct model *model, const char *name, int64_t number,
        double began)
{
    struct spans *spans = model->hooks->spans;
    spans_add(spans, LANE_TRAINER, name, number, began, spans_clock(spans));
}

enum zd_status unit_acquire(struct model *model, int unit)
{
    const struct model_hooks *hooks = model->hooks;
    expect(model, unit, true);
    model->unit_began[unit] = spans_clock(hooks->spans);
    enum zd_status status =
            hooks->params_acquire(hooks->ctx, unit, model->params);
    note_span(model, "gather", -1, model->unit_began[unit]);
    return status;
}

enum zd_status unit_release(struct model *model, int unit)
{
    bool is_head = unit == model->table->unit_count - 1;
    bool is_layer = unit > 0 && !is_head;
    expect(model, unit, false);
    enum zd_status status =
            model->hooks->params_release(model->hooks->ctx, unit);
    note_span(
            model,
            is_layer  ? "layer"
            : is_head ? "head"
                      : "embedding",
            is_layer ? unit - 1 : -1, model->unit_began[unit]);
    return status;
}

enum zd_status unit_grads_acquire(
        struct model *model, int unit, bool *accumulate_out)
{
    *accumulate_out = false;
    if (!model->unit_trains[unit])
        return ZD_OK;
    const struct model_hooks *hooks = model->hooks;
    double began = spans_clock(hooks->spans);
    model->product_grads = hooks->product_grads;
    enum zd_status status = hooks->grads_acquire(
            hooks->ctx, unit, model->grads, accumulate_out);
    note_span(model, "bucket", -1, began);
    return status;
}

enum zd_status unit_grads_release(struct model *model, int unit)
{
    if (!model->unit_trains[unit])
        return ZD_OK;
    double began = spans_clock(model->hooks->spans);
    enum zd_status status =
            model->hooks->grads_release(model->hooks->ctx, unit);
    note_span(model, "reduce-scatter", -1, began);
    return status;
}
