#include "model/activation_parts.h"

#include <math.h>

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

size_t dims_attention_scratch(const struct dims *d)
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

struct dims dims_of(
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
            .family = config->family,
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
    if (config->family->fused_qkv || joined & JOIN_QKV)
        s.q_raw = s.k_raw = s.q = s.k = s.v = all;
    if (joined & JOIN_QKV && config->qk_norm)
        s.q = s.k = q + kv;
    if (joined & JOIN_GATE_UP)
        s.gate = 2 * F;
    return s;
}
