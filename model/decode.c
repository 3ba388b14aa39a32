#include "model/internal.h"

#include <assert.h>

enum zd_status model_decode(
        struct model *model, const int32_t *tokens, int count, int past,
        const struct model_hooks *hooks, float *logits)
{
    struct pass pass = {
            .B = 1,
            .T = count,
            .N = count,
            .tokens = tokens,
            .decode = true,
            .past = past,
            .acts = &model->decode,
    };
    assert(count > 0 && count <= model->shape.decode_batch);
    assert(past >= 0 && past + count <= model->shape.decode_capacity);
    ZD_TRY(batch_place(model, &pass, false));
    hooks_begin(model, &model->eval_events);
    ZD_TRY(forward_layers(model, &pass, hooks));
    ZD_TRY(head_logits(model, &pass, hooks, logits));
    hooks_end(model);
    return ZD_OK;
}
