#include "model/adapter.h"

static void grow(size_t *most, size_t value)
{
    *most = value > *most ? value : *most;
}

/* Columns of the matmul that weight `id` is a part of. */
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

static void add(
        const struct param_table *table, int id, unsigned joined,
        struct adapter_sizes *unit, struct adapter_sizes *all)
{
    const struct adapter *adapter = &table->adapters[id];
    const struct param *param = &table->params[id];
    enum branch branch = param_is_mlp(param) ? BRANCH_MLP : BRANCH_ATTENTION;
    bool is_head = param->unit == table->unit_count - 1;
    size_t in = (size_t)table->params[adapter->a].shape[1];
    size_t out = (size_t)table->params[adapter->b].shape[0];
    size_t r = (size_t)adapter->r;
    unit->low += r;
    unit->attention_low += branch == BRANCH_ATTENTION ? r : 0;
    grow(&all->most_r, r);
    grow(&all->most_in[branch], in);
    if (!is_head)
        grow(&all->widest[branch], in > out ? in : out);
    if (adapter->magnitude < 0)
        return;
    unit->gains += 2 * out;
    grow(&all->cross, out * r);
    if (!is_head)
        grow(&all->columns[branch], product_columns(table, id, joined));
}

struct adapter_sizes adapter_sizes_of(
        const struct param_table *table, unsigned joined)
{
    struct adapter_sizes all = {0};
    for (int u = 0; table->adapters && u < table->unit_count; u++) {
        struct adapter_sizes unit = {0}; /* sums over a layer's adapters */
        for (int id = table->unit_first[u]; id < table->unit_first[u + 1]; id++)
            if (param_has_adapter(table, id))
                add(table, id, joined, &unit, &all);
        bool is_head = u == table->unit_count - 1;
        grow(is_head ? &all.head_low : &all.low, unit.low);
        grow(is_head ? &all.head_gains : &all.gains, unit.gains);
        if (!is_head)
            grow(&all.attention_low, unit.attention_low);
    }
    return all;
}
