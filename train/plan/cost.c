#include "train/plan/cost.h"

#include <math.h>

static const struct plan_rates *rates_of(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    if (!machine->rates)
        return NULL;
    return &machine->rates[plan->zero.request.dtype == DTYPE_FP32];
}

/* Seconds of so much at a rate; what was not measured costs nothing. */
static double at_rate(double much, double rate)
{
    return rate > 0 ? much / rate : 0;
}

/* --- products ------------------------------------------------------------- */

/* Where `value` lies between the points of a table, on a scale of logarithms;
 * the ends hold beyond them. */
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

/* Rates of few rows grow as the rows do: a line on a scale of logarithms. */
static double between_rates(double a, double b, double share)
{
    return a > 0 && b > 0 ? a * pow(b / a, share) : between(a, b, share);
}

static double product_rate(
        const struct plan_rates *rates, int kind, double tokens, double width)
{
    int t, w;
    double down = position(plan_rate_tokens, RATE_TOKENS, tokens, &t);
    double right = position(plan_rate_widths, RATE_WIDTHS, width, &w);
    const double(*table)[RATE_WIDTHS] = rates->products[kind];
    return between_rates(
            between_rates(table[t][w], table[t][w + 1], right),
            between_rates(table[t + 1][w], table[t + 1][w + 1], right), down);
}

static double peak_rate(
        const struct job_plan *plan, const struct plan_machine *machine,
        double tokens)
{
    double peak = plan->zero.request.dtype == DTYPE_FP32 ? machine->products_32
                                                         : machine->products_16;
    return peak * tokens / (tokens + machine->half_tokens);
}

/* Of a weight with so many rows: no faster than the weight is read, or its
 * gradient written. */
static double product_seconds(
        const struct job_plan *plan, const struct plan_machine *machine,
        const struct param *param, int kind, double tokens)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    double count = (double)param->count, flops = 2 * count * tokens;
    double width = sqrt((double)param->shape[0] * (double)param->shape[1]);
    double bytes = count * (double)(kind == RATE_WEIGHTS
                                            ? sizeof(float)
                                            : dtype_bytes(
                                                      plan->zero.request.dtype));
    double rate = rates ? product_rate(rates, kind, tokens, width)
                        : peak_rate(plan, machine, tokens);
    return fmax(at_rate(flops, rate), bytes / machine->memory);
}

/* What a weight's products cost, in so many pieces of the tokens: forward one,
 * backward one for its input and, where it trains, one for itself. */
static void add_weight(
        const struct job_plan *plan, const struct plan_machine *machine,
        const struct param *param, double tokens, double pieces,
        struct unit_cost *cost)
{
    double seconds[RATE_PRODUCTS];
    for (int kind = 0; kind < RATE_PRODUCTS; kind++)
        seconds[kind] =
                pieces *
                product_seconds(plan, machine, param, kind, tokens / pieces);
    cost->forward += seconds[RATE_FORWARD];
    cost->backward += seconds[RATE_BACKWARD];
    if (param->trainable)
        cost->backward += seconds[RATE_WEIGHTS];
}

/* Two products of an adapter, thin on one side. */
static void add_adapter(
        const struct job_plan *plan, const struct plan_machine *machine, int id,
        double tokens, struct unit_cost *cost)
{
    const struct param_table *table = &plan->table;
    const struct plan_rates *rates = rates_of(plan, machine);
    const struct param *a = &table->params[table->adapters[id].a],
                       *b = &table->params[table->adapters[id].b];
    double flops = 2 * ((double)a->count + (double)b->count) * tokens;
    if (!rates || !(rates->adapter[RATE_FORWARD] > 0)) {
        add_weight(plan, machine, a, tokens, 1, cost);
        add_weight(plan, machine, b, tokens, 1, cost);
        return;
    }
    cost->forward += at_rate(flops, rates->adapter[RATE_FORWARD]);
    cost->backward += at_rate(2 * flops, rates->adapter[RATE_BACKWARD]);
}

static bool is_adapters(const struct param_table *table, int unit, int id)
{
    for (int i = table->unit_first[unit]; i < table->unit_first[unit + 1]; i++)
        if (param_has_adapter(table, i) &&
            (table->adapters[i].a == id || table->adapters[i].b == id))
            return true;
    return false;
}

/* A weight in codes is decoded for each product: read, and written as elements,
 * whole or in strips. */
static void add_decoding(
        const struct job_plan *plan, const struct plan_machine *machine, int id,
        struct unit_cost *cost)
{
    size_t count = plan->table.params[id].count;
    size_t bytes = param_code_bytes(&plan->table, id, count) +
                   count * dtype_bytes(plan->zero.request.dtype);
    cost->forward += (double)bytes / machine->memory;
    cost->backward += (double)bytes / machine->memory;
}

/* --- the rest of a layer -------------------------------------------------- */

static void add_attention(
        const struct job_plan *plan, const struct plan_machine *machine,
        double tokens, struct unit_cost *cost)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    const struct model_config *config = &plan->config;
    double flops =
            2.0 * plan->shape.T * config->heads * config->head_dim * tokens;
    if (!rates) {
        cost->forward += flops / peak_rate(plan, machine, tokens);
        cost->backward += 2 * flops / peak_rate(plan, machine, tokens);
        return;
    }
    int low;
    double share =
            position(plan_rate_lengths, RATE_LENGTHS, plan->shape.T, &low);
    cost->forward += at_rate(
            flops, between(rates->attention[RATE_FORWARD][low],
                           rates->attention[RATE_FORWARD][low + 1], share));
    cost->backward +=
            at_rate(2 * flops,
                    between(rates->attention[RATE_BACKWARD][low],
                            rates->attention[RATE_BACKWARD][low + 1], share));
}

/* Norms, rotations, activations, sums: elements that pass through memory. */
static void add_elements(
        const struct job_plan *plan, const struct plan_machine *machine,
        double tokens, struct unit_cost *cost)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    const struct model_config *config = &plan->config;
    double C = config->hidden_size, I = config->intermediate_size;
    double width = (double)dtype_bytes(plan->zero.request.dtype);
    if (!rates) {
        double seconds = (20 * C + 6 * I) * tokens * width / machine->memory;
        cost->forward += seconds;
        cost->backward += 2 * seconds;
        return;
    }
    double rotated = config->family->rotary
                             ? (double)(config->heads + config->kv_heads) *
                                       config->head_dim
                             : 0;
    double same = at_rate(2 * C * tokens, rates->add) +
                  at_rate(rotated * tokens, rates->rope);
    cost->forward += same + at_rate(2 * C * tokens, rates->norm[0]) +
                     at_rate(I * tokens, rates->activation[0]);
    cost->backward += same + at_rate(2 * C * tokens, rates->norm[1]) +
                      at_rate(I * tokens, rates->activation[1]);
    cost->output += at_rate(C * tokens, rates->add);
}

/* What operations that follow each other take beyond each by itself. */
static void add_whole(
        const struct job_plan *plan, const struct plan_machine *machine,
        struct unit_cost *cost)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    if (!rates || !(rates->whole[RATE_FORWARD] > 0))
        return;
    cost->output *= rates->whole[RATE_FORWARD];
    cost->forward *= rates->whole[RATE_FORWARD];
    cost->forward += rates->begin[RATE_FORWARD];
    cost->backward *= rates->whole[RATE_BACKWARD];
    cost->backward += rates->begin[RATE_BACKWARD];
}

/* How often the head's weight is used for a micro-batch. What tables say of few
 * rows is of whole trainings, by programs that do not cut it. */
static double head_pieces(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    if (!machine->rates)
        return 1;
    int chunk = model_head_chunk(&plan->config, &plan->table, &plan->shape);
    return ceil((double)plan->shape.B * plan->shape.T / chunk);
}

/* The final norm, all logits, and the loss of each. */
static void add_head(
        const struct job_plan *plan, const struct plan_machine *machine,
        double tokens, double pieces, struct unit_cost *cost)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    const struct model_config *config = &plan->config;
    double logits = tokens * config->vocab_size;
    if (config->tied) {
        const struct param tied = {
                .shape = {config->vocab_size, config->hidden_size},
                .count = (size_t)config->vocab_size *
                         (size_t)config->hidden_size,
                .trainable = plan->table.params[0].trainable};
        add_weight(plan, machine, &tied, tokens, pieces, cost);
    }
    if (rates)
        cost->forward += at_rate(logits, rates->loss) +
                         at_rate(tokens * config->hidden_size, rates->norm[0]) +
                         at_rate(tokens * config->hidden_size, rates->norm[1]);
    else
        cost->forward += 3 * logits *
                         (double)dtype_bytes(plan->zero.request.dtype) /
                         machine->memory;
    cost->forward += cost->backward;
    cost->backward = 0;
}

/* --- a unit --------------------------------------------------------------- */

static void add_bytes(
        const struct job_plan *plan, int unit, struct unit_cost *cost)
{
    const struct zero_plan *zero = &plan->zero;
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
static double round_seconds(
        const struct job_plan *plan, const struct plan_machine *machine,
        int unit)
{
    double grads = (double)zero_rounded_count(&plan->zero, unit);
    const struct plan_rates *rates = rates_of(plan, machine);
    enum dtype type = plan->zero.grad_dtype;
    if (type == DTYPE_FP32)
        return 0;
    if (rates)
        return at_rate(grads, rates->round);
    return grads * (double)(sizeof(float) + dtype_bytes(type)) /
           machine->memory;
}

struct unit_cost cost_unit(
        const struct job_plan *plan, const struct plan_machine *machine,
        int unit)
{
    const struct param_table *table = &plan->table;
    double tokens = (double)plan->shape.B * plan->shape.T;
    double width = (double)dtype_bytes(plan->zero.request.dtype);
    bool is_head = unit == table->unit_count - 1;
    bool is_layer = unit > 0 && !is_head;
    double pieces = is_head ? head_pieces(plan, machine) : 1;
    struct unit_cost cost = {0};
    for (int id = table->unit_first[unit];
         id < table->unit_first[unit + 1] && unit > 0; id++) {
        const struct param *param = &table->params[id];
        double before = cost.forward;
        bool is_weight = param->dims == 2 && !is_adapters(table, unit, id);
        if (is_weight)
            add_weight(plan, machine, param, tokens, pieces, &cost);
        if (param_in_codes(table, id))
            add_decoding(plan, machine, id, &cost);
        if (is_weight)
            cost.output = cost.forward - before; /* the last one's stays */
        if (param_has_adapter(table, id))
            add_adapter(plan, machine, id, tokens, &cost);
    }
    if (is_layer) {
        add_attention(plan, machine, tokens, &cost);
        double products = cost.forward;
        add_elements(plan, machine, tokens, &cost);
        cost.again = cost.forward - products;
        add_whole(plan, machine, &cost);
    } else if (is_head) {
        add_head(plan, machine, tokens, pieces, &cost);
    } else {
        double seconds =
                tokens * plan->config.hidden_size * width / machine->memory;
        const struct param *rows = &table->params[0];
        cost.forward = seconds;
        cost.backward = 2 * seconds;
        if (rows->trainable &&
            !plan->config.tied) /* cleared; else the head's */
            cost.backward +=
                    (double)(rows->count * sizeof(float)) / machine->memory;
    }
    cost.forward += machine->launch;
    cost.backward += 2 * machine->launch;
    add_bytes(plan, unit, &cost);
    cost.round = round_seconds(plan, machine, unit);
    if (is_layer && plan->shape.offload_activations)
        cost.residual = tokens * plan->config.hidden_size * width;
    return cost;
}

/* --- between ranks, and the update ---------------------------------------- */

double cost_wire(
        const struct job_plan *plan, const struct plan_machine *machine,
        double bytes)
{
    double world = plan->world, node = plan->node_size;
    if (plan->world < 2 || bytes <= 0)
        return 0;
    if (node < 1 || node > world)
        node = world;
    double nodes = world / node, share = bytes / world;
    return machine->latency * ((node - 1) + (nodes - 1)) +
           share * nodes * (node - 1) / machine->inside +
           share * (nodes - 1) / machine->between;
}

double cost_norm(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    double held = (double)plan->zero.trainable_count;
    if (plan->world > 1)
        held /= plan->world; /* a rank sums its shard, at stage 0 too */
    double seconds = rates ? at_rate(held, rates->squares)
                           : held * (double)dtype_bytes(plan->zero.grad_dtype) /
                                     machine->memory;
    return seconds + machine->latency * (plan->world - 1);
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

/* States are read and written, gradients read, parameters written. */
static double update_bytes(const struct job_plan *plan)
{
    return 2 * state_width(plan) + (double)dtype_bytes(plan->zero.grad_dtype) +
           (double)dtype_bytes(plan->zero.request.dtype);
}

/* What was measured is AdamW's; another optimizer takes as long as its bytes
 * do, of AdamW's. */
static double measured_update(
        const struct job_plan *plan, const struct plan_rates *rates,
        double count)
{
    double width = (double)dtype_bytes(plan->zero.request.dtype);
    double adamw = 2 * 8 + 2 * width + (width < 4 ? 2 * 4 : 0);
    bool is_8bit = plan->zero.request.optim.state_type == OPTIM_STATE_8BIT;
    if (is_8bit && rates->update_8bit > 0)
        return at_rate(count, rates->update_8bit);
    return at_rate(count, rates->update) * update_bytes(plan) / adamw;
}

double cost_update(
        const struct job_plan *plan, const struct plan_machine *machine,
        double count)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    if (rates && rates->update > 0)
        return measured_update(plan, rates, count);
    return count * update_bytes(plan) / machine->memory;
}

/* Where what computes makes the update too: what it may be undone from is
 * copied while it is in the cache, so memory sees the copy alone, whose lines
 * are read before they are written. On a host beside a GPU nobody has measured
 * what that adds, and nothing is counted. */
static double keep_old(
        const struct job_plan *plan, const struct plan_machine *machine,
        double count)
{
    if (plan->zero.request.offload.clipping != OFFLOAD_CLIP_UNDO ||
        plan->backend != DEVICE_CPU)
        return 0;
    double bytes =
            state_width(plan) + (double)dtype_bytes(plan->zero.grad_dtype);
    return count * 2 * bytes / machine->memory;
}

double cost_update_host(
        const struct job_plan *plan, const struct plan_machine *machine,
        double count)
{
    const struct plan_rates *rates = rates_of(plan, machine);
    double keep = keep_old(plan, machine, count);
    if (rates && rates->update > 0 && plan->backend == DEVICE_CPU)
        return measured_update(plan, rates, count) + keep;
    return count * update_bytes(plan) / machine->host + keep;
}
