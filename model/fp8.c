#include "model/fp8.h"

#include "model/activations.h"

/* --- which ---------------------------------------------------------------- */

enum fp8_group fp8_group_of(enum role role)
{
    return role == ROLE_Q || role == ROLE_K || role == ROLE_V ? FP8_QKV
           : role == ROLE_O                                   ? FP8_O
           : role == ROLE_GATE || role == ROLE_UP             ? FP8_GATE_UP
           : role == ROLE_DOWN                                ? FP8_DOWN
                                                              : FP8_GROUPS;
}

static enum fp8_group group_of(const struct param *param)
{
    return param_is_linear(param) ? fp8_group_of(param->role) : FP8_GROUPS;
}

struct fp8_use fp8_use_of(
        const struct param_table *table, const struct model_shape *shape)
{
    struct fp8_use use = {.mode = shape->fp8};
    int out = 0;
    if (use.mode == FP8_NONE)
        return use;
    /* all tensors of a layer must begin at 16 bytes when contiguous */
    bool are_aligned = true;
    int last = table->unit_first[table->unit_count - 1];
    for (int id = table->unit_first[1]; id < last; id++)
        are_aligned &= table->params[id].count % FP8_UNIT == 0;
    for (int g = 0; g < FP8_GROUPS; g++)
        use.has[g] = are_aligned;
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        enum fp8_group g = group_of(param);
        if (g == FP8_GROUPS)
            continue;
        bool is_joined = param->joins & shape->joined;
        int rows = (int)param_out(param), columns = (int)param_in(param);
        out = is_joined ? out + rows : rows;
        use.in[g] = columns > use.in[g] ? columns : use.in[g];
        use.out[g] = out > use.out[g] ? out : use.out[g];
        use.has[g] &= rows % FP8_ALIGN == 0 && columns % FP8_ALIGN == 0;
        use.trains[g] |= param->trainable;
        use.adapts[g] |= param_has_adapter(table, id);
    }
    return use;
}

bool fp8_has(const struct fp8_use *use, const struct param *param)
{
    enum fp8_group g = group_of(param);
    return g < FP8_GROUPS && use->has[g];
}

/* --- how much ------------------------------------------------------------- */

static enum scale_layout blocks_or(
        const struct fp8_use *use, enum scale_layout blocks)
{
    return use->mode == FP8_TENSORWISE ? SCALES_TENSOR : blocks;
}

static size_t token_scales(const struct fp8_use *use, int tokens, int columns)
{
    return fp8_scale_count(
            blocks_or(use, SCALES_1X128), (size_t)tokens, (size_t)columns);
}

size_t fp8_transposed_bytes(int tokens, int in)
{
    return (size_t)in * (size_t)fp8_padded(tokens);
}

size_t fp8_transposed_scales(const struct fp8_use *use, int tokens, int in)
{
    return token_scales(use, in, fp8_padded(tokens));
}

/* The most tokens of a group's matmul: with an MLP in pieces those of a piece.
 */
static int most_tokens(
        const struct model_config *config, const struct model_shape *shape,
        enum fp8_group group)
{
    int tp = tp_size(config), pieces = shape->mlp_pieces;
    size_t train = shape->train ? place_tokens(shape, shape->B) : 0;
    size_t eval = place_tokens(shape, shape->eval_B);
    int most = (int)(train > eval ? train : eval);
    if (group < FP8_GATE_UP || pieces <= 1)
        return most;
    return (most / tp + pieces - 1) / pieces * tp;
}

/* The largest bytes and floats of an operand. */
struct room {
    size_t bytes, scales;
};

static void grow(struct room *room, size_t bytes, size_t scales)
{
    room->bytes = size_max(room->bytes, bytes);
    room->scales = size_max(room->scales, scales);
}

static struct fp8_codes take_codes(
        const struct room *room, char *base, size_t *used)
{
    return (struct fp8_codes){
            span_take(base, used, room->bytes),
            span_take(base, used, room->scales * sizeof(float))};
}

/* Makes room for W and its transpose, and for tokens with `columns` columns. */
static void grow_operands(
        const struct fp8_use *use, enum fp8_group g, int tokens,
        struct room *weight, struct room *rows)
{
    int in = use->in[g], out = use->out[g];
    enum scale_layout layout = blocks_or(use, SCALES_128X128);
    size_t count = (size_t)in * (size_t)out;
    grow(weight, count, fp8_scale_count(layout, (size_t)out, (size_t)in));
    grow(weight, count, fp8_scale_count(layout, (size_t)in, (size_t)out));
    for (int i = 0; i < 2; i++) {
        int columns = i ? out : in;
        grow(rows, (size_t)tokens * (size_t)columns,
             token_scales(use, tokens, columns));
    }
}

struct fp8_scratch fp8_scratch_at(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, char *base)
{
    struct fp8_use use = fp8_use_of(table, shape);
    struct room weight = {0}, tokens = {0}, dy = {0}, x = {0};
    struct fp8_scratch s = {0};
    if (!use.mode)
        return s;
    for (int g = 0; g < FP8_GROUPS; g++) {
        int n = most_tokens(config, shape, (enum fp8_group)g);
        if (!use.has[g])
            continue;
        grow_operands(&use, (enum fp8_group)g, n, &weight, &tokens);
        if (!use.trains[g] || !shape->train)
            continue;
        grow(&dy, fp8_transposed_bytes(n, use.out[g]),
             fp8_transposed_scales(&use, n, use.out[g]));
        grow(&x, fp8_transposed_bytes(n, use.in[g]),
             fp8_transposed_scales(&use, n, use.in[g]));
    }
    s.weight = take_codes(&weight, base, &s.bytes);
    s.tokens = take_codes(&tokens, base, &s.bytes);
    s.dy = take_codes(&dy, base, &s.bytes);
    s.x = take_codes(&x, base, &s.bytes);
    size_t units = (size_t)table->unit_count, tp = (size_t)tp_size(config);
    s.maxima = (units + 1 + tp) * FP8_GROUPS + 1;
    s.weights = span_take(base, &s.bytes, s.maxima * sizeof(float));
    if (!base)
        return s;
    s.inputs = s.weights + units * FP8_GROUPS;
    s.all = s.inputs + FP8_GROUPS;
    s.grads = s.all + tp * FP8_GROUPS;
    return s;
}
