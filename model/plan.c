#include "model/internal.h"

#include "model/config_keys.h"

#include <assert.h>

int model_positions(const struct model_shape *shape)
{
    int positions = shape->train || shape->eval_B ? shape->T : 0;
    return shape->decode_capacity > positions ? shape->decode_capacity
                                              : positions;
}

size_t model_most_tokens(const struct model_shape *shape)
{
    size_t train = shape->train ? place_tokens(shape, shape->B) : 0;
    size_t eval = place_tokens(shape, shape->eval_B);
    size_t decode = (size_t)shape->decode_batch;
    return size_max(size_max(train, eval), decode);
}

struct gathered model_gathered_at(
        const struct model_config *config, const struct model_shape *shape,
        char *base)
{
    struct gathered g = {0};
    size_t element = dtype_bytes(shape->dtype), all = model_most_tokens(shape);
    size_t hidden = (size_t)config->hidden_size * element;
    int train = shape->train ? shape->B : 0, eval = shape->eval_B;
    size_t samples = (size_t)(train > eval ? train : eval);
    size_t kv = 2 * (size_t)kv_heads_used(config) * (size_t)config->head_dim *
                element;
    for (int i = 0; i < 2 && tp_size(config) > 1; i++)
        g.all_tokens[i] = span_take(base, &g.bytes, all * hidden);
    size_t sums = (size_t)norms_cut(config) * sizeof(float);
    if (sums) {
        size_t tp = (size_t)tp_size(config);
        g.norm_sums[0] = span_take(base, &g.bytes, all * sums);
        g.norm_sums[1] = span_take(base, &g.bytes, all * tp * sums);
    }
    size_t own = place_tokens(shape, (int)samples);
    size_t q = (size_t)config->heads * (size_t)config->head_dim * element;
    for (int i = 0; i < 2 && cp_by_heads(shape); i++)
        g.exchanged[i] = span_take(base, &g.bytes, own * (q + kv));
    if (cp_size(shape) == 1 || cp_by_heads(shape))
        return g;
    g.kv_share = span_take(base, &g.bytes, own * kv);
    g.kv_all = span_take(base, &g.bytes, samples * (size_t)shape->T * kv);
    g.dkv_all =
            span_take(base, &g.bytes, (size_t)train * (size_t)shape->T * kv);
    return g;
}

static enum zd_status add_buffers(
        struct arena_plan *plan, const char *name, size_t bytes)
{
    return arena_plan_add(plan, name, ARENA_DEVICE, SPAN_BUFFERS, bytes);
}

/* Plans the tokens of a pass on the device, and the staging buffers. */
static enum zd_status plan_batch(
        const struct model_config *config, const struct model_shape *shape,
        struct arena_plan *plan)
{
    size_t tokens = model_most_tokens(shape), integer = sizeof(int32_t);
    size_t micros = (size_t)shape_micros(shape);
    if (shape_backend(shape) != DEVICE_CUDA)
        return add_buffers(
                plan, "model.batch", micros * CPU_PLANES * tokens * integer);
    size_t planes = batch_planes(config, shape);
    size_t bytes = planes * batch_plane_tokens(tokens) * integer;
    size_t rows = size_max(
            (size_t)config->vocab_size, (size_t)model_positions(shape));
    ZD_TRY(add_buffers(plan, "model.batch", micros * bytes));
    ZD_TRY(arena_plan_add(
            plan, "model.batch.staging", ARENA_PINNED, SPAN_BUFFERS,
            BATCH_SLOTS * bytes));
    return arena_plan_add(
            plan, "model.batch.counts", ARENA_HOST, SPAN_BUFFERS,
            (rows + 1) * integer);
}

/* Plans the shared workspace of a GPU's kernels. */
static enum zd_status plan_workspace(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct arena_plan *plan)
{
    size_t q = (size_t)config->heads * (size_t)config->head_dim;
    size_t C = (size_t)config->hidden_size;
    size_t kv = (size_t)config->kv_heads * (size_t)config->head_dim;
    size_t columns =
            size_max(2 * (size_t)config->intermediate_size, q + 2 * kv);
    size_t norm = config->family->qk_norm_whole ? q : (size_t)config->head_dim;
    if (shape_backend(shape) != DEVICE_CUDA)
        return ZD_OK;
    int head = table->adapters ? param_table_find(table, "lm_head.weight") : -1;
    if (head >= 0 && param_has_adapter(table, head))
        columns = size_max(columns, (size_t)config->vocab_size);
    return add_buffers(
            plan, "kernels.workspace",
            kernels_workspace_bytes(
                    (int)model_most_tokens(shape), (int)size_max(C, norm),
                    (int)size_max(columns, C)));
}

uint64_t model_residual_bytes(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape)
{
    struct activations *passes =
            activations_lay_out(config, table, shape, NULL);
    const struct activations *train = &passes[PASS_TRAIN];
    uint64_t bytes = (uint64_t)train->offloaded * train->moved_bytes;
    activations_free(passes, activations_passes(shape));
    return bytes;
}

enum zd_status model_plan(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, struct arena_plan *plan)
{
    size_t bytes = 0, residuals = 0, angles = 0;
    int positions = model_positions(shape);
    for (int i = 0; i < config->rope_count; i++)
        angles += rope_table_floats(&config->ropes[i], positions);
    if (!config->family->rotary && positions > config->max_positions)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0313",
                "%d tokens are more than the %d positions that the model has "
                "learned",
                positions, config->max_positions);
    /* only inputs of recomputed segments can be offloaded */
    assert(!shape->train || !shape->offload_activations ||
           checkpointing_segment(shape->checkpointing, config->layers) > 0);
    struct activations *passes =
            activations_lay_out(config, table, shape, NULL);
    residuals = (size_t)passes[PASS_TRAIN].offloaded *
                passes[PASS_TRAIN].input_bytes;
    for (int i = 0; i < activations_passes(shape); i++)
        bytes = size_max(bytes, passes[i].bytes);
    activations_free(passes, activations_passes(shape));
    ZD_TRY(arena_plan_add(
            plan, "model.activations", ARENA_DEVICE, SPAN_ACTIVATIONS, bytes));
    if (residuals)
        ZD_TRY(arena_plan_add(
                plan, "model.residuals", ARENA_PINNED, SPAN_ACTIVATIONS,
                residuals));
    if (table->codes) /* for one matmul at a time */
        ZD_TRY(add_buffers(
                plan, "model.decoded",
                param_most_in_codes(table) * dtype_bytes(shape->dtype)));
    size_t codes = fp8_scratch_at(config, table, shape, NULL).bytes;
    if (codes)
        ZD_TRY(add_buffers(plan, "model.fp8", codes));
    size_t gathered = model_gathered_at(config, shape, NULL).bytes;
    if (gathered)
        ZD_TRY(add_buffers(plan, "model.gathered", gathered));
    ZD_TRY(plan_batch(config, shape, plan));
    ZD_TRY(plan_workspace(config, table, shape, plan));
    ZD_TRY(add_buffers(plan, "model.loss", sizeof(struct exact_sum)));
    return add_buffers(plan, "model.rope", angles * sizeof(float));
}

double model_flops_per_token(
        const struct model_config *config, const struct param_table *table,
        int T)
{
    double flops = 0.0, head = 2.0 * config->vocab_size * config->hidden_size;
    /* the first tensor in forward order that trains or has an adapter that
     * trains: nothing before it has a backward */
    int first = table->count;
    for (int id = table->count - 1; id >= 0; id--) {
        const struct param *param = &table->params[id];
        int at = param->part == PARAM_BASE ? id : param->adapts;
        first = param->trainable && at < first ? at : first;
    }
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        double product = 2.0 * (double)param->count;
        if (param->dims != 2 || param->unit == 0)
            continue;
        flops += product;
        flops += id > first ? product : 0;
        flops += param->trainable ? product : 0;
    }
    if (config->tied)
        flops += head + (table->params[0].trainable ? head : 0) +
                 (first < table->count ? head : 0);
    for (int layer = 1; layer <= config->layers; layer++) {
        bool backward = table->unit_first[layer + 1] > first;
        flops += (backward ? 6.0 : 2.0) * layer_seen_twice(config, layer, T) *
                 config->heads * config->head_dim;
    }
    return flops;
}
