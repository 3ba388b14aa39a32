#include "kernels/fused.h"
#include "model/internal.h"

enum zd_status gpt2_qkv_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts)
{
    int C = model->config->hidden_size;
    struct linear qkv =
            layer_linear(model, pass, layer, acts, ROLE_Q, C, 3 * C);
    return linear_forward(model, &qkv, acts->q_raw, acts->norm1, pass->N);
}

enum zd_status gpt2_qkv_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size;
    struct linear qkv =
            layer_linear(model, pass, layer, acts, ROLE_Q, C, 3 * C);
    return linear_backward(
            model, &qkv,
            layer_needs_input_grad(model, pass, layer) ? g->hidden : NULL,
            g->q_raw, acts->norm1, pass->N, accumulate);
}

/* gate = x fc, act = gelu(gate): in one pass where no adapter comes between. */
static enum zd_status fc_gelu(
        const struct model *model, const struct linear *fc,
        const struct layer_acts *acts, int N)
{
    const void *weight;
    if (!fc->adapter_count && !linear_has_few_rows(fc, N) &&
        !linear_in_strips(model, fc)) {
        ZD_TRY(linear_weight(model, fc, &weight));
        return fused_matmul_gelu(
                model->kernels, NULL, acts->act, acts->gate, acts->norm2,
                weight, fc->bias, N, fc->out, fc->in, !fc->conv1d);
    }
    ZD_TRY(linear_forward(model, fc, acts->gate, acts->norm2, N));
    return model->kernels->gelu_forward(
            NULL, acts->act, acts->gate, (size_t)N * (size_t)fc->out);
}

/* dgate = (dy proj) gelu'(gate), and the gradients of proj. */
static enum zd_status proj_dgelu(
        const struct model *model, const struct linear *proj, void *dgate,
        const void *dy, const struct layer_acts *acts, int N, bool accumulate)
{
    size_t count = (size_t)N * (size_t)proj->in;
    const void *weight;
    if (proj->adapter_count || linear_in_strips(model, proj)) {
        ZD_TRY(linear_backward(
                model, proj, dgate, dy, acts->act, N, accumulate));
        return model->kernels->gelu_backward(
                NULL, dgate, dgate, acts->gate, count);
    }
    ZD_TRY(linear_backward_params(model, proj, dy, acts->act, N, accumulate));
    ZD_TRY(linear_weight(model, proj, &weight));
    return fused_matmul_dgelu(
            model->kernels, NULL, dgate, dy, weight, acts->gate, N, proj->in,
            proj->out, proj->conv1d);
}

enum zd_status gpt2_mlp_forward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, void *out)
{
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear fc = layer_linear(model, pass, layer, acts, ROLE_GATE, C, F);
    struct linear proj =
            layer_linear(model, pass, layer, acts, ROLE_DOWN, F, C);
    ZD_TRY(fc_gelu(model, &fc, acts, pass->N));
    if (!out)
        return linear_adapters_keep(model, &proj, acts->act, pass->N);
    return linear_forward(model, &proj, out, acts->act, pass->N);
}

enum zd_status gpt2_mlp_backward(
        const struct model *model, const struct pass *pass, int layer,
        const struct layer_acts *acts, bool accumulate)
{
    const struct layer_grads *g = &pass->acts->grads;
    int C = model->config->hidden_size, F = model->config->intermediate_size;
    struct linear fc = layer_linear(model, pass, layer, acts, ROLE_GATE, C, F);
    struct linear proj =
            layer_linear(model, pass, layer, acts, ROLE_DOWN, F, C);
    ZD_TRY(proj_dgelu(
            model, &proj, g->act, pass->acts->dx, acts, pass->N, accumulate));
    return linear_backward(
            model, &fc, g->hidden, g->act, acts->norm2, pass->N, accumulate);
}
