#include "model/adapters/merge.h"

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
    snprintf(
            m->dir, sizeof m->dir, "%s/adapters/%s", getenv("ZEROD_FIXTURES"),
            name);
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
    snprintf(path, sizeof path, "%s/merged.safetensors", m.dir);
    tiny_must(st_open(path, &file));
    int found = 0;
    for (int id = 0; id < m.base.table.count; id++) {
        const struct param *p = &m.base.table.params[id];
        char prefixed[PARAM_NAME_MAX + 16];
        snprintf(prefixed, sizeof prefixed, "transformer.%s", p->name);
        const struct st_tensor *t = st_find(file, p->name);
        if (!t)
            t = st_find(file, prefixed);
        float *ours = read_all(&merged, id, p->count, 1001);
        float *theirs = read_all(&m.base.source, id, p->count, 1001);
        if (t)
            tiny_must(st_read_float(file, t, 0, p->count, theirs));
        double distance = largest_distance(ours, theirs, p->count);
        cr_expect(
                t ? distance <= 0x1p-23 : distance == 0, "%s of %s: %g",
                p->name, name, distance);
        found += t != NULL;
        free(ours);
        free(theirs);
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

Test(model_merge, weights_of_adapters_add_up)
{
    struct merging m;
    struct weight_source merged;
    setup(&m, "llama_odd-head");
    struct merge_part parts[] = {
            merge_part_of_peft(&m.adapter, 1.5, "x"),
            merge_part_of_peft(&m.adapter, -1.5, "y")};
    int o = param_table_find(
            &m.base.table, "model.layers.0.self_attn.o_proj.weight");
    tiny_must(weights_open_merged(
            &m.base.source, &m.base.table, parts, 2, &merged));
    size_t count = m.base.table.params[o].count;
    float *ours = read_all(&merged, o, count, 1001);
    float *base = read_all(&m.base.source, o, count, 1001);
    double distance = largest_distance(ours, base, count);
    cr_assert(distance < 1e-7);
    weights_close(&merged);
    parts[1].weight = -0.5;
    struct merge_part one = merge_part_of_peft(&m.adapter, 1, "x");
    float *x, *y;
    tiny_must(weights_open_merged(
            &m.base.source, &m.base.table, parts, 2, &merged));
    x = read_all(&merged, o, count, 1001);
    weights_close(&merged);
    tiny_must(weights_open_merged(
            &m.base.source, &m.base.table, &one, 1, &merged));
    y = read_all(&merged, o, count, 1001);
    weights_close(&merged);
    cr_assert(largest_distance(x, y, count) < 1e-7);
    cr_assert(largest_distance(x, base, count) > 1e-4);
    free(ours);
    free(base);
    free(x);
    free(y);
    teardown(&m);
}

Test(model_merge, what_is_no_sum_is_refused_by_name)
{
    struct merging m;
    setup(&m, "gpt2-dora");
    struct merge_part heavy = merge_part_of_peft(&m.adapter, 2, "two");
    cr_assert(merge_check(&m.base.table, &heavy, 1) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "two"));
    zd_error_clear();
    struct merge_part both[] = {
            merge_part_of_peft(&m.adapter, 1, "x"),
            merge_part_of_peft(&m.adapter, 1, "y")};
    cr_assert(merge_check(&m.base.table, both, 2) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "DoRA"));
    zd_error_clear();
    teardown(&m);
    setup(&m, "llama-patterns");
    cr_assert(merge_check(&m.base.table, &heavy, 1) == ZD_ERR_DATA);
    zd_error_clear();
    cr_assert(merge_check(&m.base.table, both, 2) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "model.embed_tokens.weight"));
    zd_error_clear();
    teardown(&m);
}
