#include "base/device/device_memory.h"
#include "base/must.h"
#include "model/internal.h"

#include <stdlib.h>

/* Finds the offsets of roles within units; all layers are alike. */
static void find_tensors(struct model *model)
{
    const struct model_config *c = model->config;
    const struct param_table *t = model->table;
    for (int role = 0; role < ROLES; role++)
        model->role_offset[role] = -1;
    for (int id = t->count - 1; id >= 0; id--) {
        const struct param *p = &t->params[id];
        model->role_offset[p->role] = id - t->unit_first[p->unit];
        model->unit_trains[p->unit] |= p->trainable;
    }
    const struct slice_range *rows = t->params[0].slice.ranges;
    model->vocabulary = (struct vocabulary_slice){
            .first = (int)rows->whole,
            .count = tp_size(c) > 1 ? (int)rows->count : c->vocab_size,
            .columns = c->vocab_size};
    model->whole_vocabulary =
            tp_size(c) > 1 ? (int)t->params[0].slice.shape[0] : c->vocab_size;
    model->head = c->tied ? role_id(model, 0, ROLE_TOKENS)
                          : role_id(model, c->layers + 1, ROLE_HEAD);
}

static void alloc_tables(struct model *model)
{
    size_t count = (size_t)model->table->count;
    model->params = zd_array(
            model->table->codes ? 2 * count : count, sizeof *model->params);
    model->grads = zd_array(count, sizeof *model->grads);
    size_t units = (size_t)model->table->unit_count;
    model->unit_trains = zd_array(units, sizeof *model->unit_trains);
    model->unit_began = zd_array(units, sizeof *model->unit_began);
    size_t micros = (size_t)shape_micros(&model->shape);
    model->pass = zd_array(micros, sizeof *model->pass);
    model->due = zd_array(micros, sizeof *model->due);
    model->train_events = model_unit_events(
            model->config, model->table, model->shape.checkpointing,
            MODEL_TRAIN);
    model->eval_events = model_unit_events(
            model->config, model->table, model->shape.checkpointing,
            MODEL_EVAL);
}

static enum zd_status fill_angles(struct model *model, float *angles)
{
    int positions = model_positions(&model->shape);
    for (int i = 0; i < model->config->rope_count; i++) {
        const struct rope_set *set = &model->config->ropes[i];
        size_t floats = rope_table_floats(set, positions);
        ZD_FREED float *host = zd_array(floats, sizeof *host);
        struct rope_tables tables = rope_tables_at(set, positions, host);
        rope_fill(set, positions, &tables);
        model->ropes[i] = rope_tables_at(set, positions, angles);
        ZD_TRY(device_write(angles, host, floats * sizeof *host));
        angles += floats;
    }
    return ZD_OK;
}

/* NULL: not planned. */
static void *planned(const struct arena *arena, const char *name)
{
    return arena_plan_find(arena->plan, name) ? arena_span(arena, name) : NULL;
}

/* Takes device buffers other than activations. */
static enum zd_status take_buffers(
        struct model *model, const struct arena *arena)
{
    const struct arena_span *workspace =
            arena_plan_find(arena->plan, "kernels.workspace");
    char *fp8 = planned(arena, "model.fp8");
    if (workspace)
        kernels_set_workspace(
                arena_span(arena, workspace->name), workspace->bytes);
    ZD_TRY(batch_upload_init(model, arena));
    model->loss = arena_span(arena, "model.loss");
    model->gathered = model_gathered_at(
            model->config, &model->shape, planned(arena, "model.gathered"));
    model->decoded = planned(arena, "model.decoded");
    model->fp8 =
            fp8_scratch_at(model->config, model->table, &model->shape, fp8);
    if (fp8)
        ZD_TRY(device_clear(
                model->fp8.weights, model->fp8.maxima * sizeof(float)));
    ZD_TRY(device_clear(model->loss, sizeof *model->loss));
    return fill_angles(model, arena_span(arena, "model.rope"));
}

enum zd_status model_create(
        const struct model_config *config, const struct param_table *table,
        const struct model_shape *shape, const struct kernels *kernels,
        const struct arena *arena, struct model **model_out)
{
    enum zd_status status = ZD_OK;
    struct model *model = zd_array(1, sizeof *model);
    model->config = config;
    model->table = table;
    model->shape = *shape;
    model->strides = activations_strides(config, shape->joined);
    model->fp8_use = fp8_use_of(table, shape);
    model->kernels = kernels;
    alloc_tables(model);
    model->passes = activations_lay_out(
            config, table, shape, arena_span(arena, "model.activations"));
    if (model->passes[PASS_TRAIN].offloaded)
        status = residuals_init(
                &model->residuals, arena_span(arena, "model.residuals"),
                model->passes[PASS_TRAIN].buffers);
    ZD_THEN(status, take_buffers(model, arena));
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
    activations_free(model->passes, activations_passes(&model->shape));
    free(model->pass);
    free(model->due);
    free(model->train_events.list);
    free(model->eval_events.list);
    free(model->unit_trains);
    free(model->unit_began);
    free(model->params);
    free(model->grads);
    free(model);
}
