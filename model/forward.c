#include "model/internal.h"

#include <assert.h>
#include <string.h>

struct layer_acts kept_acts(const struct pass *pass, int layer)
{
    const struct activations *acts = pass->acts;
    int i = layer - acts->first;
    struct layer_acts slot = acts->slots[i % acts->segment];
    if (i % acts->segment == 0)
        slot.attention.x = pass->inputs[i / acts->segment];
    if (!slot.attention.norm)
        slot.attention.norm = slot.attention.x;
    return slot;
}

/* The memory of a layer's output: the input of the next. */
static void *output_of(const struct pass *pass, int layer, int layers)
{
    const struct activations *acts = pass->acts;
    if (layer == layers)
        return acts->last;
    if (layer + 1 < acts->first)
        return acts->lean.attention.x;
    return kept_acts(pass, layer + 1).attention.x;
}

enum zd_status forward_kept(
        struct model *model, const struct pass *pass, int layer, bool leaves,
        bool output)
{
    struct layer_acts slot = kept_acts(pass, layer);
    void *out = output ? output_of(pass, layer, model->config->layers) : NULL;
    struct layer_run run = {model, pass, &slot, layer};
    struct residual_sum *due = &model->due[pass->micro];
    if (leaves && pass->acts->recompute) /* backward casts its inputs */
        memset(slot.xt, 0, sizeof slot.xt);
    ZD_TRY(layer_input_norm(&run, due));
    if (leaves)
        ZD_TRY(residuals_leave(model, pass, layer));
    return layer_forward(&run, pass->acts->scratch, out, due);
}

/* Normally the norm of the next layer computes the sum of a layer's output in
 * the same pass over memory. Sums it here if its terms would be overwritten
 * before: by arrays of the next layer, of the head, or of the next micro-batch.
 */
static enum zd_status settle_sum(
        struct model *model, const struct pass *pass, int layer)
{
    const struct activations *acts = pass->acts;
    int layers = model->config->layers, i = layer + 1 - acts->first;
    struct residual_sum due = model->due[pass->micro];
    size_t count = (size_t)pass->share * (size_t)model->config->hidden_size;
    bool is_covered = layer == layers ? acts->head_covers
                      : i <= 0        ? i == 0 || acts->micros > 1
                               : acts->is_shared && i % acts->segment == 0;
    if (!is_covered)
        return ZD_OK;
    model->due[pass->micro] = (struct residual_sum){0};
    return model->kernels->add(
            NULL, output_of(pass, layer, layers), due.a, due.b, count);
}

static enum zd_status forward_one(
        struct model *model, const struct pass *pass, int layer)
{
    const struct activations *acts = pass->acts;
    struct layer_acts lean = acts->lean;
    struct layer_run run = {model, pass, &lean, layer};
    struct residual_sum *due = &model->due[pass->micro];
    void *out = output_of(pass, layer, model->config->layers);
    ZD_TRY(fp8_weights(model, pass, layer));
    if (layer >= acts->first) {
        ZD_TRY(forward_kept(model, pass, layer, true, true));
    } else {
        lean.gains += (size_t)(layer - 1) * acts->layer_gains;
        ZD_TRY(layer_input_norm(&run, due));
        ZD_TRY(layer_forward(&run, acts->lean_scratch, out, due));
    }
    return settle_sum(model, pass, layer);
}

/* Embedding and layers of each pass; the result is in its acts->last. */
static enum zd_status forward_layers(
        struct model *model, const struct pass *passes, int count)
{
    int layers = model->config->layers;
    const struct activations *acts = passes->acts;
    ZD_TRY(unit_acquire(model, 0));
    for (int m = 0; m < count; m++) {
        model->due[m] = (struct residual_sum){0};
        ZD_TRY(embedding_forward(
                model, &passes[m], output_of(&passes[m], 0, layers)));
    }
    ZD_TRY(unit_release(model, 0));
    for (int layer = 1; layer <= layers; layer++) {
        ZD_TRY(unit_acquire(model, layer));
        /* a segment with the micro-batches in reverse order (residuals.c) */
        bool back = acts->offloaded && layer >= acts->first &&
                    (layer - acts->first) / acts->segment == acts->segments - 2;
        for (int m = 0; m < count; m++)
            ZD_TRY(forward_one(
                    model, &passes[back ? count - 1 - m : m], layer));
        ZD_TRY(unit_release(model, layer));
    }
    return ZD_OK;
}

static struct pass pass_of(
        const struct model *model, const struct model_batch *batch,
        struct activations *acts)
{
    int cp = cp_size(&model->shape), tp = tp_size(model->config);
    int N = batch->B * (batch->T / cp);
    bool by_heads = cp_by_heads(&model->shape);
    struct attention_queries queries = {0};
    assert(N % tp == 0 && (cp == 1 || batch->T % (2 * cp) == 0));
    if (cp > 1)
        queries = attention_share(batch->T, cp, model->shape.cp.place);
    return (struct pass){
            .B = batch->B,
            .T = batch->T,
            .N = N,
            .queries = queries,
            .share = N / tp,
            .tokens = batch->tokens,
            .targets = batch->targets,
            .doc_start = batch->doc_start,
            .attention_start =
                    by_heads ? batch->all_doc_start : batch->doc_start,
            .by_heads = by_heads,
            .acts = acts,
            .inputs = acts->inputs,
            .step = batch->step,
            .first_sample = batch->first_sample,
    };
}

enum zd_status model_forward(
        struct model *model, const struct model_batch *batches, int count,
        float dloss, const struct model_hooks *hooks)
{
    assert(count > 0 && count <= shape_micros(&model->shape));
    model->pass_count = count;
    for (int m = 0; m < count; m++) {
        const struct model_batch *batch = &batches[m];
        struct pass *pass = &model->pass[m];
        *pass = pass_of(model, batch, &model->passes[PASS_TRAIN + m]);
        pass->micro = m;
        pass->drops = model->shape.dropout > 0;
        assert(batch->B <= model->shape.B && batch->T <= model->shape.T);
        ZD_TRY(batch_place(model, pass, true));
    }
    hooks_begin(model, &model->train_events, hooks);
    ZD_TRY(forward_layers(model, model->pass, count));
    return head_loss(model, model->pass, count, true, dloss);
}

enum zd_status model_evaluate(
        struct model *model, const struct model_batch *batch,
        const struct model_hooks *hooks)
{
    struct pass pass = pass_of(model, batch, &model->passes[PASS_EVAL]);
    assert(batch->B <= model->shape.eval_B && batch->T <= model->shape.T);
    ZD_TRY(batch_place(model, &pass, false));
    hooks_begin(model, &model->eval_events, hooks);
    ZD_TRY(forward_layers(model, &pass, 1));
    ZD_TRY(head_loss(model, &pass, 1, false, 0.0f));
    hooks_end(model);
    return ZD_OK;
}

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
    int tp = tp_size(model->config), share = (count + tp - 1) / tp;
    assert(count > 0 && share * tp <= model->shape.decode_batch);
    struct pass pass = {
            .B = 1,
            .T = share * tp,
            .N = share * tp,
            .share = share,
            .tokens = tokens,
            .decode = true,
            .runs = runs,
            .run_count = run_count,
            .pads = share * tp - count,
            .acts = &model->passes[PASS_DECODE],
    };
    ZD_TRY(batch_place(model, &pass, false));
    hooks_begin(model, &model->eval_events, hooks);
    ZD_TRY(forward_layers(model, &pass, 1));
    ZD_TRY(head_logits(model, &pass, logits));
    hooks_end(model);
    return ZD_OK;
}
