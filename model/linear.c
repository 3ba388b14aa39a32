#include "kernels/fused.h"
#include "model/internal.h"

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
