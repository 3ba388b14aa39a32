#include "model/adapters/merge.h"
#include "model/files/config.h"
#include "model/files/weights_hf.h"

#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { PATH_BYTES = 4000 };

struct merging {
    struct model_config config;
    struct param_table table;
    struct weight_source base;
    struct peft_adapter adapter;
    char dir[PATH_BYTES];
};

static void setup(struct merging *m, const char *name)
{
    char base[PATH_BYTES];
    const char *fixtures = getenv("ZEROD_FIXTURES");
    memset(m, 0, sizeof *m);
    snprintf(
            base, sizeof base, "%s/%.*s/model", fixtures,
            (int)strcspn(name, "-"), name);
    tiny_must(model_config_read(base, &m->config));
    tiny_must(param_table_build(&m->config, NULL, 0, &m->table));
    tiny_must(weights_open_hf(base, &m->config, &m->table, NULL, &m->base));
    snprintf(m->dir, sizeof m->dir, "%s/adapters/%s", fixtures, name);
    tiny_must(peft_open(m->dir, &m->config, &m->table, &m->adapter));
}

static void teardown(struct merging *m)
{
    peft_close(&m->adapter);
    weights_close(&m->base);
    param_table_fini(&m->table);
    model_config_fini(&m->config);
}

/* All of a tensor, in ranges that are no whole rows. */
static float *read_all(const struct weight_source *source, int id, size_t count)
{
    float *values = malloc(count * sizeof *values);
    for (size_t at = 0; at < count; at += 1001) {
        size_t n = count - at < 1001 ? count - at : 1001;
        tiny_must(source->read(source->ctx, id, at, n, values + at));
    }
    return values;
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
    tiny_must(weights_open_merged(&m.base, &m.table, &part, 1, &merged));
    snprintf(path, sizeof path, "%s/merged.safetensors", m.dir);
    tiny_must(st_open(path, &file));
    int found = 0;
    for (int id = 0; id < m.table.count; id++) {
        const struct param *p = &m.table.params[id];
        char prefixed[PARAM_NAME_MAX + 16];
        snprintf(prefixed, sizeof prefixed, "transformer.%s", p->name);
        const struct st_tensor *t = st_find(file, p->name);
        if (!t)
            t = st_find(file, prefixed);
        float *ours = read_all(&merged, id, p->count);
        float *theirs = read_all(&m.base, id, p->count);
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

Test(model_merge, what_peft_merges_with_patterns_and_a_tied_embedding)
{
    compare_with_peft("llama-patterns");
}

Test(model_merge, what_peft_merges_with_rslora_and_conv1d)
{
    compare_with_peft("gpt2-rslora");
}

Test(model_merge, what_peft_merges_with_dora)
{
    compare_with_peft("qwen3-dora");
    compare_with_peft("gpt2-dora");
}

Test(model_merge, what_peft_merges_with_a_head_of_its_own)
{
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
            &m.table, "model.layers.0.self_attn.o_proj.weight");
    tiny_must(weights_open_merged(&m.base, &m.table, parts, 2, &merged));
    size_t count = m.table.params[o].count;
    float *ours = read_all(&merged, o, count);
    float *base = read_all(&m.base, o, count);
    double distance = largest_distance(ours, base, count);
    cr_assert(distance < 1e-7);
    weights_close(&merged);
    parts[1].weight = -0.5;
    struct merge_part one = merge_part_of_peft(&m.adapter, 1, "x");
    float *x, *y;
    tiny_must(weights_open_merged(&m.base, &m.table, parts, 2, &merged));
    x = read_all(&merged, o, count);
    weights_close(&merged);
    tiny_must(weights_open_merged(&m.base, &m.table, &one, 1, &merged));
    y = read_all(&merged, o, count);
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
    cr_assert(merge_check(&m.table, &heavy, 1) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "two"));
    zd_error_clear();
    struct merge_part both[] = {
            merge_part_of_peft(&m.adapter, 1, "x"),
            merge_part_of_peft(&m.adapter, 1, "y")};
    cr_assert(merge_check(&m.table, both, 2) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "DoRA"));
    zd_error_clear();
    teardown(&m);
    setup(&m, "llama-patterns");
    cr_assert(merge_check(&m.table, &heavy, 1) == ZD_ERR_DATA);
    zd_error_clear();
    cr_assert(merge_check(&m.table, both, 2) == ZD_ERR_DATA);
    cr_assert(strstr(zd_error_get()->what, "model.embed_tokens.weight"));
    zd_error_clear();
    teardown(&m);
}
