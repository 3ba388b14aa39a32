#include "base/device/device_memory.h"
#include "model/internal.h"
#include "model/rope.h"

#include <stdlib.h>
#include <string.h>

/* Names within the first layer; the others are built alike. */
static const char *const gpt2_roles[ROLES] = {
        [ROLE_NORM1] = "ln_1.weight",      [ROLE_NORM1_BIAS] = "ln_1.bias",
        [ROLE_Q] = "attn.c_attn.weight",   [ROLE_Q_BIAS] = "attn.c_attn.bias",
        [ROLE_O] = "attn.c_proj.weight",   [ROLE_O_BIAS] = "attn.c_proj.bias",
        [ROLE_NORM2] = "ln_2.weight",      [ROLE_NORM2_BIAS] = "ln_2.bias",
        [ROLE_GATE] = "mlp.c_fc.weight",   [ROLE_GATE_BIAS] = "mlp.c_fc.bias",
        [ROLE_DOWN] = "mlp.c_proj.weight", [ROLE_DOWN_BIAS] = "mlp.c_proj.bias",
};
static const char *const llama_roles[ROLES] = {
        [ROLE_NORM1] = "input_layernorm.weight",
        [ROLE_Q] = "self_attn.q_proj.weight",
        [ROLE_Q_BIAS] = "self_attn.q_proj.bias",
        [ROLE_K] = "self_attn.k_proj.weight",
        [ROLE_K_BIAS] = "self_attn.k_proj.bias",
        [ROLE_V] = "self_attn.v_proj.weight",
        [ROLE_V_BIAS] = "self_attn.v_proj.bias",
        [ROLE_Q_NORM] = "self_attn.q_norm.weight",
        [ROLE_K_NORM] = "self_attn.k_norm.weight",
        [ROLE_O] = "self_attn.o_proj.weight",
        [ROLE_O_BIAS] = "self_attn.o_proj.bias",
        [ROLE_NORM2] = "post_attention_layernorm.weight",
        [ROLE_GATE] = "mlp.gate_proj.weight",
        [ROLE_GATE_BIAS] = "mlp.gate_proj.bias",
        [ROLE_UP] = "mlp.up_proj.weight",
        [ROLE_UP_BIAS] = "mlp.up_proj.bias",
        [ROLE_DOWN] = "mlp.down_proj.weight",
        [ROLE_DOWN_BIAS] = "mlp.down_proj.bias",
};

static void find_tensors(struct model *model)
{
    const struct model_config *c = model->config;
    const struct param_table *t = model->table;
    bool gpt2 = c->family == MODEL_GPT2;
    for (int role = 0; role < ROLES; role++) {
        char name[PARAM_NAME_MAX];
        const char *end = gpt2 ? gpt2_roles[role] : llama_roles[role];
        snprintf(
                name, sizeof name, "%s%s", gpt2 ? "h.0." : "model.layers.0.",
                end ? end : "");
        int id = param_table_find(t, name);
        model->role_offset[role] = id < 0 ? -1 : id - t->unit_first[1];
    }
    model->wte = t->unit_first[0];
    model->wpe = gpt2 ? model->wte + 1 : -1;
    model->final_norm = t->unit_first[c->layers + 1];
    model->final_norm_bias = gpt2 ? model->final_norm + 1 : -1;
    model->head = c->tied ? model->wte : param_table_find(t, "lm_head.weight");
    for (int id = 0; id < t->count; id++)
        if (t->params[id].trainable)
            model->unit_trains[t->params[id].unit] = true;
}

static enum zd_status list_events(
        const struct model *model, enum model_pass pass,
        struct event_list *list)
{
    int count = model_unit_events(
            model->config, model->table, model->shape.checkpointing, pass, NULL,
            0);
    list->events = calloc((size_t)count, sizeof *list->events);
    if (!list->events)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a pass");
    list->count = model_unit_events(
            model->config, model->table, model->shape.checkpointing, pass,
            list->events, count);
    return ZD_OK;
}

static enum zd_status alloc_tables(struct model *model)
{
    size_t count = (size_t)model->table->count;
    size_t places = model->table->codes ? 2 * count : count;
    model->params = calloc(places, sizeof *model->params);
    model->grads = calloc(count, sizeof *model->grads);
    model->unit_trains = calloc(
            (size_t)model->table->unit_count, sizeof *model->unit_trains);
    if (!model->params || !model->grads || !model->unit_trains)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    ZD_TRY(list_events(model, MODEL_TRAIN, &model->train_events));
    return list_events(model, MODEL_EVAL, &model->eval_events);
}

static enum zd_status fill_angles(struct model *model, float *angles)
{
    size_t positions = (size_t)model_positions(&model->shape);
    size_t count = positions * (size_t)(model->config->head_dim / 2);
    size_t bytes = 2 * count * sizeof(float);
    if (model->config->family == MODEL_GPT2)
        return ZD_OK;
    model->cosine = angles;
    model->sine = angles + count;
    float *host = malloc(bytes);
    if (!host)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    rope_fill(model->config, (int)positions, host, host + count);
    enum zd_status status = device_write(angles, host, bytes);
    free(host);
    return status;
}

/* What lies on the device beside the activations. */
static enum zd_status take_buffers(
        struct model *model, const struct arena *arena)
{
    const struct arena_span *workspace =
            arena_plan_find(arena->plan, "kernels.workspace");
    if (workspace)
        kernels_set_workspace(
                arena_span(arena, workspace->name), workspace->bytes);
    if (shape_backend(&model->shape) == DEVICE_CUDA)
        ZD_TRY(batch_upload_init(&model->upload, arena));
    else
        model->planes = arena_span(arena, "model.batch");
    model->upload.plane = batch_plane_tokens(model_most_tokens(&model->shape));
    model->loss = arena_span(arena, "model.loss");
    if (arena_plan_find(arena->plan, "model.decoded"))
        model->decoded = arena_span(arena, "model.decoded");
    ZD_TRY(device_clear(model->loss, sizeof *model->loss));
    return fill_angles(model, arena_span(arena, "model.rope"));
}

enum zd_status model_create(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, const struct kernels *kernels,
        const struct arena *arena, struct model **model_out)
{
    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a model");
    model->config = config;
    model->table = table;
    model->shape = *shape;
    model->strides = activations_strides(config, shape->joined);
    model->kernels = kernels;
    enum zd_status status = alloc_tables(model);
    if (status == ZD_OK)
        status = model_lay_out(model, arena_span(arena, "model.activations"));
    if (status == ZD_OK && model->train.offloaded)
        status = residuals_init(
                &model->residuals, arena_span(arena, "model.residuals"));
    if (status == ZD_OK)
        status = take_buffers(model, arena);
    if (status != ZD_OK) {
        model_destroy(model);
        return status;
    }
    find_tensors(model);
    *model_out = model;
    return ZD_OK;
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    residuals_fini(&model->residuals);
    batch_upload_fini(&model->upload);
    activations_fini(&model->train);
    activations_fini(&model->eval);
    activations_fini(&model->decode);
    free(model->train_events.events);
    free(model->eval_events.events);
    free(model->unit_trains);
    free(model->params);
    free(model->grads);
    free(model);
}
