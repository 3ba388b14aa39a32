#include "model/adapters/merge.h"
#include "model/files/vocab_resize.h"

#include <stdlib.h>

struct adapted {
    struct weight_source base, merged;
    struct peft_adapter *adapters; /* owned */
    int adapter_count;
};

static enum zd_status adapted_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    const struct adapted *a = ctx;
    return a->merged.read(a->merged.ctx, id, begin, count, out);
}

static void adapted_close(void *ctx)
{
    struct adapted *a = ctx;
    if (a->merged.read)
        weights_close(&a->merged);
    for (int i = 0; i < a->adapter_count; i++)
        peft_close(&a->adapters[i]);
    free(a->adapters);
    if (a->base.read)
        weights_close(&a->base);
    free(a);
}

static enum zd_status open_adapters(
        struct adapted *a, const struct model_config *config,
        const struct param_table *table, const struct adapter_choice *choices,
        struct merge_part *parts, int choice_count)
{
    for (int i = 0; i < choice_count; i++) {
        ZD_TRY(peft_open(choices[i].dir, config, table, &a->adapters[i]));
        a->adapter_count++;
        parts[i] = merge_part_of_peft(
                &a->adapters[i], choices[i].weight, choices[i].dir);
    }
    return weights_open_merged(
            &a->base, table, parts, choice_count, &a->merged);
}

enum zd_status weights_open_adapted(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct adapter_choice *choices,
        int choice_count, enum dtype *storage_out,
        struct weight_source *source_out)
{
    if (choice_count == 0)
        return weights_open_resized(
                dir, config, table, storage_out, source_out);
    size_t count = (size_t)choice_count;
    struct adapted *a = calloc(1, sizeof *a);
    struct merge_part *parts = calloc(count, sizeof *parts);
    if (a)
        a->adapters = calloc(count, sizeof *a->adapters);
    enum zd_status status =
            a && parts && a->adapters
                    ? ZD_OK
                    : ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory to merge");
    if (status == ZD_OK)
        status =
                weights_open_resized(dir, config, table, storage_out, &a->base);
    if (status == ZD_OK)
        status = open_adapters(a, config, table, choices, parts, choice_count);
    free(parts);
    if (status != ZD_OK) {
        if (a)
            adapted_close(a);
        return status;
    }
    *source_out = (struct weight_source){adapted_read, adapted_close, a};
    return ZD_OK;
}
