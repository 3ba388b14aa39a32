#include "model/params.h"

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

Test(model_params, shapes_are_those_of_the_files)
{
    struct param_table t = build(gpt2, NULL);
    const struct param *p =
            &t.params[param_table_find(&t, "h.1.attn.c_attn.weight")];
    cr_expect(p->shape[0] == 6 && p->shape[1] == 18, "Conv1D is [in, out]");
    param_table_fini(&t);

    t = build(qwen3, NULL);
    p = &t.params[param_table_find(
            &t, "model.layers.2.self_attn.k_proj.weight")];
    cr_expect(p->shape[0] == 16 && p->shape[1] == 6, "Linear is [out, in]");
    p = &t.params[param_table_find(
            &t, "model.layers.0.self_attn.o_proj.weight")];
    cr_expect(p->shape[0] == 6 && p->shape[1] == 32);
    p = &t.params[param_table_find(
            &t, "model.layers.0.self_attn.q_norm.weight")];
    cr_expect(p->dims == 1 && p->shape[0] == 8 && p->shape[1] == 1);
    cr_expect_str_eq(t.params[t.count - 1].name, "lm_head.weight");
    cr_expect_eq(t.params[t.count - 1].unit, 4);
    param_table_fini(&t);
}

Test(model_params, biases_are_there_where_the_family_has_them)
{
    struct param_table t =
            build("{\"model_type\":\"qwen2\",\"num_hidden_layers\":1}", NULL);
    cr_expect(param_table_find(&t, "model.layers.0.self_attn.q_proj.bias") > 0);
    cr_expect(param_table_find(&t, "model.layers.0.self_attn.o_proj.bias") < 0);
    cr_expect(param_table_find(&t, "model.layers.0.mlp.up_proj.bias") < 0);
    param_table_fini(&t);
    t =
            build("{\"model_type\":\"llama\",\"num_hidden_layers\":1,"
                  "\"attention_bias\":true,\"mlp_bias\":true}",
                  NULL);
    cr_expect(param_table_find(&t, "model.layers.0.self_attn.o_proj.bias") > 0);
    cr_expect(param_table_find(&t, "model.layers.0.mlp.down_proj.bias") > 0);
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
