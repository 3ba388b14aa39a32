#include "kernels/fused.h"
#include "model/internal.h"

struct norm unit_norm(
        const struct model *model, int unit, enum role role, int N,
        bool accumulate)
{
    int weight = role_id(model, unit, role);
    int bias = role_id(model, unit, role + 1);
    return (struct norm){
            .model = model,
            .weight = model->params[weight],
            .bias = bias < 0 ? NULL : model->params[bias],
            .dweight = model->grads[weight],
            .dbias = bias < 0 ? NULL : model->grads[bias],
            .N = N,
            .accumulate = accumulate,
    };
}

bool layer_needs_input_grad(const struct layer_run *run)
{
    const struct model *model = run->model;
    int norm1 = role_id(model, run->layer, ROLE_NORM1);
    int bias = role_id(model, run->layer, ROLE_NORM1_BIAS);
    return run->layer > run->pass->acts->first || model->unit_trains[0] ||
           (norm1 >= 0 && model->grads[norm1]) ||
           (bias >= 0 && model->grads[bias]);
}

enum zd_status hidden_scale(
        const struct model *model, void *out, const void *x, int N,
        double scale)
{
    static const struct dropout none = {.T = 1};
    int C = model->config->hidden_size;
    return model->kernels->scale_rows(
            NULL, out, C, x, N, C, (float)scale, &none, false);
}

enum zd_status norm_forward_sum(
        const struct norm *norm, void *out, float *mean, float *rstd, void *sum,
        const struct residual_sum *of)
{
    const struct kernels *k = norm->model->kernels;
    int C = norm->model->config->hidden_size, N = norm->N;
    float eps = (float)norm->model->config->norm_eps;
    enum rmsnorm_form form = norm->model->config->family->norm_form;
    if (of->a && norm->bias)
        return fused_add_layernorm(
                k, NULL, sum, out, mean, rstd, of->a, of->b, norm->weight,
                norm->bias, eps, N, C);
    if (of->a)
        return fused_add_rmsnorm(
                k, NULL, sum, out, rstd, of->a, of->b, norm->weight, eps, form,
                N, C);
    if (norm->bias)
        return k->layernorm_forward(
                NULL, out, mean, rstd, sum, norm->weight, norm->bias, eps, N,
                C);
    return k->rmsnorm_forward(
            NULL, out, rstd, sum, norm->weight, eps, form, N, C);
}

enum zd_status norm_backward(
        const struct norm *norm, void *dx, const void *dout,
        const void *dresidual, const void *x, const float *mean,
        const float *rstd)
{
    const struct kernels *k = norm->model->kernels;
    int C = norm->model->config->hidden_size;
    if (norm->bias)
        return k->layernorm_backward(
                NULL, dx, norm->dweight, norm->dbias, dout, dresidual, x,
                norm->weight, mean, rstd, norm->N, C, norm->accumulate);
    return k->rmsnorm_backward(
            NULL, dx, norm->dweight, dout, dresidual, x, norm->weight, rstd,
            norm->model->config->family->norm_form, norm->N, C,
            norm->accumulate);
}
