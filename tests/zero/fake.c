#include "fake.h"

#include "base/device/device_memory.h"
#include "base/number/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- the tensors ---------------------------------------------------------- */

/* Rows of a matrix by fives; columns of `whole` in three sections, as those of
 * a fused projection; a norm is one block, a bias has none but its elements. */
static struct tensor_blocks blocks_of(
        const char *what, int64_t rows, int64_t columns)
{
    struct tensor_blocks blocks = {
            .rows = rows,
            .columns = columns,
            .section_count = 1,
            .sections = {{0, 1, 0}},
            .count = rows};
    if (strcmp(what, "matrix") == 0) {
        blocks.sections[0].group = 5;
        blocks.count = (rows + 4) / 5;
    } else if (strcmp(what, "whole") == 0) {
        blocks.by_column = true;
        blocks.section_count = 3;
        blocks.sections[0] = (struct tensor_section){0, 3, 0};
        blocks.sections[1] = (struct tensor_section){6, 3, 2};
        blocks.sections[2] = (struct tensor_section){12, 1, 4};
        blocks.count = 8;
    } else if (strcmp(what, "norm") == 0) {
        blocks.sections[0].group = rows;
        blocks.count = 1;
    }
    return blocks;
}

static void add(
        struct fake *fake, const struct fake_shape *shape, int unit,
        const char *what, int64_t rows, int64_t columns)
{
    struct param_table *table = &fake->table;
    struct param *p = &table->params[table->count];
    bool frozen = (shape->freeze_low && unit <= 1) ||
                  (shape->freeze_every && table->count % shape->freeze_every ==
                                                  shape->freeze_every - 1);
    *p = (struct param){
            .unit = unit,
            .dims = columns > 1 ? 2 : 1,
            .shape = {rows, columns},
            .count = (size_t)(rows * columns),
            .trainable = !frozen,
            .decays = columns > 1,
            .is_embedding = unit == 0,
            .is_product = strcmp(what, "matrix") == 0,
            .blocks = blocks_of(what, rows, columns)};
    ZD_PRINT(p->name, "unit.%d.%s", unit, what);
    table->count++;
    table->total += p->count;
    if (p->trainable)
        table->trainable += p->count;
    table->unit_first[unit + 1] = table->count;
}

void fake_create(struct fake *fake, const struct fake_shape *shape)
{
    int L = shape->layers, scale = shape->scale;
    *fake = (struct fake){.config = {.layers = L, .tied = shape->tied}};
    fake->table.params =
            calloc((size_t)(6 * L + 8), sizeof *fake->table.params);
    fake->table.unit_first =
            calloc((size_t)(L + 3), sizeof *fake->table.unit_first);
    fake->table.unit_count = L + 2;
    add(fake, shape, 0, "table", 53 * scale, 11);
    add(fake, shape, 0, "positions", 19, 11);
    for (int unit = 1; unit <= L; unit++) {
        add(fake, shape, unit, "norm", 11, 1);
        add(fake, shape, unit, "matrix", 37 * scale, 11);
        add(fake, shape, unit, "bias", 37 * scale, 1);
        add(fake, shape, unit, "whole", 16, 16);
        add(fake, shape, unit, "scalar", 1, 1);
    }
    add(fake, shape, L + 1, "norm", 11, 1);
    if (!shape->tied)
        add(fake, shape, L + 1, "head", 53 * scale, 11);
}

void fake_destroy(struct fake *fake)
{
    free(fake->table.params);
    free(fake->table.unit_first);
}

static enum zd_status read_weights(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct fake *fake = ctx;
    rng_normal(7, rng_stream(fake->table.params[id].name), begin, count, out);
    return ZD_OK;
}

struct weight_source fake_weights(struct fake *fake)
{
    return (struct weight_source){.read = read_weights, .ctx = fake};
}

/* --- a pass --------------------------------------------------------------- */

struct run {
    const struct fake_pass *pass;
    const void **params;
    void **grads;
    double sum;
    size_t late; /* elements that were moved to pass->late */
    /* a tensor's, of the host; both as long as the largest */
    void *param;
    float *grad;
};

static double param_at(const struct run *run, size_t i)
{
    if (run->pass->dtype == DTYPE_BF16)
        return (double)bf16_to_float(((const uint16_t *)run->param)[i]);
    if (run->pass->dtype == DTYPE_FP16)
        return (double)fp16_to_float(((const uint16_t *)run->param)[i]);
    return (double)((const float *)run->param)[i];
}

static enum zd_status read_param(struct run *run, int id)
{
    size_t count = run->pass->fake->table.params[id].count;
    return device_read(
            run->param, run->params[id], count * dtype_bytes(run->pass->dtype));
}

static enum zd_status see(struct run *run, int unit)
{
    const struct param_table *table = &run->pass->fake->table;
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++) {
        ZD_TRY(read_param(run, id));
        for (size_t i = 0; i < table->params[id].count; i++)
            run->sum += (double)(i % 7 + 1) * param_at(run, i);
    }
    return ZD_OK;
}

/* As a kernel that runs when the host has gone on: who puts something else
 * there must wait for it. What it has found is seen later. */
static enum zd_status read_late(struct run *run, int unit)
{
    const struct param_table *table = &run->pass->fake->table;
    size_t wide = dtype_bytes(run->pass->dtype);
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++) {
        run->late = table->params[id].count;
        ZD_TRY(device_move(run->pass->late, run->params[id], run->late * wide));
    }
    return ZD_OK;
}

static enum zd_status see_late(struct run *run)
{
    ZD_TRY(device_read(
            run->param, run->pass->late,
            run->late * dtype_bytes(run->pass->dtype)));
    for (size_t i = 0; i < run->late; i++)
        run->sum += (double)(i % 5 + 1) * param_at(run, i);
    run->late = 0;
    return ZD_OK;
}

/* The gradient of one micro-batch on one rank: a hash, and a part of the
 * parameter where that is there to be read. */
static enum zd_status write_grad(
        struct run *run, int id, int micro, bool accumulate, bool read)
{
    const struct fake_pass *pass = run->pass;
    size_t count = pass->fake->table.params[id].count;
    uint64_t seed = 1000u * (unsigned)pass->step + 10u * (unsigned)pass->rank +
                    (unsigned)micro;
    if (read)
        ZD_TRY(read_param(run, id));
    if (accumulate)
        ZD_TRY(device_read(run->grad, run->grads[id], count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
        float value = (float)(rng_uniform(seed, (uint64_t)id, i) - 0.5) * 0.1f;
        if (read)
            value += 0.01f * (float)param_at(run, i);
        if (pass->silent)
            value = 0;
        if (pass->broken && i == 3)
            value = 1.0f / 0.0f;
        run->grad[i] = accumulate ? run->grad[i] + value : value;
    }
    if (!pass->fake->table.params[id].is_product ||
        pass->hooks->product_grads == DTYPE_FP32)
        return device_write(run->grads[id], run->grad, count * sizeof(float));
    /* as a product does: rounded once, in place */
    uint16_t *rounded = (uint16_t *)run->grad;
    assert(!accumulate);
    for (size_t i = 0; i < count; i++)
        rounded[i] = pass->hooks->product_grads == DTYPE_BF16
                             ? float_to_bf16(run->grad[i])
                             : float_to_fp16(run->grad[i]);
    return device_write(run->grads[id], rounded, count * sizeof *rounded);
}

static enum zd_status write_grads(
        struct run *run, int unit, bool accumulate, bool read)
{
    const struct param_table *table = &run->pass->fake->table;
    for (int id = table->unit_first[unit]; id < table->unit_first[unit + 1];
         id++)
        if (run->grads[id])
            for (int m = 0; m <= run->pass->more; m++)
                ZD_TRY(write_grad(
                        run, id, run->pass->micro + m, accumulate || m > 0,
                        read));
    return ZD_OK;
}

static bool trains(const struct fake *fake, int unit)
{
    for (int id = fake->table.unit_first[unit];
         id < fake->table.unit_first[unit + 1]; id++)
        if (fake->table.params[id].trainable)
            return true;
    return false;
}

static enum zd_status unit_grads(
        struct run *run, int unit, bool read, bool hold)
{
    const struct model_hooks *hooks = run->pass->hooks;
    bool accumulate;
    if (!trains(run->pass->fake, unit))
        return ZD_OK;
    ZD_TRY(hooks->grads_acquire(hooks->ctx, unit, run->grads, &accumulate));
    ZD_TRY(write_grads(run, unit, accumulate, read));
    return hold ? ZD_OK : hooks->grads_release(hooks->ctx, unit);
}

/* The embedding's gradient comes last; with a tied head the head has begun it.
 */
static enum zd_status embedding_grads(struct run *run)
{
    const struct fake *fake = run->pass->fake;
    const struct model_hooks *hooks = run->pass->hooks;
    if (!trains(fake, 0))
        return ZD_OK;
    if (!fake->config.tied)
        return unit_grads(run, 0, false, false);
    ZD_TRY(write_grads(run, 0, true, false));
    return hooks->grads_release(hooks->ctx, 0);
}

static enum zd_status step_through(
        struct run *run, const struct unit_event *events, int count, bool train)
{
    const struct fake_pass *pass = run->pass;
    const struct model_hooks *hooks = pass->hooks;
    int head = pass->fake->config.layers + 1;
    bool backward = false;
    for (int i = 0; i < count; i++) {
        int unit = events[i].unit;
        if (events[i].acquire) {
            ZD_TRY(hooks->params_acquire(hooks->ctx, unit, run->params));
            ZD_TRY(see_late(run));
            ZD_TRY(see(run, unit));
            backward |= unit == head;
            if (train && backward && (unit == head || unit == 0))
                ZD_TRY(unit_grads(run, unit, true, true));
            continue;
        }
        if (train && backward && unit == head && trains(pass->fake, head))
            ZD_TRY(hooks->grads_release(hooks->ctx, head));
        if (train && backward && unit != head && unit != 0)
            ZD_TRY(unit_grads(run, unit, true, false));
        ZD_TRY(read_late(run, unit));
        ZD_TRY(hooks->params_release(hooks->ctx, unit));
    }
    return train ? embedding_grads(run) : ZD_OK;
}

size_t fake_largest_bytes(const struct fake *fake)
{
    size_t most = 0;
    for (int id = 0; id < fake->table.count; id++)
        if (fake->table.params[id].count > most)
            most = fake->table.params[id].count;
    return most * sizeof(float);
}

static enum zd_status run_pass(
        const struct fake_pass *pass, enum model_pass kind, double *sum_out)
{
    const struct fake *fake = pass->fake;
    struct unit_events events = model_unit_events(
            &fake->config, &fake->table, pass->checkpointing, kind);
    struct run run = {
            .pass = pass,
            .params = calloc((size_t)fake->table.count, sizeof *run.params),
            .grads = calloc((size_t)fake->table.count, sizeof *run.grads),
            .param = malloc(fake_largest_bytes(fake)),
            .grad = malloc(fake_largest_bytes(fake))};
    enum zd_status status =
            step_through(&run, events.list, events.count, kind == MODEL_TRAIN);
    free(events.list);
    free(run.params);
    free(run.grads);
    free(run.param);
    free(run.grad);
    if (sum_out)
        *sum_out = run.sum;
    return status;
}

enum zd_status fake_train(const struct fake_pass *pass, double *sum_out)
{
    return run_pass(pass, MODEL_TRAIN, sum_out);
}

enum zd_status fake_evaluate(const struct fake_pass *pass, double *sum_out)
{
    return run_pass(pass, MODEL_EVAL, sum_out);
}
