#include "model/merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct merged {
    const struct weight_source *base;
    const struct model_config *config;
    const struct param_table *table;
    struct merge_part *parts; /* owned */
    int part_count;
    int id;        /* of the tensor in `values`; -1: none */
    float *values; /* merged, as the table has it; owned */
    float *row;    /* of B A; owned */
};

static const struct peft_part *of(const struct merge_part *part, int id)
{
    return &part->adapter->parts[id];
}

static bool is_adapted(const struct merged *m, int id)
{
    for (int i = 0; i < m->part_count; i++)
        if (of(&m->parts[i], id)->a || of(&m->parts[i], id)->saved)
            return true;
    return false;
}

/* --- what cannot be merged ------------------------------------------------ */

static enum zd_status check_tensor(
        const struct param *p, int id, const struct merge_part *parts,
        int part_count)
{
    const struct merge_part *saves = NULL, *adapts = NULL;
    bool dora = false;
    for (int i = 0; i < part_count; i++) {
        const struct peft_part *part = of(&parts[i], id);
        const char *what = part->magnitude ? "DoRA" : "modules_to_save";
        if ((part->magnitude || part->saved) && parts[i].weight != 1)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0324",
                    "`%s` cannot be weighted by %g: `%s` is of %s",
                    parts[i].name, parts[i].weight, p->name, what);
        if (part->saved && saves)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0324", "`%s` and `%s` both save `%s` whole",
                    saves->name, parts[i].name, p->name);
        if (part->a && adapts && (dora || part->magnitude))
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0324",
                    "`%s` and `%s` both adapt `%s`, and one is DoRA, which is "
                    "no sum",
                    adapts->name, parts[i].name, p->name);
        if (part->saved)
            saves = &parts[i];
        if (part->a)
            adapts = &parts[i];
        dora = dora || part->magnitude;
    }
    return ZD_OK;
}

enum zd_status merge_check(
        const struct param_table *table, const struct merge_part *parts,
        int part_count)
{
    for (int id = 0; id < table->count; id++)
        ZD_TRY(check_tensor(&table->params[id], id, parts, part_count));
    return ZD_OK;
}

/* --- one tensor ----------------------------------------------------------- */

static bool is_turned(const struct merged *m, int id)
{
    const struct param *p = &m->table->params[id];
    return m->config->family == MODEL_GPT2 && !p->is_embedding &&
           strcmp(p->name, "lm_head.weight") != 0;
}

/* sum_k B[o, k] A[k, :] into m->row. */
static void product_row(
        const struct merged *m, const struct peft_part *part, const float *a,
        const float *b_row)
{
    memset(m->row, 0, (size_t)part->in * sizeof *m->row);
    for (int k = 0; k < part->r; k++) {
        const float *a_row = a + (size_t)k * (size_t)part->in;
        for (int i = 0; i < part->in; i++)
            m->row[i] += b_row[k] * a_row[i];
    }
}

/* Row `o` of W as the module has it: elements begin + i stride. */
static void add_row(
        const struct merged *m, const struct peft_part *part, bool turned,
        size_t o, double scale, const float *magnitude)
{
    size_t stride = turned ? (size_t)part->out : 1;
    float *w = m->values + (turned ? o : o * (size_t)part->in);
    double squares = 0;
    for (int i = 0; i < part->in; i++) {
        float *x = &w[(size_t)i * stride];
        *x += (float)scale * m->row[i];
        squares += (double)*x * *x;
    }
    if (!magnitude)
        return;
    float factor = magnitude[o] / (float)sqrt(squares);
    for (int i = 0; i < part->in; i++)
        w[(size_t)i * stride] *= factor;
}

static enum zd_status add_adapter(
        struct merged *m, int id, const struct merge_part *merge)
{
    const struct peft_part *part = of(merge, id);
    size_t a_count = part->a->count, b_count = part->b->count;
    size_t out = (size_t)part->out;
    float *a = malloc((a_count + b_count + out) * sizeof *a);
    if (!a)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an adapter");
    float *b = a + a_count, *magnitude = b + b_count;
    enum zd_status status = peft_read(merge->adapter, part->a, 0, a_count, a);
    if (status == ZD_OK)
        status = peft_read(merge->adapter, part->b, 0, b_count, b);
    if (status == ZD_OK && part->magnitude)
        status = peft_read(merge->adapter, part->magnitude, 0, out, magnitude);
    for (size_t o = 0; status == ZD_OK && o < out; o++) {
        product_row(m, part, a, b + o * (size_t)part->r);
        add_row(m, part, is_turned(m, id), o, merge->weight * part->scale,
                part->magnitude ? magnitude : NULL);
    }
    free(a);
    return status;
}

static enum zd_status read_base(struct merged *m, int id)
{
    size_t count = m->table->params[id].count;
    for (int i = 0; i < m->part_count; i++)
        if (of(&m->parts[i], id)->saved)
            return peft_read(
                    m->parts[i].adapter, of(&m->parts[i], id)->saved, 0, count,
                    m->values);
    return m->base->read(m->base->ctx, id, 0, count, m->values);
}

static enum zd_status merge_tensor(struct merged *m, int id)
{
    const struct param *p = &m->table->params[id];
    int64_t longest = p->shape[0] > p->shape[1] ? p->shape[0] : p->shape[1];
    m->id = -1;
    free(m->values);
    free(m->row);
    m->values = malloc(p->count * sizeof *m->values);
    m->row = malloc((size_t)longest * sizeof *m->row);
    if (!m->values || !m->row)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "no memory to merge `%s`", p->name);
    ZD_TRY(read_base(m, id));
    for (int i = 0; i < m->part_count; i++)
        if (of(&m->parts[i], id)->a)
            ZD_TRY(add_adapter(m, id, &m->parts[i]));
    m->id = id;
    return ZD_OK;
}

/* --- the source ----------------------------------------------------------- */

static enum zd_status merged_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    struct merged *m = ctx;
    if (!is_adapted(m, id))
        return m->base->read(m->base->ctx, id, begin, count, out);
    if (m->id != id)
        ZD_TRY(merge_tensor(m, id));
    memcpy(out, m->values + begin, count * sizeof *out);
    return ZD_OK;
}

static void merged_close(void *ctx)
{
    struct merged *m = ctx;
    free(m->parts);
    free(m->values);
    free(m->row);
    free(m);
}

enum zd_status weights_open_merged(
        const struct weight_source *base, const struct model_config *config,
        const struct param_table *table, const struct merge_part *parts,
        int part_count, struct weight_source *source_out)
{
    ZD_TRY(merge_check(table, parts, part_count));
    struct merged *m = calloc(1, sizeof *m);
    struct merge_part *copy = calloc((size_t)part_count + 1, sizeof *copy);
    if (!m || !copy) {
        free(m);
        free(copy);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory to merge");
    }
    for (int i = 0; i < part_count; i++)
        copy[i] = parts[i];
    *m = (struct merged){base, config, table, copy, part_count, -1, NULL, NULL};
    *source_out = (struct weight_source){merged_read, merged_close, m};
    return ZD_OK;
}
