#include "model/config.h"
#include "model/family.h"
#include "model/files/config.h"
#include "model/params.h"

#include "tests/model/cases.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

static struct model_config c; /* of the test, or of its row */

static void teardown(void)
{
    model_config_fini(&c);
}

TestSuite(model_config, .fini = teardown);

/* Into c. */
static enum zd_status parse(const char *text, enum zd_status on_error)
{
    json_auto_t *json = NULL;
    model_config_fini(&c);
    memset(&c, 0, sizeof c);
    cr_assert(
            json_parse(text, strlen(text), "test", ZD_ERR_BUG, &json) == ZD_OK);
    enum zd_status status =
            model_config_parse(json, "models/x/config.json", on_error, &c);
    return status;
}

/* Ends with a blank, as every pair does. */
static void describe(char *text, size_t bytes)
{
    const struct rope_set *rope = &c.ropes[0];
    snprintf(
            text, bytes,
            "family=%s vocab=%d hidden=%d intermediate=%d layers=%d heads=%d "
            "kv=%d head_dim=%d positions=%d eps=%g tied=%d qk_norm=%d "
            "qkv_bias=%d out_bias=%d dropout=%d ropes=%d rope=%s theta=%g "
            "factor=%g original=%d storage=%s bos=%d eos=%d ",
            c.family->name, c.vocab_size, c.hidden_size, c.intermediate_size,
            c.layers, c.heads, c.kv_heads, c.head_dim, c.max_positions,
            c.norm_eps, c.tied, c.qk_norm, c.qkv_bias, c.out_bias,
            c.has_dropout, c.rope_count,
            rope->type == ROPE_LLAMA3 ? "llama3" : "-", rope->theta,
            rope->factor, rope->original_positions, dtype_name(c.storage_dtype),
            c.bos_token_id, c.eos_token_id);
}

Test(model_config, keys_of_both_versions_and_absent_ones_are_read)
{
    struct cases row = cases_open("config_read.txt");
    while (cases_next(&row)) {
        char text[1000], pair[80];
        int used;
        cr_assert(parse(row.fields[1], ZD_ERR_DATA) == ZD_OK);
        describe(text, sizeof text);
        for (const char *at = row.fields[0];
             sscanf(at, "%78s%n", pair, &used) == 1; at += used) {
            strcat(pair, " ");
            cr_expect(strstr(text, pair), "%s: %s", pair, text);
        }
    }
}

Test(model_config, a_model_is_described_by_its_size)
{
    char text[80];
    cr_assert(parse("{\"model_type\":\"qwen3\"}", ZD_ERR_DATA) == ZD_OK);
    model_config_describe(&c, text, sizeof text);
    cr_expect_str_eq(text, "qwen3, 32 layers, 4096 wide, 32/32 heads");
}

Test(model_config, a_written_configuration_names_what_was_left_out)
{
    cr_assert(
            parse("{\"model_type\":\"mistral\",\"hidden_size\":64,"
                  "\"num_attention_heads\":8,\"num_hidden_layers\":2}",
                  ZD_ERR_CONFIG) == ZD_OK);
    cr_expect_eq(c.storage_dtype, DTYPE_BF16, "random weights");
    cr_expect_eq(json_integer_at(c.json, "vocab_size"), 32000);
    cr_expect(json_is_null(json_object_get(c.json, "sliding_window")));
    cr_expect(json_is_null(json_object_get(c.json, "eos_token_id")));
    cr_expect_str_eq(
            (char *)json_string_value(json_array_get(
                    json_object_get(c.json, "architectures"), 0)),
            "MistralForCausalLM");
}

Test(model_config, a_default_token_beyond_the_vocabulary_is_none)
{
    const char json[] = "{\"model_type\":\"gpt2\",\"vocab_size\":300}";
    cr_assert(parse(json, ZD_ERR_CONFIG) == ZD_OK);
    cr_expect_eq(c.bos_token_id, -1);
    cr_expect(json_is_null(json_object_get(c.json, "bos_token_id")));
}

Test(model_config, accepts_what_changes_nothing)
{
    struct cases row = cases_open("config_accepted.txt");
    while (cases_next(&row)) {
        cr_expect(
                parse(row.fields[1], ZD_ERR_DATA) == ZD_OK, "%s: %s",
                row.fields[0], zd_error_get()->what);
        zd_error_clear();
    }
}

Test(model_config, released_models_are_read_without_a_warning)
{
    struct cases row = cases_open("config_released.txt");
    while (cases_next(&row)) {
        struct param_table table = {0};
        cr_assert(
                parse(row.fields[2], ZD_ERR_DATA) == ZD_OK, "%s: %s",
                row.fields[0], zd_error_get()->what);
        cr_expect_str_empty(c.unknown, "%s: %s", row.fields[0], c.unknown);
        cr_expect(!c.has_dropout);
        cr_assert(param_table_build(&c, NULL, 0, &table) == ZD_OK);
        cr_expect_eq(
                table.total, (size_t)atoll(row.fields[1]), "%s: %zu",
                row.fields[0], table.total);
        param_table_fini(&table);
    }
}

Test(model_config, keys_that_the_class_does_not_have_are_named)
{
    const char json[] = "{\"model_type\":\"smollm3\",\"unsloth_fixed\":true,"
                        "\"use_cache\":true,\"resid_pdrop\":0.0,\"top\":1,"
                        "\"rope_scaling\":{\"rope_type\":\"linear\","
                        "\"factor\":2,\"base\":3}}";
    cr_assert(parse(json, ZD_ERR_DATA) == ZD_OK);
    cr_expect_str_eq(
            c.unknown, "`unsloth_fixed`, `resid_pdrop`, `top`, "
                       "`rope_scaling.base`");
}

Test(model_config, an_unknown_family_is_told_with_the_nearest)
{
    const char json[] = "{\"model_type\":\"smollm2\"}";
    enum zd_status status = parse(json, ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->help, "nearest is smollm3"));
    expect_refused(status, ZD_ERR_DATA, "smollm2", json);
}

/* Which layers slide, and which do not rotate. */
Test(model_config, each_layer_has_its_window_and_its_rotation)
{
    struct cases row = cases_open("config_layers.txt");
    while (cases_next(&row)) {
        char text[200] = "";
        cr_assert(
                parse(row.fields[1], ZD_ERR_DATA) == ZD_OK, "%s: %s",
                row.fields[1], zd_error_get()->what);
        for (int i = 0; i < c.layers; i++) {
            size_t used = strlen(text);
            snprintf(
                    text + used, sizeof text - used, "%s%d%s", i ? " " : "",
                    c.layer_attention[i].window,
                    c.layer_attention[i].rope < 0 ? "n" : "");
        }
        cr_expect_str_eq(text, row.fields[0], "%s", row.fields[1]);
    }
}

Test(model_config, refuses_what_it_cannot_do_and_names_it)
{
    struct cases row = cases_open("config_refused.txt");
    while (cases_next(&row)) {
        const char *json = row.fields[1];
        enum zd_status status = parse(json, ZD_ERR_DATA);
        cr_expect_str_eq(zd_error_get()->where, "models/x/config.json");
        expect_refused(status, ZD_ERR_DATA, row.fields[0], json);
    }
}

Test(model_config, a_typed_key_that_is_unknown_is_an_error)
{
    const char json[] = "{\"model_type\":\"llama\",\"hiden_size\":64}";
    enum zd_status status = parse(json, ZD_ERR_CONFIG);
    cr_expect(strstr(zd_error_get()->help, "hidden_size") != NULL);
    expect_refused(status, ZD_ERR_CONFIG, "hiden_size", json);
    /* a key of another family */
    const char other[] = "{\"model_type\":\"gpt2\",\"rope_theta\":10000.0}";
    expect_refused(
            parse(other, ZD_ERR_CONFIG), ZD_ERR_CONFIG, "rope_theta", other);
}

Test(model_config, a_folder_that_is_none_is_told_from_one_that_is_broken)
{
    struct scratch scratch;
    scratch_init(&scratch);
    expect_refused(
            model_config_read(scratch_path(&scratch, "absent"), false, &c),
            ZD_ERR_NO_INPUT, "", "absent");
    const char *file = scratch_file(&scratch, "file", "x", 1);
    expect_refused(
            model_config_read(file, false, &c), ZD_ERR_DATA, "", "a file");
    scratch_file(&scratch, "config.json", "{\"model_type\":", 14);
    cr_expect(model_config_read(scratch.dir, false, &c) == ZD_ERR_DATA);
    cr_expect(strstr(zd_error_get()->where, "config.json:1") != NULL);
    zd_error_clear();
    scratch_fini(&scratch);
}
