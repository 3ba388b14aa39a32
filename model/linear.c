#include "base/number/rng.h"
#include "model/internal.h"

#include <assert.h>

/* Adds the adapter of weight `id`, whose output begins in column `first`. */
static void add_adapter(
        struct linear *linear, int id, int first, void *low, float *gains)
{
    const struct model *model = linear->model;
    const struct param_table *table = model->table;
    size_t gains_before = 0, low_before = 0;
    if (!param_has_adapter(table, id))
        return;
    const struct adapter *adapter = &table->adapters[id];
    /* arrays of a unit's adapters have the order of the table */
    for (int i = table->unit_first[table->params[id].unit]; i < id; i++) {
        const struct adapter *other = &table->adapters[i];
        low_before += (size_t)other->r;
        if (other->r && other->magnitude >= 0)
            gains_before += 2 * table->params[other->magnitude].count;
    }
    assert(linear->adapter_count < LINEAR_PARTS);
    struct adapter_view *view = &linear->adapters[linear->adapter_count++];
    *view = (struct adapter_view){
            .a = model->params[adapter->a],
            .b = model->params[adapter->b],
            .da = model->grads[adapter->a],
            .db = model->grads[adapter->b],
            .r = adapter->r,
            .first = first,
            .out = (int)table->params[adapter->b].shape[0],
            .scale = adapter->scale,
            .u = (char *)low + low_before * (size_t)linear->N *
                                       dtype_bytes(model->kernels->dtype),
            .stream = rng_stream(table->params[id].name)};
    const struct param_slice *slice = &table->params[adapter->a].slice;
    if (slice->range_count) {
        view->columns = (int)slice->shape[1];
        view->before = (int)slice->ranges[0].whole;
    }
    if (adapter->magnitude < 0)
        return;
    view->change = model->params[adapter->magnitude];
    view->dmagnitude = model->grads[adapter->magnitude];
    view->gain = gains + gains_before;
    view->inverse = view->gain + view->out;
    linear->is_dora = true;
}

/* Append weight `id` to the view. */
static void add_weight(
        const struct model *model, int id, struct weight_view *view)
{
    const struct param_table *table = model->table;
    if (!param_is_quantized(table, id)) {
        view->values = view->values ? view->values : model->params[id];
        return;
    }
    assert(view->part_count < LINEAR_PARTS);
    view->parts[view->part_count++] = (struct codes_view){
            .codes = model->params[id],
            .scales = model->params[param_scales(table, id)],
            .matrix = &table->codes[id]};
}

static enum dtype grad_type(const struct model *model, int id)
{
    const struct param *param = &model->table->params[id];
    return param_is_product(param, model->shape.mlp_pieces)
                   ? model->product_grads
                   : DTYPE_FP32;
}

/* Does tensor `id` begin where the one before it ends, and its gradient too?
 * Quantized tensors do after decoding. */
static bool goes_on(const struct model *model, int id)
{
    size_t count = model->table->params[id - 1].count;
    const char *before = model->params[id - 1];
    const char *grad = model->grads[id - 1];
    size_t wide = dtype_bytes(grad_type(model, id - 1));
    if (param_is_quantized(model->table, id))
        return param_is_quantized(model->table, id - 1);
    return model->params[id] ==
                   before + count * dtype_bytes(model->kernels->dtype) &&
           model->grads[id] == (grad ? grad + count * wide : NULL);
}

struct linear layer_linear(
        const struct layer_run *run, enum role first, enum role last)
{
    const struct model *model = run->model;
    const struct param *params = model->table->params;
    int id = role_id(model, run->layer, first);
    int bias = role_id(model, run->layer, first + 1);
    int end = role_id(model, run->layer, last) + 1;
    struct linear linear = {
            .model = model,
            .pass = run->pass,
            .bias = bias < 0 ? NULL : model->params[bias],
            .dweight = model->grads[id],
            .dbias = bias < 0 ? NULL : model->grads[bias],
            .grad_type = grad_type(model, id),
            .y_dtype = model->kernels->dtype,
            .in = (int)param_in(&params[id]),
            .N = run->pass->N,
            .first_row = run->pass->first_row,
            .accumulate = run->accumulate,
            .conv1d =
                    params[id].conv1d && !param_is_quantized(model->table, id),
    };
    /* the inputs of these are cut, so each place computes a term of the
     * outputs; the first place adds the bias */
    if (model->config->tp.place > 0 && (first == ROLE_O || first == ROLE_DOWN))
        linear.bias = linear.dbias = NULL;
    linear.layer = run->layer;
    linear.group = fp8_group_of(first);
    linear.is_fp8 = model->fp8_use.has[linear.group] && !run->pass->decode;
    if (linear.is_fp8) {
        float *amax = run->acts->x_amax ? run->acts->x_amax : model->fp8.inputs;
        linear.xt = run->acts->xt[linear.group];
        linear.x_amax = amax + linear.group;
    }
    for (int i = id; i < end; i++) {
        assert(i == id || goes_on(model, i));
        assert(i == id || bias < 0 || goes_on(model, bias + i - id));
        add_weight(model, i, &linear.weight);
        add_adapter(&linear, i, linear.out, run->acts->low, run->acts->gains);
        linear.out += (int)param_out(&params[i]);
    }
    linear.columns = linear.out;
    return linear;
}

struct linear head_linear(
        const struct model *model, const struct pass *pass, int first_row,
        int N, bool accumulate)
{
    const struct head_acts *acts = &pass->acts->head;
    struct linear linear = {
            .model = model,
            .pass = pass,
            .weight = {.values = model->params[model->head]},
            .dweight = model->grads[model->head],
            .y_dtype = acts->logits_dtype,
            .in = model->config->hidden_size,
            .out = acts->stride,
            .columns = model->config->vocab_size,
            .N = N,
            .first_row = first_row,
            .accumulate = accumulate};
    if (!model->config->tied)
        add_adapter(&linear, model->head, 0, acts->low, acts->gains);
    return linear;
}

/* --- operands ------------------------------------------------------------- */

/* The stride of rows of logits if they have gaps; else 0. */
static int gaps(const struct linear *linear)
{
    return linear->columns < linear->out ? linear->out : 0;
}

static struct matmul_operand rows_of(
        const struct linear *linear, const void *rows, bool back)
{
    return (struct matmul_operand){
            rows, linear->model->kernels->dtype, false,
            back ? gaps(linear) : 0};
}

/* m->out [+]= m->a W, or with `back` m->a W^T. */
static enum zd_status multiply(
        const struct linear *linear, bool back, struct matmul *m)
{
    const struct kernels *k = linear->model->kernels;
    m->M = linear->N;
    m->N = back ? linear->in : linear->columns;
    m->K = back ? linear->columns : linear->in;
    m->out.type = back ? k->dtype : linear->y_dtype;
    m->out.stride = back ? 0 : gaps(linear);
    m->b.type = k->dtype;
    m->b.transposed = linear->conv1d == back;
    ZD_TRY(linear->is_fp8 ? fp8_weight(linear, back, &m->b)
                          : linear_weight(linear, &m->b.data));
    return k->matmul(NULL, m);
}

/* --- adapters ------------------------------------------------------------- */

static enum zd_status adapters_forward(
        const struct linear *linear, void *y, const void *x)
{
    const struct pass *pass = linear->pass;
    bool has_gains = pass->decode ? pass->runs[0].past > 0 : pass->first_row;
    const void *weight = NULL; /* the gains are computed from it */
    if (linear->is_dora && !has_gains)
        ZD_TRY(linear_weight(linear, &weight));
    for (int i = 0; i < linear->adapter_count; i++)
        ZD_TRY(y ? adapter_forward(linear, &linear->adapters[i], weight, y, x)
                 : adapter_keep(linear, &linear->adapters[i], weight, x));
    return ZD_OK;
}

/* Copies the columns of dy that no adapter covers. */
static enum zd_status copy_others(
        const struct linear *linear, void *z, const void *dy)
{
    const struct kernels *k = linear->model->kernels;
    size_t element = dtype_bytes(k->dtype);
    int done = 0;
    for (int i = 0; i <= linear->adapter_count; i++) {
        bool is_end = i == linear->adapter_count;
        const struct adapter_view *view = &linear->adapters[i];
        int next = is_end ? linear->columns : view->first;
        if (next > done)
            ZD_TRY(k->scale_columns(
                    NULL, (char *)z + (size_t)done * element, linear->out,
                    (const char *)dy + (size_t)done * element, linear->out,
                    k->dtype, NULL, NULL, linear->N, next - done));
        if (!is_end)
            done = view->first + view->out;
    }
    return ZD_OK;
}

/* With DoRA computes the gradient of the magnitudes and another array that
 * backward's matmuls read instead of dy. */
static enum zd_status adapters_enter(
        const struct linear *linear, const void *dy, const void *x,
        const void **dz_out)
{
    void *z = linear->pass->acts->adapters.scaled;
    struct linear base = *linear;
    int covered = 0;
    *dz_out = dy;
    if (!linear->is_dora)
        return ZD_OK;
    struct matmul m = {.a = rows_of(linear, x, false), .out = {z}};
    base.y_dtype = linear->model->kernels->dtype;
    if (linear->is_fp8)
        ZD_TRY(fp8_input_again(linear, x, &m.a));
    ZD_TRY(multiply(&base, false, &m));
    ZD_EACH(view, linear->adapters, linear->adapter_count) {
        ZD_TRY(adapter_magnitude_backward(linear, view, z, dy));
        covered += view->out;
    }
    *dz_out = z;
    return covered == linear->columns ? ZD_OK : copy_others(linear, z, dy);
}

/* --- matmuls -------------------------------------------------------------- */

/* `is_first`: the first projection of an input. */
static enum zd_status forward(
        const struct linear *linear, void *y, const void *x, bool is_first)
{
    struct matmul m = {
            .a = rows_of(linear, x, false), .out = {y}, .bias = linear->bias};
    if (linear->is_fp8)
        ZD_TRY(fp8_input(linear, x, is_first, !y, &m.a));
    if (y)
        ZD_TRY(multiply(linear, false, &m));
    return adapters_forward(linear, y, x);
}

enum zd_status linear_forward(
        const struct linear *linear, void *y, const void *x)
{
    return forward(linear, y, x, true);
}

enum zd_status linear_forward_gelu(
        const struct linear *linear, void *act, void *y, const void *x)
{
    struct matmul m = {
            .a = rows_of(linear, x, false),
            .out = {act},
            .bias = linear->bias,
            .epilogue = MATMUL_GELU,
            .aux = y};
    if (!linear->is_fp8 && !linear->adapter_count)
        return multiply(linear, false, &m);
    ZD_TRY(forward(linear, y, x, true));
    return linear->model->kernels->gelu_forward(
            NULL, act, y, (size_t)linear->N * (size_t)linear->out);
}

/* As the weight is stored: dy^T x, or x^T dy. */
static enum zd_status backward_params(
        const struct linear *linear, const void *dy, const void *x,
        bool is_first)
{
    const struct kernels *k = linear->model->kernels;
    bool by_out = !linear->conv1d, is_fp8 = linear->is_fp8;
    bool sums = linear->dbias && linear->dweight && !is_fp8;
    struct matmul_operand dyt = {dy, k->dtype, true, gaps(linear)};
    struct matmul_operand xt = {x, k->dtype, true};
    assert(!linear->dweight || linear->grad_type == DTYPE_FP32 || is_fp8 ||
           (by_out && !linear->dbias && !linear->accumulate));
    if (is_fp8)
        ZD_TRY(fp8_transposed(linear, dy, x, is_first, &dyt, &xt));
    if (linear->dbias && !sums)
        ZD_TRY(k->reduce_rows(
                NULL, linear->dbias, dy, linear->N, linear->out,
                linear->accumulate));
    if (!linear->dweight)
        return ZD_OK;
    struct matmul m = {
            .M = by_out ? linear->columns : linear->in,
            .N = by_out ? linear->in : linear->columns,
            .K = is_fp8 ? fp8_padded(linear->N) : linear->N,
            .a = by_out ? dyt : xt,
            .b = by_out ? xt : dyt,
            .out = {linear->dweight, linear->grad_type},
            .epilogue = !sums    ? MATMUL_PLAIN
                        : by_out ? MATMUL_SUM_A
                                 : MATMUL_SUM_B,
            .aux = sums ? linear->dbias : NULL,
            .accumulate = linear->accumulate};
    m.b.transposed = !m.b.transposed;
    return k->matmul(NULL, &m);
}

/* dx (NULL: not computed) = dy W, or += with `add`, which needs a type that
 * matmuls can accumulate to. */
static enum zd_status backward(
        const struct linear *linear, void *dx, bool add, const void *dy,
        const void *x, bool is_first)
{
    const void *dz;
    assert(!linear->is_fp8 || !add);
    ZD_TRY(backward_params(linear, dy, x, is_first));
    ZD_TRY(adapters_enter(linear, dy, x, &dz));
    struct matmul m = {
            .a = rows_of(linear, dz, true), .out = {dx}, .accumulate = add};
    if (dx && linear->is_fp8)
        ZD_TRY(fp8_output_grads(linear, dz, dz != dy, &m.a));
    if (dx)
        ZD_TRY(multiply(linear, true, &m));
    for (int i = 0; i < linear->adapter_count; i++)
        ZD_TRY(adapter_backward(linear, &linear->adapters[i], dx, dz, x));
    return ZD_OK;
}

enum zd_status linear_backward(
        const struct linear *linear, void *dx, const void *dy, const void *x)
{
    void *grads[] = {(void *)(uintptr_t)dy};
    if (linear->is_fp8)
        ZD_TRY(fp8_grads(linear, grads, 1));
    return backward(linear, dx, false, dy, x, true);
}

enum zd_status linear_backward_gelu(
        const struct linear *linear, void *dgate, const void *dy,
        const void *act, void *gate)
{
    struct matmul m = {
            .a = rows_of(linear, dy, true),
            .out = {dgate},
            .epilogue = MATMUL_DGELU,
            .aux = gate};
    if (!linear->is_fp8 && !linear->adapter_count) {
        ZD_TRY(backward_params(linear, dy, act, true));
        return multiply(linear, true, &m);
    }
    ZD_TRY(linear_backward(linear, dgate, dy, act));
    return linear->model->kernels->gelu_backward(
            NULL, dgate, dgate, gate, (size_t)linear->N * (size_t)linear->in);
}

/* --- projections of one input --------------------------------------------- */

/* The role of a bias follows its weight's. */
struct projections layer_projections(
        const struct layer_run *run, unsigned join, enum role first,
        void *const *y, int count)
{
    unsigned fused = run->model->config->family->fused & join;
    struct projections p = {.count = count};
    enum role last = first + 2 * ((unsigned)count - 1);
    if (fused || run->model->shape.joined & join)
        return (struct projections){
                {layer_linear(run, first, fused ? first : last)}, {y[0]}, 1};
    for (int i = 0; i < count; i++) {
        enum role role = first + 2 * (unsigned)i;
        p.linears[i] = layer_linear(run, role, role);
        p.y[i] = y[i];
    }
    return p;
}

enum zd_status projections_forward(const struct projections *p, const void *x)
{
    for (int i = 0; i < p->count; i++)
        ZD_TRY(forward(&p->linears[i], p->y[i], x, i == 0));
    return ZD_OK;
}

enum zd_status projections_backward(
        const struct projections *p, void *dx, void *sum, const void *x)
{
    const struct kernels *k = p->linears[0].model->kernels;
    size_t count = (size_t)p->linears[0].N * (size_t)p->linears[0].in;
    bool in_place = k->dtype == DTYPE_FP32 || !dx;
    if (p->linears[0].is_fp8)
        ZD_TRY(fp8_grads(p->linears, p->y, p->count));
    for (int i = 0; i < p->count; i++) {
        const struct linear *linear = &p->linears[i];
        void *to = i == 0 || in_place ? dx : sum;
        ZD_TRY(backward(
                linear, to, dx && i > 0 && in_place, p->y[i], x, i == 0));
        if (to != dx)
            ZD_TRY(k->add(NULL, dx, dx, sum, count));
    }
    return ZD_OK;
}
