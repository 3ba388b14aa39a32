#include "train/plan/cost.h"

#include "model/config_layers.h"

#include <math.h>

struct costs costs_of(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    enum dtype type = plan->zero.request.dtype;
    return (struct costs){
            .plan = plan,
            .machine = machine,
            .rates =
                    machine->rates ? &machine->rates[type == DTYPE_FP32] : NULL,
            .width = (double)dtype_bytes(type)};
}

/* Seconds at a rate; a rate that was not measured costs nothing. */
static double at_rate(double much, double rate)
{
    return rate > 0 ? much / rate : 0;
}

/* Elements of the compute type that are read or written so often. */
static double move_seconds(
        const struct costs *costs, double moves, double elements)
{
    return moves * elements * costs->width / costs->machine->memory;
}

/* --- matmuls -------------------------------------------------------------- */

/* The position of `value` between the points of a table, on a logarithmic
 * scale; clamped at both ends. */
static double position(const int *points, int count, double value, int *low)
{
    *low = 0;
    if (value <= points[0])
        return 0;
    while (*low < count - 2 && value >= points[*low + 1])
        ++*low;
    double share = log(value / points[*low]) /
                   log((double)points[*low + 1] / points[*low]);
    return share < 1 ? share : 1;
}

static double between(double a, double b, double share)
{
    return a + (b - a) * share;
}

/* Rates of few rows grow as the rows do: linear on a logarithmic scale. */
static double between_rates(double a, double b, double share)
{
    return a > 0 && b > 0 ? a * pow(b / a, share) : between(a, b, share);
}

static double peak_rate(const struct costs *costs, double tokens)
{
    const struct plan_machine *machine = costs->machine;
    bool is_fp32 = costs->plan->zero.request.dtype == DTYPE_FP32;
    return (is_fp32 ? machine->products_32 : machine->products_16) * tokens /
           (tokens + machine->half_tokens);
}

static double product_rate(
        const struct costs *costs, int kind, double tokens, double width)
{
    int t, w;
    if (!costs->rates)
        return peak_rate(costs, tokens);
    double down = position(plan_rate_tokens, RATE_TOKENS, tokens, &t);
    double right = position(plan_rate_widths, RATE_WIDTHS, width, &w);
    const double(*table)[RATE_WIDTHS] = costs->rates->products[kind];
    return between_rates(
            between_rates(table[t][w], table[t][w + 1], right),
            between_rates(table[t + 1][w], table[t + 1][w + 1], right), down);
}

/* A matmul takes at least the time to read its weight, or to write the
 * gradient. */
static double product_seconds(
        const struct costs *costs, const struct param *param, int kind,
        double tokens)
{
    double count = (double)param->count, flops = 2 * count * tokens;
    double width = sqrt((double)param->shape[0] * (double)param->shape[1]);
    double bytes =
            count * (kind == RATE_WEIGHTS ? sizeof(float) : costs->width);
    return fmax(
            at_rate(flops, product_rate(costs, kind, tokens, width)),
            bytes / costs->machine->memory);
}

/* What a weight's matmuls cost, in so many pieces of the tokens: forward one,
 * backward one for its input and, where it trains, one for itself. */
static void add_weight(
        const struct costs *costs, const struct param *param, double tokens,
        double pieces, struct unit_cost *cost)
{
    for (int kind = 0; kind < RATE_PRODUCTS; kind++)
        if (kind != RATE_WEIGHTS || param->trainable)
            cost->pass[kind == RATE_FORWARD ? RATE_FORWARD : RATE_BACKWARD] +=
                    pieces *
                    product_seconds(costs, param, kind, tokens / pieces);
}

/* A quantized weight is decoded for each matmul: read, and written as elements,
 * whole or in strips. */
static double decode_seconds(const struct costs *costs, int id)
{
    const struct param_table *table = &costs->plan->table;
    size_t count = table->params[id].count;
    return ((double)param_code_bytes(table, id, count) +
            (double)count * costs->width) /
           costs->machine->memory;
}

/* --- units ---------------------------------------------------------------- */

/* Of a layer with a window: the rate at the length whose tokens see as many. */
static double attention_rate(
        const struct costs *costs, int pass, double tokens, double length)
{
    int low;
    if (!costs->rates)
        return peak_rate(costs, tokens);
    double share = position(plan_rate_lengths, RATE_LENGTHS, length, &low);
    const double *rates = costs->rates->attention[pass];
    return between(rates[low], rates[low + 1], share);
}

/* Attention, norms, activations, sums; and what operations that follow each
 * other take beyond that. */
static void add_layer(
        const struct costs *costs, int layer, double tokens,
        struct unit_cost *cost)
{
    const struct model_config *config = &costs->plan->config;
    const struct plan_rates *rates = costs->rates;
    double C = config->hidden_size, I = config->intermediate_size;
    double length = layer_seen_twice(config, layer, costs->plan->shape.T);
    double flops = 2.0 * length * config->heads * config->head_dim * tokens;
    for (int pass = 0; pass < RATE_PASSES; pass++) {
        double times = 1 + pass;
        cost->pass[pass] += at_rate(
                times * flops, attention_rate(costs, pass, tokens, length));
        double seconds =
                move_seconds(costs, times * NORM_MOVES, 2 * C * tokens) +
                move_seconds(costs, times * ACTIVATION_MOVES, I * tokens) +
                move_seconds(costs, times * ADD_MOVES, 2 * C * tokens);
        cost->pass[pass] += seconds;
        if (pass == RATE_FORWARD)
            cost->recompute = seconds;
    }
    if (!rates)
        return;
    cost->output += move_seconds(costs, ADD_MOVES, C * tokens);
    if (!(rates->whole[RATE_FORWARD] > 0))
        return;
    cost->output *= rates->whole[RATE_FORWARD];
    for (int pass = 0; pass < RATE_PASSES; pass++)
        cost->pass[pass] =
                cost->pass[pass] * rates->whole[pass] + rates->begin[pass];
}

/* How often the head's weight is used for a micro-batch. What tables say of few
 * rows is of whole trainings, by programs that do not cut it. */
static double head_pieces(const struct costs *costs)
{
    const struct job_plan *plan = costs->plan;
    if (!costs->rates)
        return 1;
    int chunk = model_head_chunk(&plan->config, &plan->table, &plan->shape);
    return ceil((double)plan->shape.B * plan->shape.T / chunk);
}

/* All logits, and the loss of each. */
static void add_head(
        const struct costs *costs, double tokens, double pieces,
        struct unit_cost *cost)
{
    const struct model_config *config = &costs->plan->config;
    if (config->tied) {
        const struct param tied = {
                .shape = {config->vocab_size, config->hidden_size},
                .count = (size_t)config->vocab_size *
                         (size_t)config->hidden_size,
                .trainable = costs->plan->table.params[0].trainable};
        add_weight(costs, &tied, tokens, pieces, cost);
    }
    cost->pass[RATE_FORWARD] +=
            move_seconds(costs, LOSS_MOVES, tokens * config->vocab_size);
    cost->pass[RATE_FORWARD] += cost->pass[RATE_BACKWARD];
    cost->pass[RATE_BACKWARD] = 0;
}

/* Rows are read, and their gradients added; those of a tied one are cleared
 * with the head's. */
static void add_embedding(
        const struct costs *costs, double tokens, struct unit_cost *cost)
{
    const struct param *rows = &costs->plan->table.params[0];
    double memory = costs->machine->memory;
    double seconds =
            tokens * costs->plan->config.hidden_size * costs->width / memory;
    cost->pass[RATE_FORWARD] = seconds;
    cost->pass[RATE_BACKWARD] = 2 * seconds;
    if (rows->trainable && !costs->plan->config.tied)
        cost->pass[RATE_BACKWARD] +=
                (double)(rows->count * sizeof(float)) / memory;
}

static void add_bytes(
        const struct costs *costs, int unit, struct unit_cost *cost)
{
    const struct zero_plan *zero = &costs->plan->zero;
    for (int i = zero->unit_segments[unit]; i < zero->unit_segments[unit + 1];
         i++) {
        const struct zero_segment *segment = &zero->segments[i];
        double bytes = (double)zero_segment_bytes(segment, segment->count);
        if (!segment->persistent)
            cost->gather += bytes;
        if (!segment->trainable)
            continue;
        if (segment->persistent || !zero->params_cut)
            cost->spread += bytes;
        cost->grads += (double)segment->count;
        cost->update +=
                (double)(zero->states_cut ? segment->shard_count : segment->count);
    }
}

/* What is written as fp32 where the compute type is narrower. */
static double round_seconds(const struct costs *costs, int unit)
{
    const struct zero_plan *zero = &costs->plan->zero;
    double grads = (double)zero_rounded_count(zero, unit);
    if (zero->grad_dtype == DTYPE_FP32)
        return 0;
    if (costs->rates)
        return at_rate(grads, costs->rates->round);
    return grads * (double)(sizeof(float) + dtype_bytes(zero->grad_dtype)) /
           costs->machine->memory;
}

struct unit_cost cost_unit(const struct costs *costs, int unit)
{
    const struct job_plan *plan = costs->plan;
    const struct param_table *table = &plan->table;
    double tokens = (double)plan->shape.B * plan->shape.T;
    bool is_head = unit == table->unit_count - 1;
    bool is_layer = unit > 0 && !is_head;
    double pieces = is_head ? head_pieces(costs) : 1;
    struct unit_cost cost = {.round = round_seconds(costs, unit)};
    for (int id = table->unit_first[unit];
         id < table->unit_first[unit + 1] && unit > 0; id++) {
        const struct param *param = &table->params[id];
        double before = cost.pass[RATE_FORWARD];
        bool is_weight = param->dims == 2 && param->part == PARAM_BASE;
        if (is_weight)
            add_weight(costs, param, tokens, pieces, &cost);
        for (int pass = 0; param_is_quantized(table, id) && pass < RATE_PASSES;
             pass++)
            cost.pass[pass] += decode_seconds(costs, id);
        if (is_weight) /* the last one's stays */
            cost.output = cost.pass[RATE_FORWARD] - before;
        if (param_has_adapter(table, id)) {
            const struct adapter *adapter = &table->adapters[id];
            add_weight(costs, &table->params[adapter->a], tokens, 1, &cost);
            add_weight(costs, &table->params[adapter->b], tokens, 1, &cost);
        }
    }
    if (is_layer)
        add_layer(costs, unit, tokens, &cost);
    else if (is_head)
        add_head(costs, tokens, pieces, &cost);
    else
        add_embedding(costs, tokens, &cost);
    for (int pass = 0; pass < RATE_PASSES; pass++)
        cost.pass[pass] += (1 + pass) * costs->machine->launch;
    add_bytes(costs, unit, &cost);
    if (is_layer && plan->shape.offload_activations)
        cost.residual = tokens * plan->config.hidden_size * costs->width;
    return cost;
}

/* --- between ranks, and the update ---------------------------------------- */

double cost_wire(const struct costs *costs, double bytes)
{
    const struct plan_machine *machine = costs->machine;
    double world = costs->plan->world, node = costs->plan->node_size;
    if (world < 2 || bytes <= 0)
        return 0;
    if (node < 1 || node > world)
        node = world;
    double nodes = world / node, share = bytes / world;
    return machine->latency * ((node - 1) + (nodes - 1)) +
           share * nodes * (node - 1) / machine->inside +
           share * (nodes - 1) / machine->between;
}

double cost_norm(const struct costs *costs)
{
    const struct job_plan *plan = costs->plan;
    /* a rank sums its shard, at stage 0 too */
    double held = (double)plan->zero.trainable_count / plan->world;
    double seconds =
            costs->rates ? at_rate(held, costs->rates->squares)
                         : held * (double)dtype_bytes(plan->zero.grad_dtype) /
                                   costs->machine->memory;
    return seconds + costs->machine->latency * (plan->world - 1);
}

/* Bytes of states for each element that this rank updates. */
static double state_width(const struct job_plan *plan)
{
    double bytes = 0, held = (double)plan->zero.trainable_count;
    if (held <= 0)
        return 0;
    bool on_disk = plan->zero.request.offload.optimizer == OFFLOAD_NVME;
    for (int m = 0; m < ARENA_MEMORIES; m++)
        if ((m == ARENA_DISK) == on_disk)
            bytes += (double)arena_plan_kind_bytes(
                    &plan->arena, (enum arena_memory)m, SPAN_OPTIMIZER);
    if (plan->zero.states_cut)
        held /= plan->world;
    return bytes / held;
}

/* Of an element: states are read and written, the gradient read, the parameter
 * written. */
static double update_bytes(const struct costs *costs)
{
    return 2 * state_width(costs->plan) +
           (double)dtype_bytes(costs->plan->zero.grad_dtype) + costs->width;
}

/* What was measured is AdamW's; another optimizer takes as long as its bytes
 * do, of AdamW's. */
static double measured_update(const struct costs *costs, double count)
{
    const struct plan_rates *rates = costs->rates;
    double width = costs->width;
    double adamw = 2 * 8 + 2 * width + (width < 4 ? 2 * 4 : 0);
    bool is_8bit =
            costs->plan->zero.request.optim.state_type == OPTIM_STATE_8BIT;
    if (is_8bit && rates->update_8bit > 0)
        return at_rate(count, rates->update_8bit);
    return at_rate(count, rates->update) * update_bytes(costs) / adamw;
}

static double update_at(
        const struct costs *costs, double count, bool is_measured,
        double bytes_per_second)
{
    if (is_measured && costs->rates && costs->rates->update > 0)
        return measured_update(costs, count);
    return count * update_bytes(costs) / bytes_per_second;
}

double cost_update(const struct costs *costs, double count)
{
    return update_at(costs, count, true, costs->machine->memory);
}

/* Where what computes makes the update too: what it may be undone from is
 * copied while it is in the cache, so memory sees the copy alone, whose lines
 * are read before they are written. On the host of a GPU no one has measured
 * what that adds, and nothing is counted. */
static double keep_old(const struct costs *costs, double count)
{
    const struct job_plan *plan = costs->plan;
    if (plan->zero.request.offload.clipping != OFFLOAD_CLIP_UNDO ||
        plan->backend != DEVICE_CPU)
        return 0;
    double bytes =
            state_width(plan) + (double)dtype_bytes(plan->zero.grad_dtype);
    return count * 2 * bytes / costs->machine->memory;
}

double cost_update_host(const struct costs *costs, double count)
{
    bool is_cpu = costs->plan->backend == DEVICE_CPU;
    return update_at(costs, count, is_cpu, costs->machine->host) +
           keep_old(costs, count);
}
