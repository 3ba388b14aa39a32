#include "train/plan/cost.h"

#include "model/config_keys.h"

#include <math.h>

/* Counts elements that keep fp32 states in a job with narrow ones: embeddings,
 * and small tensors. */
static void note_wide(struct costs *costs)
{
    const struct zero_request *request = &costs->plan->zero.request;
    bool on_host = costs->plan->zero.states_on_host;
    bool is_bare = request->optim.master == OPTIM_MASTER_NONE;
    double master = is_bare ? 2 : 4, wide = 0, all = 0;
    if (!on_host && (is_bare || request->dtype == DTYPE_FP32))
        master = 0; /* the parameters are fp32 */
    if (request->optim.state_type == OPTIM_STATE_FP32)
        return;
    for (int id = 0; id < request->table->count; id++) {
        const struct param *param = &request->table->params[id];
        struct optim_layout layout = zero_layout_of(&costs->plan->zero, id);
        all += param->trainable ? (double)param->count : 0;
        if (layout.lane[OPTIM_M] != OPTIM_FP32)
            continue;
        wide += (double)param->count;
        costs->wide_width =
                master + (layout.lane[OPTIM_V] == OPTIM_FP32 ? 8 : 4);
    }
    costs->wide = wide < all ? wide / all : 0;
}

struct costs costs_of(
        const struct job_plan *plan, const struct plan_machine *machine)
{
    enum dtype type = plan->zero.request.dtype;
    struct costs costs = {
            .plan = plan,
            .fp8 = fp8_use_of(plan_slice_table(plan), &plan->shape),
            .machine = machine,
            .type = type == DTYPE_FP32,
            .width = (double)dtype_bytes(type)};
    note_wide(&costs);
    return costs;
}

/* Seconds to read or write elements of the compute type `moves` times. */
static double move_seconds(
        const struct costs *costs, double moves, double elements)
{
    return moves * elements * costs->width / costs->machine->memory;
}

/* --- matmuls -------------------------------------------------------------- */

/* FLOP/s with `tokens` rows: the time is linear in rows. */
static double product_rate(const struct costs *costs, double tokens)
{
    const struct plan_machine *machine = costs->machine;
    return machine->products[costs->type] * tokens /
           (tokens + machine->half[costs->type]);
}

/* Seconds of a matmul, `times` as fast as in 16 bits, but at least the time to
 * read its weight, or write its gradient, with `width` bytes per element. */
static double product_seconds(
        const struct costs *costs, const struct param *param, double times,
        double width, double tokens)
{
    double count = (double)param->count;
    return fmax(
            2 * count * tokens / (times * product_rate(costs, tokens)),
            count * width / costs->machine->memory);
}

/* Seconds to cast the operands of an FP8 matmul, forward or backward: a weight
 * in one orientation, dy in both, x once for all projections of it. Tensorwise,
 * operands are also read for amax, except the weight in backward. */
static double cast_seconds(
        const struct costs *costs, const struct param *param, double tokens,
        int pass)
{
    bool is_first = param->role == ROLE_Q || param->role == ROLE_O ||
                    param->role == ROLE_GATE || param->role == ROLE_DOWN;
    double amax = costs->fp8.mode == FP8_TENSORWISE ? costs->width : 0;
    double one = costs->width + 1 + (pass == PASS_FORWARD ? amax : 0);
    double both = costs->width + 2 + amax;
    double in = (double)param_in(param), out = (double)param_out(param);
    double columns = pass == PASS_BACKWARD ? out : is_first ? in : 0;
    double bytes = (double)param->count * one + tokens * columns * both;
    return bytes / costs->machine->memory;
}

/* Adds a weight's matmuls, with the tokens in `pieces`: forward one, backward
 * one for its input and, if it trains, one for its gradient. */
static void add_weight(
        const struct costs *costs, const struct param *param, double tokens,
        double pieces, struct unit_cost *cost)
{
    bool is_fp8 = fp8_has(&costs->fp8, param);
    double measured = costs->machine->fp8[costs->fp8.mode == FP8_BLOCKWISE];
    double times = is_fp8 && measured > 0 ? measured : 1;
    double each = tokens / pieces, width = is_fp8 ? 1 : costs->width;
    double one = product_seconds(costs, param, times, width, each);
    for (int pass = 0; pass < PASSES; pass++)
        cost->pass[pass] +=
                pieces *
                (is_fp8 ? one + cast_seconds(costs, param, each, pass) : one);
    if (param->trainable)
        cost->pass[PASS_BACKWARD] +=
                pieces *
                (is_fp8 ? one
                        : product_seconds(
                                  costs, param, 1, sizeof(float), each));
}

/* Seconds to decode a quantized weight for a matmul: reads codes, writes
 * elements. */
static double decode_seconds(const struct costs *costs, int id)
{
    const struct param_table *table = plan_slice_table(costs->plan);
    size_t count = table->params[id].count;
    return ((double)param_code_bytes(table, id, count) +
            (double)count * costs->width) /
           costs->machine->memory;
}

/* --- units ---------------------------------------------------------------- */

static bool is_tiled(const struct costs *costs)
{
    return costs->plan->shape.mlp_pieces > 1;
}

/* Adds attention, norms, activations and sums. */
static void add_layer(
        const struct costs *costs, int layer, double tokens,
        struct unit_cost *cost)
{
    const struct model_config *config = plan_slice_config(costs->plan);
    double C = config->hidden_size, I = config->intermediate_size;
    double share = tokens / costs->plan->mesh.tp;
    double norms = move_seconds(costs, (NORM_MOVES + ADD_MOVES) * C, share);
    double mlp = norms + move_seconds(costs, ACTIVATION_MOVES * I, tokens);
    double length = layer_seen_twice(config, layer, costs->plan->shape.T);
    double flops = 2.0 * length * config->heads * config->head_dim * tokens;
    cost->recompute = norms + mlp;
    for (int pass = 0; pass < PASSES; pass++)
        cost->pass[pass] += (1 + pass) * (flops / product_rate(costs, tokens) +
                                          cost->recompute);
    if (!is_tiled(costs))
        return;
    cost->recompute = norms;
    cost->pieces += mlp;
    cost->output += mlp;
}

/* How often a micro-batch uses the weight of the head or an MLP. For machines
 * of the table 1: their rates with few rows come from whole trainings by
 * programs that do not cut it. */
static double pieces_of(const struct costs *costs, int unit, bool is_mlp)
{
    const struct job_plan *plan = costs->plan;
    bool is_head = unit == plan->table.unit_count - 1;
    if (!costs->machine->is_measured || !(is_head || is_mlp))
        return 1;
    if (is_mlp)
        return plan->shape.mlp_pieces;
    int chunk = model_head_chunk(
            plan_slice_config(plan), plan_slice_table(plan), &plan->shape);
    return ceil((double)place_tokens(&plan->shape, plan->shape.B) / chunk);
}

/* Adds all logits and their losses. */
static void add_head(
        const struct costs *costs, double tokens, double pieces,
        struct unit_cost *cost)
{
    const struct model_config *config = plan_slice_config(costs->plan);
    if (config->tied) {
        const struct param tied = {
                .shape = {config->vocab_size, config->hidden_size},
                .count = (size_t)config->vocab_size *
                         (size_t)config->hidden_size,
                .trainable =
                        plan_slice_table(costs->plan)->params[0].trainable};
        add_weight(costs, &tied, tokens, pieces, cost);
    }
    cost->pass[PASS_FORWARD] +=
            move_seconds(costs, LOSS_MOVES, tokens * config->vocab_size);
    cost->pass[PASS_FORWARD] += cost->pass[PASS_BACKWARD];
    cost->pass[PASS_BACKWARD] = 0;
}

/* Adds reading rows and adding their gradients; a tied gradient is cleared with
 * the head's. */
static void add_embedding(
        const struct costs *costs, double tokens, struct unit_cost *cost)
{
    const struct param *rows = &plan_slice_table(costs->plan)->params[0];
    double memory = costs->machine->memory;
    double seconds =
            tokens * costs->plan->config.hidden_size * costs->width / memory;
    cost->pass[PASS_FORWARD] = seconds;
    cost->pass[PASS_BACKWARD] = 2 * seconds;
    if (rows->trainable && !costs->plan->config.tied)
        cost->pass[PASS_BACKWARD] +=
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
        cost->gather += bytes;
        if (!segment->trainable)
            continue;
        if (!zero->params_cut)
            cost->spread += bytes;
        if (zero->states_cut && !zero->params_on_host)
            cost->rejoin += bytes / zero->shards;
        cost->grads += (double)segment->count;
        double held =
                (double)(zero->states_cut ? segment->part_count : segment->count);
        cost->update += held;
        cost->early += i >= zero->undo_first ? held : 0;
    }
}

/* Seconds to round gradients that are computed in fp32 to a narrower type. */
static double round_seconds(const struct costs *costs, int unit)
{
    const struct zero_plan *zero = &costs->plan->zero;
    double grads = (double)zero_rounded_count(zero, unit);
    if (zero->grad_dtype == DTYPE_FP32)
        return 0;
    return grads * (double)(sizeof(float) + dtype_bytes(zero->grad_dtype)) /
           costs->machine->memory;
}

/* Adds gathers and scatters of all tokens between places of tensor parallelism.
 */
static void add_exchange(
        const struct costs *costs, bool is_layer, bool is_head, double tokens,
        struct unit_cost *cost)
{
    enum { FORWARD = 4, BACKWARD = 6, HEAD = 2 }; /* per layer; of the head */
    double bytes = tokens * costs->plan->config.hidden_size * costs->width;
    double one = cost_wire(costs, ZERO_TP, bytes);
    cost->exchange[PASS_FORWARD] = one * (is_layer  ? FORWARD
                                          : is_head ? HEAD
                                                    : 1);
    cost->exchange[PASS_BACKWARD] = one * (is_layer  ? BACKWARD
                                           : is_head ? 0
                                                     : 1);
}

/* Adds exchanges of all keys and values between places of context parallelism;
 * a gather to recompute the end of a segment also serves its backward. */
static void add_keys(const struct costs *costs, struct unit_cost *cost)
{
    const struct job_plan *plan = costs->plan;
    const struct model_config *config = plan_slice_config(plan);
    double kv = 2.0 * kv_heads_used(config) * config->head_dim * costs->width;
    double one = cost_wire(
            costs, ZERO_CP, kv * plan->shape.B * (double)plan->shape.T);
    int segment =
            checkpointing_segment(plan->shape.checkpointing, config->layers);
    cost->exchange[PASS_FORWARD] += one;
    cost->exchange[PASS_BACKWARD] += one * (segment ? 2 - 1.0 / segment : 2);
}

/* Adds exchanges of heads: q, k, v and attention's output; in backward their
 * gradients. */
static void add_heads(const struct costs *costs, struct unit_cost *cost)
{
    const struct job_plan *plan = costs->plan;
    const struct model_config *config = plan_slice_config(plan);
    double head = config->head_dim * costs->width *
                  (double)place_tokens(&plan->shape, plan->shape.B);
    double one = cost_exchange(
            costs, ZERO_CP, head * (config->heads + 2 * config->kv_heads));
    double output = cost_exchange(costs, ZERO_CP, head * config->heads);
    cost->exchange[PASS_FORWARD] += one + output;
    cost->exchange[PASS_BACKWARD] += one + output;
    if (cp_sends_output_again(&plan->shape))
        cost->exchange[PASS_BACKWARD] += output;
}

struct unit_cost cost_unit(const struct costs *costs, int unit)
{
    const struct job_plan *plan = costs->plan;
    const struct param_table *table = plan_slice_table(plan);
    double tokens = (double)place_tokens(&plan->shape, plan->shape.B);
    bool is_head = unit == table->unit_count - 1;
    bool is_layer = unit > 0 && !is_head;
    bool has_post2 = family_has(plan->config.family, ROLE_POST2);
    struct unit_cost cost = {.round = round_seconds(costs, unit)};
    for (int id = table->unit_first[unit];
         id < table->unit_first[unit + 1] && unit > 0; id++) {
        const struct param *param = &table->params[id];
        double before = cost.pass[PASS_FORWARD];
        bool is_weight = param->dims == 2 && param->part == PARAM_BASE;
        bool is_mlp = param_is_mlp(param);
        if (is_weight)
            add_weight(
                    costs, param, tokens, pieces_of(costs, unit, is_mlp),
                    &cost);
        bool decodes =
                param_is_quantized(table, id) && !plan_multiplies_codes(plan);
        for (int pass = 0; decodes && pass < PASSES; pass++)
            cost.pass[pass] += decode_seconds(costs, id) *
                               (is_mlp ? plan->shape.mlp_pieces : 1);
        if (is_weight && !is_tiled(costs)) /* the last layer keeps its own */
            cost.output = cost.pass[PASS_FORWARD] - before;
        if (param_has_adapter(table, id)) {
            const struct adapter *adapter = &table->adapters[id];
            add_weight(costs, &table->params[adapter->a], tokens, 1, &cost);
            add_weight(costs, &table->params[adapter->b], tokens, 1, &cost);
        }
        if (!is_mlp || !is_tiled(costs))
            continue;
        double seconds = cost.pass[PASS_FORWARD] - before;
        cost.output += seconds;
        if (param->role < ROLE_DOWN || has_post2)
            cost.pieces += seconds;
    }
    if (is_layer)
        add_layer(costs, unit, tokens, &cost);
    else if (is_head)
        add_head(costs, tokens, pieces_of(costs, unit, false), &cost);
    else
        add_embedding(costs, tokens, &cost);
    for (int pass = 0; pass < PASSES; pass++)
        cost.pass[pass] += (1 + pass) * costs->machine->launch;
    add_exchange(costs, is_layer, is_head, tokens, &cost);
    if (is_layer && cp_by_heads(&plan->shape))
        add_heads(costs, &cost);
    else if (is_layer)
        add_keys(costs, &cost);
    add_bytes(costs, unit, &cost);
    if (is_layer && plan->shape.offload_activations)
        cost.residual = tokens / plan->mesh.tp * plan->config.hidden_size *
                        costs->width;
    return cost;
}

void cost_multiply(struct unit_cost *cost, double micros)
{
    double *const each[] = {
            &cost->pass[PASS_FORWARD],
            &cost->pass[PASS_BACKWARD],
            &cost->recompute,
            &cost->pieces,
            &cost->output,
            &cost->residual,
            &cost->exchange[PASS_FORWARD],
            &cost->exchange[PASS_BACKWARD]};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        *each[i] *= micros;
}

/* --- between ranks, and the update ---------------------------------------- */

/* Ranks of a group that share a node. */
static double node_of(const struct costs *costs, enum zero_group group)
{
    const struct job_plan *plan = costs->plan;
    double ranks = zero_group_size(plan->mesh, group);
    double node = plan->node_sizes[group];
    if (node < 1 || node > ranks)
        node = ranks;
    if (node == ranks && ranks < plan->world && !plan->is_within[group])
        node = 1; /* a single level, over the network */
    return node;
}

double cost_exchange(
        const struct costs *costs, enum zero_group group, double bytes)
{
    const struct plan_machine *machine = costs->machine;
    double ranks = zero_group_size(costs->plan->mesh, group);
    double node = node_of(costs, group), part = bytes / ranks;
    if (ranks < 2 || bytes <= 0)
        return 0;
    return machine->latency * (ranks - 1) +
           part * (node - 1) / machine->inside +
           part * (ranks - node) / machine->between;
}

double cost_wire(const struct costs *costs, enum zero_group group, double bytes)
{
    const struct plan_machine *machine = costs->machine;
    double ranks = zero_group_size(costs->plan->mesh, group);
    double node = node_of(costs, group);
    if (ranks < 2 || bytes <= 0)
        return 0;
    double nodes = ranks / node, share = bytes / ranks;
    return machine->latency * ((node - 1) + (nodes - 1)) +
           share * nodes * (node - 1) / machine->inside +
           share * (nodes - 1) / machine->between;
}

double cost_norm(const struct costs *costs)
{
    const struct job_plan *plan = costs->plan;
    /* a rank sums its shard, also at stage 0 */
    double held = (double)plan->zero.trainable_count / mesh_parts(plan->mesh);
    return held * (double)dtype_bytes(plan->zero.grad_dtype) /
                   costs->machine->memory +
           costs->machine->latency * (plan->world - 1);
}

double cost_held(const struct job_plan *plan)
{
    double count = (double)plan->zero.trainable_count;
    return plan->zero.states_cut ? count / mesh_parts(plan->mesh) : count;
}

double cost_state_width(const struct job_plan *plan)
{
    double bytes = 0;
    if (!plan->zero.trainable_count)
        return 0;
    bool on_disk = plan->zero.request.offload.optimizer == OFFLOAD_NVME;
    for (int m = 0; m < ARENA_MEMORIES; m++)
        if ((m == ARENA_DISK) == on_disk)
            bytes += (double)arena_plan_kind_bytes(
                    &plan->arena, (enum arena_memory)m, SPAN_OPTIMIZER);
    return bytes / cost_held(plan);
}

double cost_slot_width(const struct job_plan *plan)
{
    const struct zero_request *request = &plan->zero.request;
    return request->accumulate_on_host ? sizeof(float)
                                       : (double)dtype_bytes(request->dtype);
}

/* Seconds per element: reads and writes states, reads the gradient, writes the
 * parameter, with separate rates for narrow and fp32 states. */
static double update_seconds(
        const struct costs *costs, const double *rates, double grad)
{
    int kind = plan_update_kind(&costs->plan->zero.request.optim);
    double width = cost_state_width(costs->plan), moved = grad + costs->width;
    double narrow =
            (width - costs->wide * costs->wide_width) / (1 - costs->wide);
    return (1 - costs->wide) * (2 * narrow + moved) / rates[kind] +
           costs->wide * (2 * costs->wide_width + moved) / rates[kind % 2];
}

double cost_update(const struct costs *costs, double count)
{
    double grad = (double)dtype_bytes(costs->plan->zero.grad_dtype);
    return count * update_seconds(costs, costs->machine->update, grad);
}

/* Old values for undo are copied while they are in the cache, with writes that
 * bypass it, so a GPU's host memory only sees writes. A core of the CPU device
 * does such writes at half its normal rate. */
static double keep_old(const struct costs *costs, double count)
{
    const struct job_plan *plan = costs->plan;
    double bytes = count * (cost_state_width(plan) + cost_slot_width(plan));
    return plan->backend == DEVICE_CPU ? 2 * bytes / costs->machine->memory
                                       : cost_host_moves(costs, bytes);
}

double cost_update_host(const struct costs *costs, double count, bool is_early)
{
    double grad = cost_slot_width(costs->plan);
    return count * update_seconds(costs, costs->machine->host, grad) +
           (is_early ? keep_old(costs, count) : 0);
}

double cost_host_moves(const struct costs *costs, double bytes)
{
    double most = 0; /* the kind with the least arithmetic */
    for (int kind = 0; kind < PLAN_UPDATES; kind++)
        most = fmax(most, costs->machine->host[kind]);
    return bytes / most;
}
