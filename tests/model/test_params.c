#include "model/files/config.h"
#include "model/model.h"

#include "tests/model/cases.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

static const char gpt2[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":11,\"n_embd\":6,"
        "\"n_layer\":2,\"n_head\":3,\"n_positions\":5}";
static const char qwen3[] = "qwen3_heads";

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
        expect_refused(
                param_table_build(&config, &patterns[i], 1, &table),
                ZD_ERR_CONFIG, "", patterns[i]);
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

/* clang-format off */
static const struct {
    const char *config, *name;
    int64_t count; /* of blocks */
    struct {
        int64_t row, column, block;
    } at[7]; /* the first ends them that is all 0 */
} shared[] = {
        /* q and k by head, through all rows; v by column */
        {gpt2, "h.0.attn.c_attn.weight", 3 + 3 + 6,
         {{0, 1, 0}, {5, 1, 0}, {0, 2, 1}, {0, 6, 3}, {0, 11, 5}, {3, 12, 6}, {3, 17, 11}}},
        {gpt2, "h.0.attn.c_proj.weight", 6},
        {gpt2, "h.1.mlp.c_fc.weight", 24, {{4, 20, 20}}},
        {gpt2, "h.1.mlp.c_proj.weight", 6, {{20, 4, 4}}},
        {gpt2, "wte.weight", 11, {{7, 4, 7}}},
        {gpt2, "wpe.weight", 5},
        {gpt2, "ln_f.weight", 1},
        {gpt2, "h.0.attn.c_attn.bias", 18}, /* single */
        /* heads of 8 rows, not of 6 / 4 */
        {qwen3, "model.layers.0.self_attn.q_proj.weight", 4, {{7, 5, 0}, {8, 0, 1}}},
        {qwen3, "model.layers.0.self_attn.k_proj.weight", 2, {{15, 5, 1}}},
        {qwen3, "model.layers.0.self_attn.v_proj.weight", 16, {{15, 5, 15}}},
        {qwen3, "model.layers.0.self_attn.o_proj.weight", 6},
        {qwen3, "model.layers.0.mlp.gate_proj.weight", 7},
        {qwen3, "model.layers.0.mlp.down_proj.weight", 6},
        {qwen3, "model.embed_tokens.weight", 11},
        {qwen3, "model.norm.weight", 1},
        {qwen3, "model.layers.0.self_attn.q_norm.weight", 1}};
/* clang-format on */

Test(model_params, second_moments_are_shared_by_heads_rows_or_columns)
{
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        struct param_table t = build(shared[i].config, NULL);
        for (int id = 0; i % 8 == 0 && id < t.count; id++)
            check_blocks(&t.params[id]);
        const struct param *p = &t.params[param_table_find(&t, shared[i].name)];
        bool is_single = tensor_blocks_are_single(&p->blocks);
        cr_expect_eq(is_single, strstr(p->name, "bias") != NULL, "%s", p->name);
        cr_expect_eq(p->blocks.count, shared[i].count, "%s", p->name);
        for (int k = 0;
             k < 7 && (!k || shared[i].at[k].row + shared[i].at[k].column); k++)
            cr_expect_eq(
                    tensor_blocks_of_element(
                            &p->blocks,
                            (size_t)(shared[i].at[k].row * p->shape[1] +
                                     shared[i].at[k].column)),
                    shared[i].at[k].block, "%s, element %d", p->name, k);
        param_table_fini(&t);
    }
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
