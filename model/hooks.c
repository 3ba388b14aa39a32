#include "model/internal.h"

#include <assert.h>

static size_t share_count(const struct model *model, int rows)
{
    return (size_t)rows * (size_t)model->config->hidden_size;
}

enum zd_status tokens_gather(
        const struct model *model, const struct pass *pass, int i, void *share,
        int rows, void **all_out)
{
    *all_out = share;
    if (tp_size(model->config) == 1)
        return ZD_OK;
    *all_out = model->all_tokens[i];
    return pass->hooks->tokens_gather(
            pass->hooks->places, *all_out, share, share_count(model, rows));
}

void *tokens_part(const struct model *model, void *share)
{
    return share && tp_size(model->config) > 1 ? model->all_tokens[0] : share;
}

enum zd_status tokens_scatter(
        const struct model *model, const struct pass *pass, void *share,
        void *part, int rows)
{
    if (part == share)
        return ZD_OK;
    return pass->hooks->tokens_scatter(
            pass->hooks->places, share, part, share_count(model, rows));
}

enum zd_status norm_sums_gather(
        const struct model *model, const struct pass *pass, int count)
{
    return pass->hooks->scores_gather(
            pass->hooks->places, model->norm_sums[1], model->norm_sums[0],
            (size_t)count * sizeof(float));
}

/* --- how much --------------------------------------------------------------
 */

/* Gathers and scatters of all tokens in turn. */
struct turns {
    int gathers, scatters;
};

/* Of what backward computes again of a layer, as forward_kept and recompute_mlp
 * have it; `is_last` of its segment. */
static struct turns turns_again(
        const struct model_config *config, const struct model_shape *shape,
        bool is_recomputed, bool is_last)
{
    bool is_tiled = shape->mlp_pieces > 1;
    int post = family_has(config->family, ROLE_POST2);
    struct turns turns = {0};
    if (is_recomputed)
        turns = (struct turns){1, 1};
    if (is_recomputed && !(is_last && is_tiled)) {
        turns.gathers++;
        turns.scatters += is_last ? post : 1;
    }
    if (is_tiled) {
        turns.gathers++;
        turns.scatters += post;
    }
    return turns;
}

static bool trains(const struct param_table *table, int unit, enum role role)
{
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (table->params[id].role == role && table->params[id].trainable)
            return true;
    return false;
}

static bool unit_trains(const struct param_table *table, int unit)
{
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (table->params[id].trainable)
            return true;
    return false;
}

/* Backward of a layer, of which `first` is the first to have one. */
static struct turns turns_backward(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, int layer, int first)
{
    int segment = checkpointing_segment(shape->checkpointing, config->layers);
    bool is_last = segment && ((layer - first + 1) % segment == 0 ||
                               layer == config->layers);
    struct turns turns = turns_again(config, shape, segment > 0, is_last);
    bool needs_input = layer > first || unit_trains(table, 0) ||
                       trains(table, layer, ROLE_NORM1) ||
                       trains(table, layer, ROLE_NORM1_BIAS);
    turns.gathers += 4; /* norm2 and mlp_out, proj, norm1 */
    turns.scatters += 1 + needs_input;
    return turns;
}

/* Keys and values: forward, those that are recomputed, backward. */
static void add_keys(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct model_exchange *out)
{
    int segment = checkpointing_segment(shape->checkpointing, config->layers);
    int kept = config->layers + 1 - activations_first_layer(config, table);
    int gathers = config->layers + kept;
    size_t row = 2 * (size_t)kv_heads_used(config) * (size_t)config->head_dim *
                 dtype_bytes(shape->dtype);
    uint64_t share = place_tokens(shape, shape->B) * row;
    if (segment)
        gathers += kept - (kept + segment - 1) / segment;
    out->kv_gathered = (uint64_t)gathers * share;
    out->kv_scattered = (uint64_t)kept * share;
    out->largest_kv = place_tokens(shape, 1) / 2 * row;
}

/* Sums of norms: forward, those that are recomputed, backward. */
static void add_sums(
        const struct model_config *config, const struct model_shape *shape,
        int first, struct model_exchange *out)
{
    size_t row = (size_t)norms_cut(config) * sizeof(float);
    size_t tokens = place_tokens(shape, shape->B);
    bool again =
            checkpointing_segment(shape->checkpointing, config->layers) > 0 ||
            (shape->checkpointing.mode == CHECKPOINTING_SELECTIVE &&
             !cp_by_heads(shape));
    int kept = config->layers + 1 - first;
    int gathers = config->layers + kept * (again ? 2 : 1);
    out->scores += (uint64_t)gathers * tokens * row;
    if (out->largest_scores < model_most_tokens(shape) * row)
        out->largest_scores = model_most_tokens(shape) * row;
}

/* Of q, k and v one way and of the output the other; and their gradients. With
 * `selective` backward exchanges the output once more (PART_OUTPUT). */
static void add_heads(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct model_exchange *out)
{
    int segment = checkpointing_segment(shape->checkpointing, config->layers);
    int kept = config->layers + 1 - activations_first_layer(config, table);
    int turns = config->layers + (segment ? 2 : 1) * kept;
    size_t share = (size_t)config->head_dim * dtype_bytes(shape->dtype);
    size_t q = (size_t)(config->heads / cp_size(shape)) * share;
    size_t kv = 2 * (size_t)(config->kv_heads / cp_size(shape)) * share;
    int train = shape->train ? shape->B : 0, eval = shape->eval_B;
    size_t again = cp_sends_output_again(shape) ? (size_t)kept * q : 0;
    out->heads = place_tokens(shape, shape->B) *
                 ((uint64_t)turns * (2 * q + kv) + again);
    out->largest_heads =
            place_tokens(shape, train > eval ? train : eval) * (q + kv);
}

/* Floats that fp8_linear.c tells the other places: inputs of o and down are
 * cut, gradients of what the others make, and all weights, of which the groups
 * are told together. */
static size_t maxima_told(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct fp8_use use = fp8_use_of(table, shape);
    int layers = config->layers;
    int first = activations_first_layer(config, table);
    int segment = checkpointing_segment(shape->checkpointing, layers);
    size_t floats = 0;
    size_t pieces = shape->mlp_pieces > 1 ? (size_t)shape->mlp_pieces : 1;
    if (use.mode != FP8_TENSORWISE || tp_size(config) == 1)
        return 0;
    for (int layer = 1; layer <= layers; layer++) {
        bool has_backward = layer >= first, is_tiled = pieces > 1;
        bool is_last = segment &&
                       ((layer - first + 1) % segment == 0 || layer == layers);
        size_t o = has_backward && segment ? 2 : 1, mlps = 1;
        if (has_backward && segment && !(is_last && is_tiled))
            mlps++;
        mlps += has_backward && is_tiled;
        floats += FP8_GROUPS;
        floats += use.has[FP8_O] ? o : 0;
        floats += use.has[FP8_DOWN] ? mlps * pieces : 0;
        floats += has_backward && use.has[FP8_QKV];
        floats += has_backward && use.has[FP8_GATE_UP] ? pieces : 0;
    }
    return floats;
}

static void add_tokens(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct model_exchange *out)
{
    size_t tp = (size_t)tp_size(config);
    size_t row = (size_t)config->hidden_size * dtype_bytes(shape->dtype);
    size_t tokens = place_tokens(shape, shape->B);
    int first = activations_first_layer(config, table),
        head = config->layers + 1;
    bool dx = trains(table, head, ROLE_FINAL_NORM) ||
              trains(table, head, ROLE_FINAL_NORM_BIAS) || first < head;
    /* the embedding's rows, norms of each layer and of the head */
    struct turns all = {2 * config->layers + 1, 2 * config->layers + 1 + dx};
    for (int layer = first; layer <= config->layers; layer++) {
        struct turns turns = turns_backward(config, table, shape, layer, first);
        all.gathers += turns.gathers;
        all.scatters += turns.scatters;
    }
    all.gathers += trains(table, 0, ROLE_TOKENS);
    struct model_shape eval = *shape;
    eval.B = shape->eval_B > shape->B ? shape->eval_B : shape->B;
    size_t chunk = (size_t)model_head_chunk(config, table, &eval);
    out->gathered = (uint64_t)all.gathers * (tokens / tp) * row;
    out->scattered = (uint64_t)all.scatters * (tokens / tp) * row;
    out->scores = tokens * sizeof(struct row_score) +
                  maxima_told(config, table, shape) * sizeof(float);
    out->largest_share = model_most_tokens(shape) / tp * row;
    size_t logits =
            (size_t)logits_stride(shape_backend(shape), config->vocab_size);
    logits *= shape->decode_capacity ? (size_t)decode_texts(shape) : 0;
    out->largest_scores = chunk * sizeof(struct row_score);
    if (out->largest_scores < logits * sizeof(float))
        out->largest_scores = logits * sizeof(float);
    if (out->largest_scores < FP8_GROUPS * sizeof(float))
        out->largest_scores = FP8_GROUPS * sizeof(float);
    add_sums(config, shape, first, out);
}

struct model_exchange model_exchange(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct model_exchange out = {0};
    if (tp_size(config) > 1)
        add_tokens(config, table, shape, &out);
    if (cp_by_heads(shape))
        add_heads(config, table, shape, &out);
    else if (cp_size(shape) > 1)
        add_keys(config, table, shape, &out);
    return out;
}

/* --- units ----------------------------------------------------------------
 */

void hooks_begin(struct model *model, const struct event_list *program)
{
    model->program = program;
    model->event = 0;
}

void hooks_end(const struct model *model)
{
    assert(model->event == model->program->count);
}

static void expect(struct model *model, int unit, bool acquire)
{
    assert(model->event < model->program->count);
    const struct unit_event *e = &model->program->events[model->event++];
    assert(e->unit == unit && e->acquire == acquire);
    (void)e;
}

enum zd_status unit_acquire(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    expect(model, unit, true);
    return hooks->params_acquire(hooks->ctx, unit, model->params);
}

enum zd_status unit_release(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    expect(model, unit, false);
    return hooks->params_release(hooks->ctx, unit);
}

enum zd_status unit_grads_acquire(
        struct model *model, const struct model_hooks *hooks, int unit,
        bool *accumulate_out)
{
    *accumulate_out = false;
    if (!model->unit_trains[unit])
        return ZD_OK;
    model->product_grads = hooks->product_grads;
    return hooks->grads_acquire(hooks->ctx, unit, model->grads, accumulate_out);
}

enum zd_status unit_grads_release(
        struct model *model, const struct model_hooks *hooks, int unit)
{
    if (!model->unit_trains[unit])
        return ZD_OK;
    return hooks->grads_release(hooks->ctx, unit);
}
