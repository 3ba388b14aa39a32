#include "kernels/fused.h"
#include "model/internal.h"

enum zd_status gpt2_qkv_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    int C = model->config->hidden_size;
    struct linear qkv = layer_linear(model, layer, ROLE_Q, C, 3 * C);
    return linear_forward(model, &qkv, acts->q_raw, acts->norm1, pass->N);
}

enum zd_status gpt2_qkv_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size;
    struct linear qkv = layer_linear(model, layer, ROLE_Q, C, 3 * C);
    return linear_backward(
            model, &qkv, g->hidden, g->q_raw, acts->norm1, pass->N, accumulate);
}

enum zd_status gpt2_mlp_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *out)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear fc = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear proj = layer_linear(model, layer, ROLE_DOWN, F, C);
    ZD_TRY(fused_matmul_gelu(
            model->kernels, NULL, acts->act, acts->gate, acts->norm2, fc.weight,
            fc.bias, pass->N, F, C, !fc.conv1d));
    if (!out)
        return ZD_OK;
    return linear_forward(model, &proj, out, acts->act, pass->N);
}

enum zd_status gpt2_mlp_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear fc = layer_linear(model, layer, ROLE_GATE, C, F);
    struct linear proj = layer_linear(model, layer, ROLE_DOWN, F, C);
    ZD_TRY(linear_backward_params(
            model, &proj, pass->acts->dx, acts->act, pass->N, accumulate));
    ZD_TRY(fused_matmul_dgelu(
            model->kernels, NULL, g->act, pass->acts->dx, proj.weight,
            acts->gate, pass->N, F, C, proj.conv1d));
    return linear_backward(
            model, &fc, g->hidden, g->act, acts->norm2, pass->N, accumulate);
}
