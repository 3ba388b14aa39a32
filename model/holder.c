#include "model/holder.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 };

struct holder {
    const struct param_table *table;
    enum dtype dtype;
    void **params;      /* (table->count) */
    float **grads;      /* (table->count) */
    bool *unit_written; /* gradients since holder_step_begin */
};

static enum zd_status no_memory(size_t bytes)
{
    return ZD_FAIL(
            ZD_ERR_MEMORY, "E0602", "no memory for %zu bytes of a model",
            bytes);
}

static enum zd_status read_param(
        struct holder *holder, int id, const struct weight_source *source)
{
    size_t count = holder->table->params[id].count;
    size_t element = dtype_bytes(holder->dtype);
    char *to = holder->params[id] = malloc(count * element);
    if (!to)
        return no_memory(count * element);
    if (holder->dtype == DTYPE_FP32)
        return source->read(source->ctx, id, 0, count, (float *)to);
    float *piece = malloc(PIECE * sizeof *piece);
    enum zd_status status = piece ? ZD_OK : no_memory(PIECE * sizeof *piece);
    for (size_t begin = 0; status == ZD_OK && begin < count; begin += PIECE) {
        size_t n = count - begin < PIECE ? count - begin : PIECE;
        status = source->read(source->ctx, id, begin, n, piece);
        if (status == ZD_OK)
            dtype_convert(
                    to + begin * element, holder->dtype, piece, DTYPE_FP32, n);
    }
    free(piece);
    return status;
}

static enum zd_status fill(
        struct holder *holder, const struct weight_source *source,
        bool with_grads)
{
    size_t count = (size_t)holder->table->count;
    holder->params = calloc(count, sizeof *holder->params);
    holder->grads = calloc(count, sizeof *holder->grads);
    holder->unit_written = calloc(
            (size_t)holder->table->unit_count, sizeof *holder->unit_written);
    if (!holder->params || !holder->grads || !holder->unit_written)
        return no_memory(count * sizeof *holder->params);
    for (int id = 0; id < holder->table->count; id++) {
        const struct param *param = &holder->table->params[id];
        ZD_TRY(read_param(holder, id, source));
        if (!with_grads || !param->trainable)
            continue;
        holder->grads[id] = malloc(param->count * sizeof(float));
        if (!holder->grads[id])
            return no_memory(param->count * sizeof(float));
    }
    return ZD_OK;
}

enum zd_status holder_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source, bool with_grads,
        struct holder **holder_out)
{
    struct holder *holder = calloc(1, sizeof *holder);
    if (!holder)
        return no_memory(sizeof *holder);
    holder->table = table;
    holder->dtype = dtype;
    enum zd_status status = fill(holder, source, with_grads);
    if (status != ZD_OK) {
        holder_destroy(holder);
        return status;
    }
    *holder_out = holder;
    return ZD_OK;
}

void holder_destroy(struct holder *holder)
{
    if (!holder)
        return;
    for (int id = 0; id < holder->table->count; id++) {
        if (holder->params)
            free(holder->params[id]);
        if (holder->grads)
            free(holder->grads[id]);
    }
    free(holder->params);
    free(holder->grads);
    free(holder->unit_written);
    free(holder);
}

static enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct holder *holder = ctx;
    const int *first = holder->table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        params[id] = holder->params[id];
    return ZD_OK;
}

static enum zd_status params_release(void *ctx, int unit)
{
    return ZD_OK;
}

static enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct holder *holder = ctx;
    const int *first = holder->table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        grads[id] = holder->grads[id];
    *accumulate_out = holder->unit_written[unit];
    return ZD_OK;
}

static enum zd_status grads_release(void *ctx, int unit)
{
    struct holder *holder = ctx;
    holder->unit_written[unit] = true;
    return ZD_OK;
}

struct model_hooks holder_hooks(struct holder *holder)
{
    return (struct model_hooks){
            holder, params_acquire, params_release, grads_acquire,
            grads_release};
}

void holder_step_begin(struct holder *holder)
{
    memset(holder->unit_written, 0,
           (size_t)holder->table->unit_count * sizeof *holder->unit_written);
}

void *holder_param(struct holder *holder, int id)
{
    return holder->params[id];
}

float *holder_grad(struct holder *holder, int id)
{
    return holder->grads[id];
}
