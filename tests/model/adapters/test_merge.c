#include "base/must.h"
#include "model/adapters/merge.h"

#include "tests/model/cases.h"
#include "tests/model/opened.h"

#include <criterion/criterion.h>

#include <math.h>

struct merging {
    struct opened base;
    struct peft_adapter adapter;
    char dir[PATH_BYTES];
};

static void setup(struct merging *m, const char *name)
{
    opened_base(&m->base, name);
    ZD_PRINT(m->dir, "%s/adapters/%s", getenv("ZEROD_FIXTURES"), name);
    tiny_must(peft_open(m->dir, &m->base.config, &m->base.table, &m->adapter));
}

static void teardown(struct merging *m)
{
    peft_close(&m->adapter);
    opened_fini(&m->base);
}

static double largest_distance(const float *x, const float *y, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)x[i] - y[i]) <= most))
            most = fabs((double)x[i] - y[i]);
    return most;
}

/* What PEFT merged: every tensor of merged.safetensors, and no other, differs
 * from the base. */
static void compare_with_peft(const char *name)
{
    struct merging m;
    struct st_file *file;
    struct weight_source merged;
    char path[PATH_BYTES + 32];
    setup(&m, name);
    struct merge_part part = merge_part_of_peft(&m.adapter, 1, name);
    tiny_must(weights_open_merged(
            &m.base.source, &m.base.table, &part, 1, &merged));
    ZD_PRINT(path, "%s/merged.safetensors", m.dir);
    tiny_must(st_open(path, &file));
    int found = 0;
    for (int id = 0; id < m.base.table.count; id++) {
        const struct param *p = &m.base.table.params[id];
        char prefixed[PARAM_NAME_MAX + 16];
        ZD_PRINT(prefixed, "transformer.%s", p->name);
        const struct st_tensor *t = st_find(file, p->name);
        if (!t)
            t = st_find(file, prefixed);
        ZD_FREED float *ours = read_all(&merged, id, p->count, 1001);
        ZD_FREED float *theirs = read_all(&m.base.source, id, p->count, 1001);
        if (t)
            tiny_must(st_read_float(file, t, 0, p->count, theirs));
        double distance = largest_distance(ours, theirs, p->count);
        cr_expect(
                t ? distance <= 0x1p-23 : distance == 0, "%s of %s: %g",
                p->name, name, distance);
        found += t != NULL;
    }
    cr_assert(found == file->tensor_count && found > 0);
    st_close(file);
    weights_close(&merged);
    teardown(&m);
}

Test(model_merge, weights_are_those_that_peft_merges)
{
    compare_with_peft("llama-patterns"); /* and a tied embedding */
    compare_with_peft("gpt2-rslora");
    compare_with_peft("qwen3-dora");
    compare_with_peft("gpt2-dora");
    compare_with_peft("llama_odd-head");
}

/* Tensor `id` with adapters of these weights added; the caller frees it. */
static float *merged_tensor(
        const struct merging *m, int id, const double *weights, int count)
{
    struct merge_part parts[2];
    struct weight_source merged;
    for (int i = 0; i < count; i++)
        parts[i] = merge_part_of_peft(&m->adapter, weights[i], "x");
    tiny_must(weights_open_merged(
            &m->base.source, &m->base.table, parts, count, &merged));
    float *values = read_all(&merged, id, m->base.table.params[id].count, 1001);
    weights_close(&merged);
    return values;
}

Test(model_merge, weights_of_adapters_add_up)
{
    struct merging m;
    setup(&m, "llama_odd-head");
    int o = param_table_find(
            &m.base.table, "model.layers.0.self_attn.o_proj.weight");
    size_t count = m.base.table.params[o].count;
    float *base = read_all(&m.base.source, o, count, 1001);
    float *none = merged_tensor(&m, o, (const double[]){1.5, -1.5}, 2);
    float *sum = merged_tensor(&m, o, (const double[]){1.5, -0.5}, 2);
    float *one = merged_tensor(&m, o, (const double[]){1}, 1);
    cr_assert(largest_distance(none, base, count) < 1e-7);
    cr_assert(largest_distance(sum, one, count) < 1e-7);
    cr_assert(largest_distance(sum, base, count) > 1e-4);
    free(base);
    free(none);
    free(sum);
    free(one);
    teardown(&m);
}

Test(model_merge, adapters_that_cannot_be_added_are_refused_by_name)
{
    struct merging m;
    setup(&m, "gpt2-dora");
    struct merge_part heavy = merge_part_of_peft(&m.adapter, 2, "two");
    expect_refused(
            merge_check(&m.base.table, &heavy, 1), ZD_ERR_DATA, "two", "DoRA");
    struct merge_part both[] = {
            merge_part_of_peft(&m.adapter, 1, "x"),
            merge_part_of_peft(&m.adapter, 1, "y")};
    expect_refused(
            merge_check(&m.base.table, both, 2), ZD_ERR_DATA, "DoRA", "both");
    teardown(&m);
    setup(&m, "llama-patterns");
    heavy.parts = both[0].parts = both[1].parts = m.adapter.parts;
    expect_refused(
            merge_check(&m.base.table, &heavy, 1), ZD_ERR_DATA, "", "saved");
    expect_refused(
            merge_check(&m.base.table, both, 2), ZD_ERR_DATA,
            "model.embed_tokens.weight", "both saved");
    teardown(&m);
}
