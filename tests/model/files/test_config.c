#include "model/config.h"
#include "model/family.h"
#include "model/files/config.h"
#include "model/params.h"

#include "tests/model/cases.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

static enum zd_status parse(
        const char *text, enum zd_status on_error, struct model_config *config)
{
    json_t *json;
    cr_assert(
            json_parse(text, strlen(text), "test", ZD_ERR_BUG, &json) == ZD_OK);
    enum zd_status status =
            model_config_parse(json, "models/x/config.json", on_error, config);
    json_decref(json);
    return status;
}

/* What Meta ships for Llama-3.2-1B, in the keys of transformers 4. */
static const char llama_v4[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
        "\"attention_dropout\":0.0,\"bos_token_id\":128000,"
        "\"eos_token_id\":[128001,128008,128009],\"head_dim\":64,"
        "\"hidden_act\":\"silu\",\"hidden_size\":2048,"
        "\"initializer_range\":0.02,\"intermediate_size\":8192,"
        "\"max_position_embeddings\":131072,\"mlp_bias\":false,"
        "\"model_type\":\"llama\",\"num_attention_heads\":32,"
        "\"num_hidden_layers\":16,\"num_key_value_heads\":8,"
        "\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{"
        "\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
        "\"original_max_position_embeddings\":8192,"
        "\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,"
        "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\","
        "\"use_cache\":true,\"vocab_size\":128256}";

Test(model_config, reads_the_keys_of_version_4)
{
    struct model_config c;
    cr_assert(parse(llama_v4, ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect_str_eq(c.family->name, "llama");
    cr_expect_eq(c.vocab_size, 128256);
    cr_expect_eq(c.hidden_size, 2048);
    cr_expect_eq(c.intermediate_size, 8192);
    cr_expect_eq(c.layers, 16);
    cr_expect_eq(c.heads, 32);
    cr_expect_eq(c.kv_heads, 8);
    cr_expect_eq(c.head_dim, 64);
    cr_expect_eq(c.max_positions, 131072);
    cr_expect_eq(c.norm_eps, 1e-5);
    cr_expect(c.tied && !c.qkv_bias && !c.has_dropout);
    cr_expect_eq(c.rope_count, 1);
    cr_expect_eq(c.ropes[0].type, ROPE_LLAMA3);
    cr_expect_eq(c.ropes[0].theta, 500000.0);
    cr_expect_eq(c.ropes[0].factor, 32.0);
    cr_expect_eq(c.ropes[0].original_positions, 8192);
    cr_expect_eq(c.storage_dtype, DTYPE_BF16);
    cr_expect_eq(c.bos_token_id, 128000);
    cr_expect_eq(c.eos_token_id, 128001);
    char text[80];
    model_config_describe(&c, text, sizeof text);
    cr_expect_str_eq(text, "llama, 16 layers, 2048 wide, 32/8 heads");
    model_config_fini(&c);
}

Test(model_config, reads_the_keys_of_version_5)
{
    struct model_config c;
    cr_assert(
            parse("{\"model_type\":\"llama\",\"dtype\":\"float16\","
                  "\"torch_dtype\":\"float32\",\"rope_parameters\":{"
                  "\"rope_theta\":70000.0,\"rope_type\":\"llama3\","
                  "\"factor\":8.0,\"low_freq_factor\":1.0,"
                  "\"high_freq_factor\":4.0,"
                  "\"original_max_position_embeddings\":512}}",
                  ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect_eq(c.ropes[0].theta, 70000.0);
    cr_expect_eq(c.ropes[0].type, ROPE_LLAMA3);
    cr_expect_eq(c.ropes[0].factor, 8.0);
    cr_expect_eq(c.storage_dtype, DTYPE_FP16, "dtype wins");
    model_config_fini(&c);
}

Test(model_config, fills_absent_keys_as_the_classes_of_transformers_do)
{
    struct model_config c;
    cr_assert(parse("{\"model_type\":\"gpt2\"}", ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect_eq(c.vocab_size, 50257);
    cr_expect_eq(c.intermediate_size, 3072);
    cr_expect_eq(c.layers, 12);
    cr_expect(c.tied && c.has_dropout && c.qkv_bias);
    cr_expect_eq(c.bos_token_id, 50256);
    cr_expect_eq(c.eos_token_id, -1, "none but the one that is written");
    cr_expect_eq(c.storage_dtype, DTYPE_FP32);
    model_config_fini(&c);

    cr_assert(parse("{\"model_type\":\"qwen3\"}", ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect_eq(c.head_dim, 128);
    cr_expect(c.qk_norm && !c.qkv_bias && !c.tied);
    cr_expect_eq(c.eos_token_id, -1);
    model_config_fini(&c);

    cr_assert(
            parse("{\"model_type\":\"qwen2\",\"hidden_size\":512,"
                  "\"num_attention_heads\":4,\"num_key_value_heads\":null}",
                  ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect(c.qkv_bias && !c.out_bias);
    cr_expect_eq(c.kv_heads, 4, "an explicit null: as many as heads");
    cr_expect_eq(c.head_dim, 128);
    model_config_fini(&c);
}

Test(model_config, a_written_configuration_names_what_was_left_out)
{
    struct model_config c;
    cr_assert(
            parse("{\"model_type\":\"mistral\",\"hidden_size\":64,"
                  "\"num_attention_heads\":8,\"num_hidden_layers\":2}",
                  ZD_ERR_CONFIG, &c) == ZD_OK);
    cr_expect_eq(c.storage_dtype, DTYPE_BF16, "random weights");
    cr_expect_eq(json_integer_at(c.json, "vocab_size"), 32000);
    cr_expect(json_is_null(json_object_get(c.json, "sliding_window")));
    cr_expect(json_is_null(json_object_get(c.json, "eos_token_id")));
    cr_expect_str_eq(
            (char *)json_string_value(json_array_get(
                    json_object_get(c.json, "architectures"), 0)),
            "MistralForCausalLM");
    model_config_fini(&c);
}

Test(model_config, a_default_token_beyond_the_vocabulary_is_none)
{
    struct model_config c;
    const char json[] = "{\"model_type\":\"gpt2\",\"vocab_size\":300}";
    cr_assert(parse(json, ZD_ERR_CONFIG, &c) == ZD_OK);
    cr_expect_eq(c.bos_token_id, -1);
    cr_expect(json_is_null(json_object_get(c.json, "bos_token_id")));
    model_config_fini(&c);
}

Test(model_config, accepts_what_changes_nothing)
{
    struct cases row = cases_open("config_accepted.txt");
    while (cases_next(&row)) {
        struct model_config c = {0};
        cr_expect(
                parse(row.fields[1], ZD_ERR_DATA, &c) == ZD_OK, "%s: %s",
                row.fields[0], zd_error_get()->what);
        zd_error_clear();
        model_config_fini(&c);
    }
}

Test(model_config, released_models_are_read_without_a_warning)
{
    struct cases row = cases_open("config_released.txt");
    while (cases_next(&row)) {
        struct model_config c = {0};
        struct param_table table = {0};
        cr_assert(
                parse(row.fields[2], ZD_ERR_DATA, &c) == ZD_OK, "%s: %s",
                row.fields[0], zd_error_get()->what);
        cr_expect_str_empty(c.unknown, "%s: %s", row.fields[0], c.unknown);
        cr_expect(!c.has_dropout);
        cr_assert(param_table_build(&c, NULL, 0, &table) == ZD_OK);
        cr_expect_eq(
                table.total, (size_t)atoll(row.fields[1]), "%s: %zu",
                row.fields[0], table.total);
        param_table_fini(&table);
        model_config_fini(&c);
    }
}

Test(model_config, keys_that_the_class_does_not_have_are_named)
{
    struct model_config c = {0};
    const char json[] = "{\"model_type\":\"smollm3\",\"unsloth_fixed\":true,"
                        "\"use_cache\":true,\"resid_pdrop\":0.0,\"top\":1,"
                        "\"rope_scaling\":{\"rope_type\":\"linear\","
                        "\"factor\":2,\"base\":3}}";
    cr_assert(parse(json, ZD_ERR_DATA, &c) == ZD_OK);
    cr_expect_str_eq(
            c.unknown, "`unsloth_fixed`, `resid_pdrop`, `top`, "
                       "`rope_scaling.base`");
    model_config_fini(&c);
}

Test(model_config, an_unknown_family_is_told_with_the_nearest)
{
    struct model_config c = {0};
    cr_expect(
            parse("{\"model_type\":\"smollm2\"}", ZD_ERR_DATA, &c) ==
            ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->what, "smollm2"));
    cr_expect(strstr(zd_error_get()->help, "nearest is smollm3"));
    zd_error_clear();
}

/* Which layers slide, and which do not rotate. */
Test(model_config, each_layer_has_its_window_and_its_rotation)
{
    struct cases row = cases_open("config_layers.txt");
    while (cases_next(&row)) {
        struct model_config c = {0};
        char text[200] = "";
        cr_assert(
                parse(row.fields[1], ZD_ERR_DATA, &c) == ZD_OK, "%s: %s",
                row.fields[1], zd_error_get()->what);
        for (int i = 0; i < c.layers; i++) {
            size_t used = strlen(text);
            snprintf(
                    text + used, sizeof text - used, "%s%d%s", i ? " " : "",
                    c.layer_attention[i].window,
                    c.layer_attention[i].rope < 0 ? "n" : "");
        }
        cr_expect_str_eq(text, row.fields[0], "%s", row.fields[1]);
        model_config_fini(&c);
    }
}

Test(model_config, refuses_what_it_cannot_do_and_names_it)
{
    struct cases row = cases_open("config_refused.txt");
    while (cases_next(&row)) {
        struct model_config c = {0};
        const char *json = row.fields[1];
        cr_expect(parse(json, ZD_ERR_DATA, &c) == ZD_ERR_DATA, "%s", json);
        cr_expect(
                strstr(zd_error_get()->what, row.fields[0]), "%s: %s", json,
                zd_error_get()->what);
        cr_expect_str_eq(zd_error_get()->where, "models/x/config.json");
        zd_error_clear();
        model_config_fini(&c);
    }
}

Test(model_config, a_typed_key_that_is_unknown_is_an_error)
{
    struct model_config c = {0};
    const char json[] = "{\"model_type\":\"llama\",\"hiden_size\":64}";
    cr_expect(parse(json, ZD_ERR_CONFIG, &c) == ZD_ERR_CONFIG);
    cr_expect(strstr(zd_error_get()->what, "hiden_size") != NULL);
    cr_expect(strstr(zd_error_get()->help, "hidden_size") != NULL);
    zd_error_clear();
    const char other[] = "{\"model_type\":\"gpt2\",\"rope_theta\":10000.0}";
    cr_expect(
            parse(other, ZD_ERR_CONFIG, &c) == ZD_ERR_CONFIG,
            "a key of another family");
    zd_error_clear();
}

Test(model_config, a_folder_that_is_none_is_told_from_one_that_is_broken)
{
    struct model_config c = {0};
    struct scratch scratch;
    scratch_init(&scratch);
    cr_expect(
            model_config_read(scratch_path(&scratch, "absent"), &c) ==
            ZD_ERR_NO_INPUT);
    zd_error_clear();
    const char *file = scratch_file(&scratch, "file", "x", 1);
    cr_expect(model_config_read(file, &c) == ZD_ERR_DATA);
    zd_error_clear();
    scratch_file(&scratch, "config.json", "{\"model_type\":", 14);
    cr_expect(model_config_read(scratch.dir, &c) == ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->where, "config.json:1") != NULL);
    zd_error_clear();
    scratch_fini(&scratch);
}
