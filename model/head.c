/* head.c - the final norm, logits and losses, a chunk of tokens at a time. In
 * training the head computes only positions that have a target:
 *
 *   gather     last (N, C) -> gathered (rows, C)     the head's input
 *   head       gathered    -> last (rows, C)         gradients, in its place
 *   scatter    last        -> dx (N, C)              0 where there is no target
 *
 * `gathered` is an array that is unused meanwhile: dx in training. If all
 * positions have a target, nothing is moved. */
#include "model/internal.h"

#include "base/device/device_memory.h"

/* --- rows that have a target ---------------------------------------------- */

static enum zd_status gather_rows(struct model *model, const struct pass *pass)
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

static enum zd_status scatter_rows(
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

/* --- the loss ------------------------------------------------------------- */

static struct norm head_norm(const struct model *model, int N, bool accumulate)
{
    return unit_norm(
            model, model->config->layers + 1, ROLE_FINAL_NORM, N, accumulate);
}

static enum zd_status head_acquire(struct model *model)
{
    ZD_TRY(unit_acquire(model, model->config->layers + 1));
    return model->config->tied ? unit_acquire(model, 0) : ZD_OK;
}

static enum zd_status head_release(struct model *model)
{
    if (model->config->tied)
        ZD_TRY(unit_release(model, 0));
    return unit_release(model, model->config->layers + 1);
}

/* The gradients of the head, and which of them to accumulate to. */
struct head_grads {
    bool head_add, norm_add;
    bool dx_needed;
};

/* A tied head's gradient belongs to the embedding's unit, which stays acquired
 * until the embedding has added its part. */
static enum zd_status head_grads_acquire(
        struct model *model, struct head_grads *grads)
{
    const struct model_config *c = model->config;
    struct norm norm;
    ZD_TRY(unit_grads_acquire(model, c->layers + 1, &grads->norm_add));
    grads->head_add = grads->norm_add;
    if (c->tied && model->table->params[model->head].trainable) {
        ZD_TRY(unit_grads_acquire(model, 0, &model->embedding_accumulates));
        model->embedding_grads_held = true;
        grads->head_add = model->embedding_accumulates;
    }
    norm = head_norm(model, 0, false);
    grads->dx_needed = norm.dweight || norm.dbias ||
                       model->passes[PASS_TRAIN].first <= c->layers;
    return ZD_OK;
}

/* The head's input: the last layer's output, or rows of it. */
static char *head_input(const struct pass *pass)
{
    return pass->rows ? pass->acts->gathered : pass->acts->last;
}

static size_t row_bytes(const struct model *model)
{
    return (size_t)model->config->hidden_size *
           dtype_bytes(model->kernels->dtype);
}

/* Computes the logits of rows begin .. begin+n-1 of the head's input, for each
 * share. */
static enum zd_status chunk_logits(
        const struct model *model, const struct pass *pass, int begin, int n)
{
    const struct head_acts *h = &pass->acts->head;
    size_t offset = (size_t)begin * row_bytes(model);
    char *x = head_input(pass) + offset;
    struct residual_sum due = model->due[pass->micro];
    void *inputs;
    if (due.a)
        due = (struct residual_sum){
                (const char *)due.a + offset, (const char *)due.b + offset};
    ZD_TRY(norm_forward_sum(
            head_norm(model, n, false), h->norm, h->mean, h->rstd, x, due));
    ZD_TRY(tokens_gather(model, 1, h->norm, n, &inputs));
    struct linear head =
            head_linear(model, pass, begin, n * tp_size(model->config), false);
    return linear_forward(&head, h->logits, inputs);
}

/* Uses the inputs that chunk_logits has gathered. */
static enum zd_status chunk_backward(
        const struct model *model, const struct pass *pass, int begin, int n,
        struct head_grads *grads)
{
    const struct head_acts *h = &pass->acts->head;
    size_t offset = (size_t)begin * row_bytes(model);
    char *dx = pass->rows ? pass->acts->last : pass->acts->dx;
    int all = n * tp_size(model->config);
    /* with an adapter, which a tied head cannot have, both are the same */
    struct linear head = head_linear(model, pass, begin, all, grads->head_add);
    const void *inputs = all > n ? model->gathered.all_tokens[1] : h->norm;
    void *dnorm = tokens_part(model, h->dnorm);
    ZD_TRY(linear_backward(
            &head, grads->dx_needed ? dnorm : NULL, h->dlogits, inputs));
    if (grads->dx_needed)
        ZD_TRY(tokens_scatter(model, h->dnorm, dnorm, n));
    if (grads->dx_needed)
        ZD_TRY(norm_backward(
                head_norm(model, n, grads->norm_add), dx + offset, h->dnorm,
                NULL, head_input(pass) + offset, h->mean, h->rstd));
    grads->head_add = grads->norm_add = true;
    return ZD_OK;
}

static enum zd_status next_token_loss(
        const struct kernels *kernels, const struct loss_rows *rows)
{
    return kernels->cross_entropy(NULL, rows);
}

/* The map from the matmul's result to logits; false: the identity. */
static bool head_map(const struct model_config *config, struct logit_map *out)
{
    *out = (struct logit_map){
            config->logits_scale ? (float)config->logits_scale : 1,
            (float)config->logit_softcap};
    return config->logits_scale || config->logit_softcap;
}

/* Losses of rows of logits, with the vocabulary cut over places. */
static enum zd_status sliced_losses(
        const struct model *model, const struct pass *pass,
        const struct loss_rows *rows)
{
    const struct kernels *k = model->kernels;
    const struct head_acts *h = &pass->acts->head;
    int places = tp_size(model->config);
    struct row_score *own = h->scores + (size_t)places * (size_t)rows->n;
    ZD_TRY(k->row_scores(NULL, own, rows));
    ZD_TRY(places_call(
            model, PLACES_SCORES_GATHER, h->scores, own,
            (size_t)rows->n * sizeof *own / sizeof(float)));
    return k->row_losses(NULL, rows, h->scores, places);
}

/* The losses of one pass; with `grads` also the head's backward. */
static enum zd_status pass_loss(
        struct model *model, const struct pass *pass, float dloss,
        struct head_grads *grads)
{
    const struct kernels *k = model->kernels;
    const struct head_acts *h = &pass->acts->head;
    struct logit_map map;
    bool maps = head_map(model->config, &map), train = grads != NULL;
    token_loss_fn *token_loss =
            model->shape.token_loss ? model->shape.token_loss : next_token_loss;
    ZD_TRY(gather_rows(model, pass));
    int tp = tp_size(model->config), rows = pass->head_rows / tp;
    int chunk = h->chunk / tp;
    for (int begin = 0; begin < rows; begin += chunk) {
        int left = rows - begin, n = left < chunk ? left : chunk;
        const struct loss_rows of = {
                .losses = h->losses,
                .dlogits = train ? h->dlogits : NULL,
                .logits = h->logits,
                .targets = pass->targets + begin * tp,
                .dloss = dloss,
                .n = n * tp,
                .stride = h->stride,
                .slice = model->vocabulary,
                .map = maps ? &map : NULL};
        ZD_TRY(chunk_logits(model, pass, begin, n));
        ZD_TRY(tp > 1 ? sliced_losses(model, pass, &of) : token_loss(k, &of));
        ZD_TRY(k->add_losses(NULL, model->loss, h->losses, n * tp));
        if (train)
            ZD_TRY(chunk_backward(model, pass, begin, n, grads));
    }
    model->due[pass->micro] = (struct residual_sum){0};
    return train && grads->dx_needed ? scatter_rows(model, pass) : ZD_OK;
}

enum zd_status head_loss(
        struct model *model, const struct pass *passes, int count, bool train,
        float dloss)
{
    struct head_grads grads = {0};
    ZD_TRY(head_acquire(model));
    if (train)
        ZD_TRY(head_grads_acquire(model, &grads));
    for (int m = 0; m < count; m++)
        ZD_TRY(pass_loss(model, &passes[m], dloss, train ? &grads : NULL));
    if (train)
        ZD_TRY(unit_grads_release(model, model->config->layers + 1));
    return head_release(model);
}

/* --- decoding ------------------------------------------------------------- */

/* The last layer's output for all tokens, with the pending sum computed; with
 * tensor parallelism gathered, because any place may have a run's last row. */
static enum zd_status decode_hidden(
        struct model *model, const struct pass *pass, char **all_out)
{
    struct residual_sum *due = &model->due[pass->micro];
    size_t count = (size_t)pass->share * (size_t)model->config->hidden_size;
    void *all = pass->acts->last;
    if (due->a)
        ZD_TRY(model->kernels->add(NULL, all, due->a, due->b, count));
    *due = (struct residual_sum){0};
    ZD_TRY(tokens_gather(model, 0, all, pass->share, &all));
    *all_out = all;
    return ZD_OK;
}

/* The logits of n rows from all places, one place after the other. */
static enum zd_status decode_logits(
        const struct model *model, const struct pass *pass, char *x, int begin,
        int n, const float **all_out)
{
    const struct head_acts *h = &pass->acts->head;
    x += (size_t)begin * row_bytes(model);
    ZD_TRY(norm_forward_sum(
            head_norm(model, n, false), h->norm, h->mean, h->rstd, x,
            (struct residual_sum){0}));
    struct linear head = head_linear(model, pass, begin, n, false);
    ZD_TRY(linear_forward(&head, h->logits, h->norm));
    *all_out = h->logits;
    if (!h->all_logits)
        return ZD_OK;
    *all_out = h->all_logits;
    return places_call(
            model, PLACES_SCORES_GATHER, h->all_logits, h->logits,
            (size_t)n * (size_t)h->stride);
}

/* Copies the logits of `runs` runs, from run `first` on, to the host. */
static enum zd_status read_logits(
        const struct model *model, const struct pass *pass, const float *from,
        int runs, float *logits, int first)
{
    size_t stride = (size_t)pass->acts->head.stride;
    size_t V = (size_t)model->whole_vocabulary;
    size_t own = (size_t)model->config->vocab_size;
    for (size_t at = 0; at < V; at += own)
        for (size_t i = 0; i < (size_t)runs; i++, from += stride)
            ZD_TRY(device_read(
                    logits + ((size_t)first + i) * V + at, from,
                    (V - at < own ? V - at : own) * sizeof *logits));
    struct logit_map map;
    if (head_map(model->config, &map))
        logit_map_apply(&map, logits + (size_t)first * V, (size_t)runs * V);
    return ZD_OK;
}

enum zd_status head_logits(
        struct model *model, const struct pass *pass, float *logits)
{
    char *hidden;
    const float *all;
    ZD_TRY(head_acquire(model));
    ZD_TRY(decode_hidden(model, pass, &hidden));
    for (int r = 0, end = 0, runs; r < pass->run_count; r += runs) {
        end += pass->runs[r].count;
        runs = 1; /* runs with consecutive last tokens, at most a chunk */
        while (r + runs < pass->run_count && runs < pass->acts->head.chunk &&
               pass->runs[r + runs].count == 1)
            runs++;
        ZD_TRY(decode_logits(model, pass, hidden, end - 1, runs, &all));
        ZD_TRY(read_logits(model, pass, all, runs, logits, r));
        end += runs - 1;
    }
    return head_release(model);
}

enum zd_status model_loss_take(struct model *model, struct exact_sum *sum_out)
{
    ZD_TRY(device_read(sum_out, model->loss, sizeof *sum_out));
    return device_clear(model->loss, sizeof *model->loss);
}
