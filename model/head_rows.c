/* head_rows.c - the head computes the positions that have a target.
 *
 *   gather     last (N, C) -> gathered (rows, C)     what the head reads
 *   head       gathered    -> last (rows, C)         gradients, in its place
 *   scatter    last        -> dx (N, C)              0 where there is no target
 *
 * `gathered` is an array that nothing else uses meanwhile: dx itself in
 * training. Where all positions have a target nothing is moved. */
#include "model/internal.h"

#include "base/device/device_memory.h"

/* Multiples of this, so that the head's products have few shapes: libraries
 * keep what they make for a shape. */
static int rows_step(int chunk)
{
    enum { SHAPES = 16, EDGE = 16 };
    return ((chunk + SHAPES - 1) / SHAPES + EDGE - 1) / EDGE * EDGE;
}

/* Dropout of the head's own adapter counts rows of the pass. */
static bool drops_rows(const struct model *model, const struct pass *pass)
{
    return pass->drops && !model->config->tied &&
           param_has_adapter(model->table, model->head);
}

bool head_rows_count(const struct model *model, struct pass *pass)
{
    int step = rows_step(pass->acts->head.chunk), targets = 0;
    pass->head_rows = pass->N;
    if (!pass->targets || drops_rows(model, pass))
        return false;
    for (int n = 0; n < pass->N; n++)
        targets += pass->targets[n] >= 0;
    int rows = ((targets > 0 ? targets : 1) + step - 1) / step * step;
    if (rows >= pass->N)
        return false;
    pass->head_targets = targets;
    pass->head_rows = rows;
    return true;
}

void head_rows_fill(
        const struct pass *pass, int32_t *targets, int32_t *rows,
        int32_t *places)
{
    int count = 0;
    for (int n = 0; n < pass->N; n++) {
        bool has_target = pass->targets[n] >= 0;
        places[n] = has_target ? count : pass->head_targets;
        if (has_target) {
            rows[count] = n;
            targets[count++] = pass->targets[n];
        }
    }
    for (; count < pass->head_rows; count++) {
        rows[count] = 0;
        targets[count] = -1;
    }
}

enum zd_status head_rows_gather(struct model *model, const struct pass *pass)
{
    const struct activations *acts = pass->acts;
    struct residual_sum due = model->due[pass->micro];
    int C = model->config->hidden_size;
    if (!pass->rows)
        return ZD_OK;
    if (due.a)
        ZD_TRY(model->kernels->add(
                NULL, acts->last, due.a, due.b, (size_t)pass->N * (size_t)C));
    model->due[pass->micro] = (struct residual_sum){0};
    return model->kernels->embedding_forward(
            NULL, acts->gathered, pass->rows, acts->last, pass->head_rows, C,
            false);
}

enum zd_status head_rows_scatter(
        const struct model *model, const struct pass *pass)
{
    const struct activations *acts = pass->acts;
    size_t C = (size_t)model->config->hidden_size;
    size_t row = C * dtype_bytes(model->kernels->dtype);
    if (!pass->rows)
        return ZD_OK;
    ZD_TRY(device_clear(
            (char *)acts->last + (size_t)pass->head_targets * row, row));
    return model->kernels->embedding_forward(
            NULL, acts->dx, pass->places, acts->last, pass->N, (int)C, false);
}
