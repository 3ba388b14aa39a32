#include "model/adapters/merge.h"
#include "base/log.h"
#include "base/must.h"
#include "model/files/weights_hf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct merged {
    struct weight_source base;
    const struct param_table *table;
    struct merge_part *parts; /* owned */
    int part_count;
    struct peft_adapter *adapters; /* (part_count), owned together with the
                                      base; NULL: neither is owned */
    int id;                        /* the tensor in `values`; -1: none */
    float *values;                 /* the merged tensor, in the table's order;
                                      owned */
};

static bool is_adapted(const struct merged *m, int id)
{
    for (int i = 0; i < m->part_count; i++)
        if (m->parts[i].parts[id].r)
            return true;
    return false;
}

/* --- of PEFT's files ------------------------------------------------------ */

static enum zd_status stored_read(
        const void *ctx, int id, enum peft_kind kind, size_t begin,
        size_t count, float *out)
{
    const struct peft_adapter *adapter = ctx;
    const struct st_tensor *const *tensors = adapter->parts[id].tensors;
    if (kind == PEFT_SAVED && !tensors[PEFT_SAVED])
        kind = PEFT_UNDER;
    return peft_read(adapter, tensors[kind], begin, count, out);
}

struct merge_part merge_part_of_peft(
        const struct peft_adapter *adapter, double weight, const char *name)
{
    return (struct merge_part){
            adapter->parts, {stored_read, adapter}, weight, name};
}

/* --- what cannot be merged ------------------------------------------------ */

static enum zd_status check_tensor(
        const struct param *p, int id, const struct merge_part *parts,
        int part_count)
{
    const struct merge_part *saves = NULL, *adapts = NULL;
    bool dora = false;
    for (int i = 0; i < part_count; i++) {
        const struct peft_part *what = &parts[i].parts[id];
        bool is_dora = what->has[PEFT_MAGNITUDE];
        bool is_saved = what->has[PEFT_SAVED];
        if ((is_dora || is_saved) && parts[i].weight != 1) {
            ZD_BAD("E0324", "`%s` cannot be weighted by %g: `%s` is of %s",
                   parts[i].name, parts[i].weight, p->name,
                   is_dora ? "DoRA" : "modules_to_save");
            return zd_fail_help("give it the weight 1");
        }
        if (is_saved && saves)
            return ZD_BAD(
                    "E0324", "`%s` and `%s` both save `%s` whole", saves->name,
                    parts[i].name, p->name);
        if (what->r && adapts && (dora || is_dora))
            return ZD_BAD(
                    "E0324",
                    "`%s` and `%s` both adapt `%s`, and one is DoRA, which "
                    "cannot be combined",
                    adapts->name, parts[i].name, p->name);
        saves = is_saved ? &parts[i] : saves;
        adapts = what->r ? &parts[i] : adapts;
        dora |= is_dora;
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

static enum zd_status read_all(
        const struct merge_part *part, int id, enum peft_kind kind,
        size_t count, float *out)
{
    return part->source.read(part->source.ctx, id, kind, 0, count, out);
}

/* Computes W + scale B A in place, in W's storage order; with DoRA each row of
 * the sum is then scaled to its norm `magnitude`. Each product is summed over r
 * in fp32, then scaled and added once: within one rounding of PEFT's
 * merge_and_unload. Norms are summed in double. `row` is scratch, (in). */
static void merge_into(
        float *weight, const struct param *p, double scale,
        const struct peft_part *what, const float *a, const float *b,
        const float *magnitude, float *row)
{
    size_t in = (size_t)param_in(p), out = (size_t)param_out(p);
    size_t stride = p->conv1d ? out : 1, r = (size_t)what->r;
    for (size_t o = 0; o < out; o++) {
        float *w = weight + (p->conv1d ? o : o * in);
        double squares = 0;
        memset(row, 0, in * sizeof *row); /* sum_k B[o, k] A[k, :] */
        for (size_t k = 0; k < r; k++)
            for (size_t i = 0; i < in; i++)
                row[i] += b[o * r + k] * a[k * in + i];
        for (size_t i = 0; i < in; i++) {
            float *x = &w[i * stride];
            *x += (float)scale * row[i];
            squares += (double)*x * *x;
        }
        if (!what->has[PEFT_MAGNITUDE])
            continue;
        float factor = magnitude[o] / (float)sqrt(squares);
        for (size_t i = 0; i < in; i++)
            w[i * stride] *= factor;
    }
}

static enum zd_status add_adapter(
        struct merged *m, int id, const struct merge_part *part)
{
    const struct peft_part *what = &part->parts[id];
    const struct param *p = &m->table->params[id];
    size_t in = (size_t)param_in(p), out = (size_t)param_out(p);
    size_t r = (size_t)what->r;
    ZD_FREED float *a = zd_array(r * in + out * r + out + in, sizeof *a);
    float *b = a + r * in, *magnitude = b + out * r, *row = magnitude + out;
    ZD_TRY(read_all(part, id, PEFT_A, r * in, a));
    ZD_TRY(read_all(part, id, PEFT_B, out * r, b));
    if (what->has[PEFT_MAGNITUDE])
        ZD_TRY(read_all(part, id, PEFT_MAGNITUDE, out, magnitude));
    merge_into(
            m->values, p, part->weight * what->scale, what, a, b, magnitude,
            row);
    return ZD_OK;
}

/* Reads the tensor that adapters are added to: the base's, or the one from
 * modules_to_save, or the first PEFT_UNDER. */
static enum zd_status read_under(
        const struct merged *m, int id, size_t begin, size_t count, float *out)
{
    const struct peft_source *source = NULL;
    for (int i = 0; i < m->part_count; i++) {
        const bool *has = m->parts[i].parts[id].has;
        if (has[PEFT_SAVED] || (has[PEFT_UNDER] && !source))
            source = &m->parts[i].source;
    }
    if (source)
        return source->read(source->ctx, id, PEFT_SAVED, begin, count, out);
    return m->base.read(m->base.ctx, id, begin, count, out);
}

/* Finite factors may give a merged weight that is not finite. */
static enum zd_status check_merged(
        const struct merged *m, int id, const struct merge_part *part)
{
    const struct param *p = &m->table->params[id];
    for (size_t i = 0; i < p->count; i++)
        if (!isfinite(m->values[i]))
            return ZD_BAD(
                    "E0312", "`%s` with the adapter `%s` is %s at element %zu",
                    p->name, part->name,
                    isnan(m->values[i]) ? "not a number" : "infinite", i);
    return ZD_OK;
}

static enum zd_status merge_tensor(struct merged *m, int id)
{
    const struct param *p = &m->table->params[id];
    m->id = -1;
    free(m->values);
    m->values = zd_array(p->count, sizeof *m->values);
    ZD_TRY(read_under(m, id, 0, p->count, m->values));
    for (int i = 0; i < m->part_count; i++)
        if (m->parts[i].parts[id].r) {
            ZD_TRY(add_adapter(m, id, &m->parts[i]));
            ZD_TRY(check_merged(m, id, &m->parts[i]));
        }
    m->id = id;
    return ZD_OK;
}

/* --- the source ----------------------------------------------------------- */

static enum zd_status merged_read(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    struct merged *m = ctx;
    if (!is_adapted(m, id))
        return read_under(m, id, begin, count, out);
    if (m->id != id)
        ZD_TRY(merge_tensor(m, id));
    memcpy(out, m->values + begin, count * sizeof *out);
    return ZD_OK;
}

static void merged_close(void *ctx)
{
    struct merged *m = ctx;
    for (int i = 0; m->adapters && i < m->part_count; i++)
        peft_close(&m->adapters[i]);
    if (m->adapters)
        weights_close(&m->base);
    free(m->adapters);
    free(m->parts);
    free(m->values);
    free(m);
}

static struct merged *merged_create(
        const struct weight_source *base, const struct param_table *table,
        int part_count)
{
    struct merged *m = zd_array(1, sizeof *m);
    *m = (struct merged){
            .base = *base,
            .table = table,
            .parts = zd_array((size_t)part_count, sizeof *m->parts),
            .part_count = part_count,
            .id = -1};
    return m;
}

enum zd_status weights_open_merged(
        const struct weight_source *base, const struct param_table *table,
        const struct merge_part *parts, int part_count,
        struct weight_source *source_out)
{
    ZD_TRY(merge_check(table, parts, part_count));
    struct merged *m = merged_create(base, table, part_count);
    for (int i = 0; i < part_count; i++)
        m->parts[i] = parts[i];
    *source_out = (struct weight_source){merged_read, merged_close, m};
    return ZD_OK;
}

enum zd_status weights_open_adapted(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct adapter_choice *choices,
        int choice_count, enum dtype *storage_out,
        struct weight_source *source_out)
{
    ZD_SCOPED(weights_close) struct weight_source base = {0};
    ZD_TRY(weights_open_hf(dir, config, table, storage_out, &base));
    if (choice_count > 0) {
        struct merged *m = merged_create(&base, table, choice_count);
        m->adapters = zd_array((size_t)choice_count, sizeof *m->adapters);
        base = (struct weight_source){merged_read, merged_close, m};
        for (int i = 0; i < choice_count; i++) {
            const struct adapter_choice *choice = &choices[i];
            ZD_TRY(peft_open(choice->dir, config, table, &m->adapters[i]));
            m->parts[i] = merge_part_of_peft(
                    &m->adapters[i], choice->weight, choice->dir);
        }
        ZD_TRY(merge_check(table, m->parts, choice_count));
    }
    *source_out = ZD_TAKE(base);
    return ZD_OK;
}

void merge_tell_codes(const char *base)
{
    zd_log_warning(
            "%s is stored quantized and is dequantized first: to merge onto "
            "the model that it was made of loses less",
            base);
}
