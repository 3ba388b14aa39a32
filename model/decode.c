#include "model/internal.h"

#include <assert.h>

enum zd_status model_decode(
        struct model *model, const int32_t *tokens,
        const struct decode_run *runs, int run_count,
        const struct model_hooks *hooks, float *logits)
{
    int count = 0;
    for (int r = 0; r < run_count; r++) {
        assert(runs[r].count > 0 && runs[r].past >= 0);
        assert(runs[r].past + runs[r].count <= model->shape.decode_capacity);
        assert(runs[r].text >= 0 && runs[r].text < decode_texts(&model->shape));
        count += runs[r].count;
    }
    assert(count > 0 && count <= model->shape.decode_batch);
    struct pass pass = {
            .B = 1,
            .T = count,
            .N = count,
            .tokens = tokens,
            .decode = true,
            .runs = runs,
            .run_count = run_count,
            .acts = &model->decode,
    };
    ZD_TRY(batch_place(model, &pass, false));
    hooks_begin(model, &model->eval_events);
    ZD_TRY(forward_layers(model, &pass, hooks));
    ZD_TRY(head_logits(model, &pass, hooks, logits));
    hooks_end(model);
    return ZD_OK;
}
