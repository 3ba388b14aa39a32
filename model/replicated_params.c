#include "model/replicated_params.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 };

struct replicated_params {
    const struct param_table *table;
    enum dtype dtype;
    void **params;      /* (table->count) */
    float **grads;      /* (table->count) */
    bool *unit_written; /* gradients since replicated_step_begin */
};

static enum zd_status no_memory(size_t bytes)
{
    return ZD_FAIL(
            ZD_ERR_MEMORY, "E0602", "no memory for %zu bytes of a model",
            bytes);
}

static enum zd_status read_param(
        struct replicated_params *replica, int id,
        const struct weight_source *source)
{
    size_t count = replica->table->params[id].count;
    size_t element = dtype_bytes(replica->dtype);
    char *to = replica->params[id] = malloc(count * element);
    if (!to)
        return no_memory(count * element);
    if (replica->dtype == DTYPE_FP32)
        return source->read(source->ctx, id, 0, count, (float *)to);
    float *piece = zd_array(PIECE, sizeof *piece);
    enum zd_status status = ZD_OK;
    for (size_t begin = 0; status == ZD_OK && begin < count; begin += PIECE) {
        size_t n = count - begin < PIECE ? count - begin : PIECE;
        status = source->read(source->ctx, id, begin, n, piece);
        if (status == ZD_OK)
            dtype_convert(
                    to + begin * element, replica->dtype, piece, DTYPE_FP32, n);
    }
    free(piece);
    return status;
}

static enum zd_status fill(
        struct replicated_params *replica, const struct weight_source *source,
        bool with_grads)
{
    size_t count = (size_t)replica->table->count;
    replica->params = zd_array(count, sizeof *replica->params);
    replica->grads = zd_array(count, sizeof *replica->grads);
    replica->unit_written = zd_array(
            (size_t)replica->table->unit_count, sizeof *replica->unit_written);
    for (int id = 0; id < replica->table->count; id++) {
        const struct param *param = &replica->table->params[id];
        ZD_TRY(read_param(replica, id, source));
        if (!with_grads || !param->trainable)
            continue;
        replica->grads[id] = malloc(param->count * sizeof(float));
        if (!replica->grads[id])
            return no_memory(param->count * sizeof(float));
    }
    return ZD_OK;
}

enum zd_status replicated_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source, bool with_grads,
        struct replicated_params **replica_out)
{
    struct replicated_params *replica = zd_array(1, sizeof *replica);
    replica->table = table;
    replica->dtype = dtype;
    enum zd_status status = fill(replica, source, with_grads);
    if (status != ZD_OK) {
        replicated_destroy(replica);
        return status;
    }
    *replica_out = replica;
    return ZD_OK;
}

void replicated_destroy(struct replicated_params *replica)
{
    if (!replica)
        return;
    for (int id = 0; id < replica->table->count; id++) {
        free(replica->params[id]);
        free(replica->grads[id]);
    }
    free(replica->params);
    free(replica->grads);
    free(replica->unit_written);
    free(replica);
}

static enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct replicated_params *replica = ctx;
    const int *first = replica->table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        params[id] = replica->params[id];
    return ZD_OK;
}

static enum zd_status params_release(void *ctx, int unit)
{
    return ZD_OK;
}

static enum zd_status grads_acquire(
        void *ctx, int unit, void **grads, bool *accumulate_out)
{
    struct replicated_params *replica = ctx;
    const int *first = replica->table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        grads[id] = replica->grads[id];
    *accumulate_out = replica->unit_written[unit];
    return ZD_OK;
}

static enum zd_status grads_release(void *ctx, int unit)
{
    struct replicated_params *replica = ctx;
    replica->unit_written[unit] = true;
    return ZD_OK;
}

struct model_hooks replicated_hooks(struct replicated_params *replica)
{
    return (struct model_hooks){
            replica, params_acquire, params_release, grads_acquire,
            grads_release};
}

void replicated_step_begin(struct replicated_params *replica)
{
    memset(replica->unit_written, 0,
           (size_t)replica->table->unit_count * sizeof *replica->unit_written);
}

void *replicated_param(struct replicated_params *replica, int id)
{
    return replica->params[id];
}

float *replicated_grad(struct replicated_params *replica, int id)
{
    return replica->grads[id];
}
