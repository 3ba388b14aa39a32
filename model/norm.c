#include "kernels/fused.h"
#include "model/internal.h"

struct norm unit_norm(const struct model *model, int unit, enum role role)
{
    int weight = role_id(model, unit, role);
    int bias = role_id(model, unit, role + 1);
    return (struct norm){
            .weight = model->params[weight],
            .bias = bias < 0 ? NULL : model->params[bias],
            .dweight = model->grads[weight],
            .dbias = bias < 0 ? NULL : model->grads[bias],
    };
}

bool layer_needs_input_grad(
        const struct model *model, const struct pass *pass, int layer)
{
    struct norm norm1 = unit_norm(model, layer, ROLE_NORM1);
    return layer > pass->acts->first || model->unit_trains[0] ||
           norm1.dweight || norm1.dbias;
}

static enum zd_status norm_forward(
        const struct model *model, const struct norm *norm, void *out,
        float *mean, float *rstd, const void *x, int N)
{
    const struct kernels *k = model->kernels;
    int C = model->config->hidden_size;
    float eps = (float)model->config->norm_eps;
    if (norm->bias)
        return k->layernorm_forward(
                NULL, out, mean, rstd, x, norm->weight, norm->bias, eps, N, C);
    return k->rmsnorm_forward(NULL, out, rstd, x, norm->weight, eps, N, C);
}

enum zd_status norm_forward_sum(
        const struct model *model, const struct norm *norm, void *out,
        float *mean, float *rstd, void *sum, const struct residual_sum *of,
        int N)
{
    int C = model->config->hidden_size;
    float eps = (float)model->config->norm_eps;
    if (!of->a)
        return norm_forward(model, norm, out, mean, rstd, sum, N);
    if (norm->bias)
        return fused_add_layernorm(
                model->kernels, NULL, sum, out, mean, rstd, of->a, of->b,
                norm->weight, norm->bias, eps, N, C);
    return fused_add_rmsnorm(
            model->kernels, NULL, sum, out, rstd, of->a, of->b, norm->weight,
            eps, N, C);
}

enum zd_status norm_backward(
        const struct model *model, const struct norm *norm, void *dx,
        const void *dout, const void *dresidual, const void *x,
        const float *mean, const float *rstd, int N, bool accumulate)
{
    const struct kernels *k = model->kernels;
    int C = model->config->hidden_size;
    if (norm->bias)
        return k->layernorm_backward(
                NULL, dx, norm->dweight, norm->dbias, dout, dresidual, x,
                norm->weight, mean, rstd, N, C, accumulate);
    return k->rmsnorm_backward(
            NULL, dx, norm->dweight, dout, dresidual, x, norm->weight, rstd, N,
            C, accumulate);
}
