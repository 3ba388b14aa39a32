#include "model/replicated_params.h"
#include "base/must.h"

#include <stdlib.h>

enum { PIECE = 1 << 16 };

struct replicated_params {
    const struct param_table *table;
    enum dtype dtype;
    size_t *offsets; /* (table->count) elements before each tensor */
    char *params;    /* all tensors, one after the other */
};

static enum zd_status read_param(
        struct replicated_params *replica, int id, float *piece,
        const struct weight_source *source)
{
    size_t count = replica->table->params[id].count;
    size_t element = dtype_bytes(replica->dtype);
    char *to = replicated_param(replica, id);
    for (size_t begin = 0; begin < count; begin += PIECE) {
        size_t n = count - begin < PIECE ? count - begin : PIECE;
        ZD_TRY(source->read(source->ctx, id, begin, n, piece));
        dtype_convert(
                to + begin * element, replica->dtype, piece, DTYPE_FP32, n);
    }
    return ZD_OK;
}

enum zd_status replicated_create(
        const struct param_table *table, enum dtype dtype,
        const struct weight_source *source,
        struct replicated_params **replica_out)
{
    struct replicated_params *replica = zd_array(1, sizeof *replica);
    ZD_FREED float *piece = zd_array(PIECE, sizeof *piece);
    enum zd_status status = ZD_OK;
    *replica = (struct replicated_params){
            .table = table,
            .dtype = dtype,
            .offsets = zd_array((size_t)table->count, sizeof(size_t)),
            .params = zd_array(table->total, dtype_bytes(dtype))};
    for (int id = 1; id < table->count; id++)
        replica->offsets[id] =
                replica->offsets[id - 1] + table->params[id - 1].count;
    for (int id = 0; status == ZD_OK && id < table->count; id++)
        status = read_param(replica, id, piece, source);
    if (status != ZD_OK)
        replicated_destroy(replica);
    else
        *replica_out = replica;
    return status;
}

void replicated_destroy(struct replicated_params *replica)
{
    if (!replica)
        return;
    free(replica->offsets);
    free(replica->params);
    free(replica);
}

static enum zd_status params_acquire(void *ctx, int unit, const void **params)
{
    struct replicated_params *replica = ctx;
    const int *first = replica->table->unit_first;
    for (int id = first[unit]; id < first[unit + 1]; id++)
        params[id] = replicated_param(replica, id);
    return ZD_OK;
}

static enum zd_status params_release(void *ctx, int unit)
{
    return ZD_OK;
}

struct model_hooks replicated_hooks(struct replicated_params *replica)
{
    return (struct model_hooks){replica, params_acquire, params_release};
}

void *replicated_param(struct replicated_params *replica, int id)
{
    return replica->params + replica->offsets[id] * dtype_bytes(replica->dtype);
}
