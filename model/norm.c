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
        struct norm norm, void *out, float *mean, float *rstd, void *sum,
        struct residual_sum of)
{
    const struct model_config *c = norm.model->config;
    return norm.model->kernels->norm_forward(
            NULL, &(struct norm_forward){
                          .out = out,
                          .mean = mean,
                          .rstd = rstd,
                          .x = of.a ? of.a : sum,
                          .add = of.b,
                          .sum = sum,
                          .weight = norm.weight,
                          .bias = norm.bias,
                          .eps = (float)c->norm_eps,
                          .form = c->family->norm_form,
                          .N = norm.N,
                          .C = c->hidden_size});
}

enum zd_status norm_backward(
        struct norm norm, void *dx, const void *dout, const void *dresidual,
        const void *x, const float *mean, const float *rstd)
{
    const struct model_config *c = norm.model->config;
    return norm.model->kernels->norm_backward(
            NULL, &(struct norm_backward){
                          .dx = dx,
                          .dweight = norm.dweight,
                          .dbias = norm.dbias,
                          .dout = dout,
                          .dresidual = dresidual,
                          .x = x,
                          .weight = norm.weight,
                          .mean = mean,
                          .rstd = rstd,
                          .form = c->family->norm_form,
                          .N = norm.N,
                          .C = c->hidden_size,
                          .accumulate = norm.accumulate});
}
