#include "kernels/fused.h"
#include "model/internal.h"

#include <assert.h>

struct linear layer_linear(
        const struct model *model, int layer, enum role weight, int in, int out)
{
    int first = model->table->unit_first[layer];
    int w = model->role_offset[weight], b = model->role_offset[weight + 1];
    return (struct linear){
            .weight = model->params[first + w],
            .bias = b < 0 ? NULL : model->params[first + b],
            .dweight = model->grads[first + w],
            .dbias = b < 0 ? NULL : model->grads[first + b],
            .in = in,
            .out = out,
            .conv1d = model->config->family == MODEL_GPT2,
    };
}

/* Tensor `id` begins where the one before it ends, and so do their gradients.
 */
static bool goes_on(const struct model *model, int id)
{
    size_t count = model->table->params[id - 1].count;
    const char *before = model->params[id - 1];
    const float *grad = model->grads[id - 1];
    return model->params[id] ==
                   before + count * dtype_bytes(model->kernels->dtype) &&
           model->grads[id] == (grad ? grad + count : NULL);
}

struct linear layer_joined(
        const struct model *model, int layer, enum role first, enum role last,
        int in)
{
    int unit = model->table->unit_first[layer], out = 0;
    int weight = model->role_offset[first],
        bias = model->role_offset[first + 1];
    int others = model->role_offset[last] - weight;
    for (int i = 0; i <= others; i++) {
        out += (int)model->table->params[unit + weight + i].shape[0];
        assert(i == 0 || goes_on(model, unit + weight + i));
        assert(i == 0 || bias < 0 || goes_on(model, unit + bias + i));
    }
    return layer_linear(model, layer, first, in, out);
}

enum zd_status linear_forward(
        const struct model *model, const struct linear *linear, void *y,
        const void *x, int N)
{
    const struct kernels *k = model->kernels;
    return k->matmul(
            NULL, y, k->dtype, x, linear->weight, linear->bias, N, linear->out,
            linear->in, false, !linear->conv1d, false);
}

/* x^T dy, or dy^T x: as the weight is stored. */
enum zd_status linear_backward_params(
        const struct model *model, const struct linear *linear, const void *dy,
        const void *x, int N, bool accumulate)
{
    bool first = !linear->conv1d;
    return fused_weight_grads(
            model->kernels, NULL, linear->dweight, linear->dbias,
            first ? dy : x, first ? x : dy, first ? linear->out : linear->in,
            first ? linear->in : linear->out, N, first, accumulate);
}

enum zd_status linear_backward(
        const struct model *model, const struct linear *linear, void *dx,
        const void *dy, const void *x, int N, bool accumulate)
{
    const struct kernels *k = model->kernels;
    ZD_TRY(linear_backward_params(model, linear, dy, x, N, accumulate));
    if (!dx)
        return ZD_OK;
    return k->matmul(
            NULL, dx, k->dtype, dy, linear->weight, NULL, N, linear->in,
            linear->out, false, linear->conv1d, false);
}

enum zd_status linear_backward_add(
        const struct model *model, const struct linear *linear, void *dx,
        void *sum, const void *dy, const void *x, int N, bool accumulate)
{
    const struct kernels *k = model->kernels;
    if (k->dtype != DTYPE_FP32) {
        ZD_TRY(linear_backward(model, linear, sum, dy, x, N, accumulate));
        return k->add(NULL, dx, dx, sum, (size_t)N * (size_t)linear->in);
    }
    ZD_TRY(linear_backward_params(model, linear, dy, x, N, accumulate));
    return k->matmul(
            NULL, dx, DTYPE_FP32, dy, linear->weight, NULL, N, linear->in,
            linear->out, false, linear->conv1d, true);
}
