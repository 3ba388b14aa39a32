#include "model/files/config.h"
#include "model/model.h"

#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

static const char gpt2[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":11,\"n_embd\":6,"
        "\"n_layer\":2,\"n_head\":3,\"n_positions\":5}";
static const char qwen3[] =
        "{\"model_type\":\"qwen3\",\"vocab_size\":11,\"hidden_size\":6,"
        "\"intermediate_size\":7,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8}";

static struct param_table build(const char *text, const char *freeze)
{
    struct model_config config;
    struct param_table table;
    tiny_config(text, &config);
    tiny_must(param_table_build(&config, &freeze, freeze != NULL, &table));
    model_config_fini(&config);
    return table;
}

Test(model_params, units_cut_the_table_in_the_order_of_the_forward_pass)
{
    struct param_table t = build(gpt2, NULL);
    cr_expect_eq(t.unit_count, 4);
    cr_expect_eq(t.unit_first[0], 0);
    cr_expect_eq(t.unit_first[1], 2, "wte and wpe");
    cr_expect_eq(t.unit_first[2], 14, "twelve tensors in a layer");
    cr_expect_eq(t.unit_first[3], 26);
    cr_expect_eq(t.unit_first[4], 28, "the tied head has no tensor");
    cr_expect_eq(t.count, 28);
    size_t total = 0;
    for (int id = 0; id < t.count; id++) {
        const struct param *p = &t.params[id];
        cr_expect(
                id >= t.unit_first[p->unit] && id < t.unit_first[p->unit + 1]);
        cr_expect(p->decays == (p->dims == 2), "%s", p->name);
        cr_expect(p->count == (size_t)(p->shape[0] * p->shape[1]));
        cr_expect_eq(param_table_find(&t, p->name), id);
        total += p->count;
    }
    cr_expect_eq(t.total, total);
    cr_expect_eq(t.trainable, total);
    cr_expect_eq(param_table_find(&t, "lm_head.weight"), -1);
    param_table_fini(&t);
}

Test(model_params, residual_projections_of_gpt2_begin_smaller)
{
    struct param_table t = build(gpt2, NULL);
    float all = t.params[param_table_find(&t, "h.0.mlp.c_fc.weight")].init_std;
    float residual =
            t.params[param_table_find(&t, "h.0.mlp.c_proj.weight")].init_std;
    cr_expect_eq(all, 0.02f);
    cr_expect(fabsf(residual - 0.01f) < 1e-7f, "0.02 / sqrt(2 * 2)");
    param_table_fini(&t);
}

Test(model_params, patterns_freeze_by_glob_and_by_substring)
{
    struct param_table t = build(gpt2, "h.0.*");
    cr_expect(!t.params[param_table_find(&t, "h.0.ln_1.weight")].trainable);
    cr_expect(t.params[param_table_find(&t, "h.1.ln_1.weight")].trainable);
    cr_expect(t.trainable < t.total);
    param_table_fini(&t);
    t = build(gpt2, "ln_2");
    cr_expect(!t.params[param_table_find(&t, "h.1.ln_2.bias")].trainable);
    cr_expect(t.params[param_table_find(&t, "h.1.ln_1.bias")].trainable);
    param_table_fini(&t);
    t = build(gpt2, "transformer.h.1.*");
    cr_expect(!t.params[param_table_find(&t, "h.1.ln_1.weight")].trainable);
    param_table_fini(&t);
}

Test(model_params, a_pattern_without_a_tensor_is_refused)
{
    static const char *const patterns[] = {"h.9.*", "lm_head", "", "*"};
    struct model_config config;
    struct param_table table;
    tiny_config(gpt2, &config);
    for (int i = 0; i < 4; i++) {
        cr_expect(
                param_table_build(&config, &patterns[i], 1, &table) ==
                        ZD_ERR_CONFIG,
                "`%s`", patterns[i]);
        zd_error_clear();
    }
    model_config_fini(&config);
}

/* --- Adam-mini's blocks --------------------------------------------------- */

/* Every block has an element, numbers rise by first appearance along the lines,
 * and the helpers of tensor_blocks.h agree with each other. */
static void check_blocks(const struct param *p)
{
    const struct tensor_blocks *b = &p->blocks;
    cr_assert(
            b->rows == p->shape[0] && b->columns == p->shape[1], "%s", p->name);
    int64_t next = 0, lines = tensor_blocks_lines(b), seen = 0;
    for (int64_t line = 0; line < lines; line = tensor_blocks_end(b, line)) {
        int64_t end = tensor_blocks_end(b, line);
        cr_assert(end > line && end <= lines, "%s", p->name);
        for (int64_t k = line; k < end; k++)
            cr_assert_eq(tensor_blocks_of_line(b, k), next, "%s", p->name);
        seen += (end - line) * tensor_blocks_line_count(b);
        next++;
    }
    cr_expect_eq(next, b->count, "%s", p->name);
    cr_expect_eq(seen, (int64_t)p->count, "%s", p->name);
}

static const struct param *named(const struct param_table *t, const char *name)
{
    int id = param_table_find(t, name);
    cr_assert(id >= 0, "%s", name);
    check_blocks(&t->params[id]);
    return &t->params[id];
}

static int64_t block_at(const struct param *p, int64_t row, int64_t column)
{
    return tensor_blocks_of_element(
            &p->blocks, (size_t)(row * p->shape[1] + column));
}

Test(model_params, gpt2_shares_second_moments_by_columns)
{
    struct param_table t = build(gpt2, NULL);
    for (int id = 0; id < t.count; id++)
        check_blocks(&t.params[id]);

    const struct param *p = named(&t, "h.0.attn.c_attn.weight");
    cr_expect_eq(p->blocks.count, 3 + 3 + 6, "q and k by head, v by column");
    cr_expect_eq(block_at(p, 0, 1), 0);
    cr_expect_eq(block_at(p, 5, 1), 0, "a block goes through all rows");
    cr_expect_eq(block_at(p, 0, 2), 1);
    cr_expect_eq(block_at(p, 0, 6), 3, "the first head of k");
    cr_expect_eq(block_at(p, 0, 11), 5);
    cr_expect_eq(block_at(p, 3, 12), 6, "the first column of v");
    cr_expect_eq(block_at(p, 3, 17), 11);
    cr_expect_eq(named(&t, "h.0.attn.c_proj.weight")->blocks.count, 6);
    p = named(&t, "h.1.mlp.c_fc.weight");
    cr_expect(p->blocks.count == 24 && block_at(p, 4, 20) == 20);
    p = named(&t, "h.1.mlp.c_proj.weight");
    cr_expect(p->blocks.count == 6 && block_at(p, 20, 4) == 4);
    p = named(&t, "wte.weight");
    cr_expect(p->blocks.count == 11 && block_at(p, 7, 4) == 7);
    cr_expect_eq(named(&t, "wpe.weight")->blocks.count, 5);
    cr_expect_eq(named(&t, "ln_f.weight")->blocks.count, 1);
    p = named(&t, "h.0.attn.c_attn.bias");
    cr_expect(tensor_blocks_are_single(&p->blocks));
    param_table_fini(&t);
}

Test(model_params, llama_shares_second_moments_by_heads_and_rows)
{
    struct param_table t = build(qwen3, NULL);
    for (int id = 0; id < t.count; id++)
        check_blocks(&t.params[id]);

    const struct param *p = named(&t, "model.layers.0.self_attn.q_proj.weight");
    cr_expect_eq(p->blocks.count, 4, "heads of 8 rows, not of 6 / 4");
    cr_expect(block_at(p, 7, 5) == 0 && block_at(p, 8, 0) == 1);
    p = named(&t, "model.layers.0.self_attn.k_proj.weight");
    cr_expect(p->blocks.count == 2 && block_at(p, 15, 5) == 1);
    p = named(&t, "model.layers.0.self_attn.v_proj.weight");
    cr_expect(p->blocks.count == 16 && block_at(p, 15, 5) == 15);
    cr_expect_eq(
            named(&t, "model.layers.0.self_attn.o_proj.weight")->blocks.count,
            6);
    cr_expect_eq(
            named(&t, "model.layers.0.mlp.gate_proj.weight")->blocks.count, 7);
    cr_expect_eq(
            named(&t, "model.layers.0.mlp.down_proj.weight")->blocks.count, 6);
    cr_expect_eq(named(&t, "model.embed_tokens.weight")->blocks.count, 11);
    cr_expect_eq(named(&t, "model.norm.weight")->blocks.count, 1);
    cr_expect_eq(
            named(&t, "model.layers.0.self_attn.q_norm.weight")->blocks.count,
            1);
    param_table_fini(&t);
}

Test(model_params, tables_of_tokens_and_positions_are_embeddings)
{
    struct param_table t = build(gpt2, NULL);
    for (int id = 0; id < t.count; id++)
        cr_expect_eq(
                t.params[id].is_embedding, t.params[id].unit == 0, "%s",
                t.params[id].name);
    param_table_fini(&t);
    t = build(qwen3, NULL);
    for (int id = 0; id < t.count; id++)
        cr_expect_eq(
                t.params[id].is_embedding,
                strcmp(t.params[id].name, "model.embed_tokens.weight") == 0,
                "%s, the untied head among them", t.params[id].name);
    cr_expect(param_table_find(&t, "lm_head.weight") >= 0);
    param_table_fini(&t);
}

/* Elements of the matrices of a unit. */
static double matrices_of(const struct param_table *t, int unit)
{
    double count = 0;
    for (int id = t->unit_first[unit]; id < t->unit_first[unit + 1]; id++)
        count += t->params[id].dims == 2 ? (double)t->params[id].count : 0;
    return count;
}

Test(model_params, work_of_frozen_layers_is_what_they_do)
{
    enum { T = 16 };
    struct model_config config;
    struct param_table all, middle, below;
    const char *one[] = {"model.layers.1."};
    const char *two[] = {"embed_tokens", "model.layers.0."};
    tiny_config(qwen3, &config);
    tiny_must(param_table_build(&config, NULL, 0, &all));
    tiny_must(param_table_build(&config, one, 1, &middle));
    tiny_must(param_table_build(&config, two, 2, &below));
    double layer = matrices_of(&all, 1);
    double whole = 6 * (3 * layer + 11 * 6) + 6 * 3 * T * 4 * 8;
    cr_expect_eq(model_flops_per_token(&config, &all, T), whole);
    cr_expect_eq(
            model_flops_per_token(&config, &middle, T), whole - 2 * layer,
            "no gradients of its weights");
    cr_expect_eq(
            model_flops_per_token(&config, &below, T),
            whole - 4 * layer - 4 * T * 4 * 8, "no backward at all");
    config.layer_attention[2].window = T;
    cr_expect_eq(model_flops_per_token(&config, &all, T), whole);
    config.layer_attention[2].window = T / 2; /* seen: 3/4 of T / 2 */
    cr_expect_eq(
            model_flops_per_token(&config, &all, T), whole - 6 * T * 4 * 8 / 4);
    param_table_fini(&all);
    param_table_fini(&middle);
    param_table_fini(&below);
    model_config_fini(&config);
}
