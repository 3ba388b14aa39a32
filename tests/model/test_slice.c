/* Slices of tensor parallelism: together they are the whole model. */
#include "model/slice.h"

#include "tests/model/shapes.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

/* Of all ways to join projections, to share key-value heads, and to store. */
static const char *const shapes[] = {
        "gpt2",
        "llama",
        "qwen3",
        "granite",
        "phi3",
        "smollm3",
        "olmo2",
        "gemma2",
        "glm4_heads",
        "phi3_heads",
        "{\"model_type\":\"gpt2\",\"vocab_size\":31,\"n_embd\":16,"
        "\"n_layer\":2,\"n_head\":8,\"n_positions\":7}"};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct param_table slice(
        const struct model_config *config, int size, int place)
{
    struct param_table table;
    tiny_must(param_table_slice(
            config, (struct tp){size, place}, NULL, 0, &table));
    return table;
}

/* How many places have each element of the whole tensor. */
static void count_places(
        const struct model_config *config, int size, int id, int *places)
{
    for (int place = 0; place < size; place++) {
        struct param_table table = slice(config, size, place);
        const struct param *param = &table.params[id];
        struct slice_run run = {0};
        size_t seen = 0;
        while (param_slice_next(param, param->count, &run)) {
            cr_assert_eq(run.begin, seen);
            cr_assert_gt(run.count, 0);
            seen += run.count;
            for (size_t i = 0; !run.is_padding && i < run.count; i++)
                cr_assert_eq(
                        tensor_blocks_of_element(&param->blocks, run.begin + i),
                        tensor_blocks_of_element(
                                param_whole_blocks(param), run.whole + i),
                        "%s: block of element %zu", param->name, run.whole + i);
            for (size_t i = 0; !run.is_padding && i < run.count; i++)
                places[run.whole + i] += run.is_shared ? 1 << 8 : 1;
        }
        cr_assert_eq(seen, param->count, "%s", param->name);
        for (size_t i = 0; i < seen; i++)
            cr_assert_lt(
                    tensor_blocks_of_element(&param->blocks, i),
                    param_whole_blocks(param)->count);
        param_table_fini(&table);
    }
}

/* A slice has an element that no other has, or all have it. */
static int check_tensor(
        const struct model_config *config, const struct param *whole, int id,
        int size)
{
    int *places = calloc(whole->count, sizeof *places), shared = 0;
    struct param_table table = slice(config, size, 0);
    cr_assert_str_eq(table.params[id].name, whole->name);
    cr_assert_eq(param_whole_count(&table.params[id]), whole->count);
    count_places(config, size, id, places);
    for (size_t i = 0; i < whole->count; i++) {
        cr_assert(
                places[i] == 1 || places[i] == size << 8, "%s[%zu]: %x",
                whole->name, i, places[i]);
        shared += places[i] > 1;
    }
    param_table_fini(&table);
    free(places);
    return shared;
}

Test(model_slice, slices_are_the_whole_model_together)
{
    int cut = 0;
    for (int s = 0; s < SHAPES; s++) {
        struct model_config config, part;
        struct param_table whole;
        tiny_config(shapes[s], &config);
        config.intermediate_size = 840; /* divided by all sizes */
        tiny_must(param_table_build(&config, NULL, 0, &whole));
        for (int size = 1; size <= 8; size++) {
            if (model_config_slice(&config, (struct tp){size, 0}, &part)) {
                cr_expect_str_eq(zd_error_get()->code, "E0224");
                zd_error_clear();
                continue;
            }
            for (int id = 0; id < whole.count; id++) {
                const struct param *p = &whole.params[id];
                bool is_norm = p->dims == 1 && !strstr(p->name, "bias");
                int shared = check_tensor(&config, p, id, size);
                if (size > 1 && is_norm && !config.family->qk_norm_whole)
                    cr_expect_eq(shared, p->count, "%s", p->name);
                cut += size > 1 && !shared;
            }
        }
        param_table_fini(&whole);
        model_config_fini(&config);
    }
    cr_expect_gt(cut, 300, "%d tensors were cut", cut);
}

Test(model_slice, a_size_that_does_not_fit_is_told_with_what_it_does_not_divide)
{
    static const struct {
        int width, size;
        const char *what;
    } cases[] = {
            {24, 5, "the model's 12 heads"},
            {20, 6, "feed-forward width of 20"},
            {24, 4, "nor is a multiple"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config, part;
        tiny_config(shapes[0], &config);
        config.heads = 12;
        config.kv_heads = 6;
        config.intermediate_size = cases[i].width;
        zd_error_clear();
        cr_assert(model_config_slice(
                &config, (struct tp){cases[i].size, 0}, &part));
        const struct zd_error *error = zd_error_get();
        cr_expect(strstr(error->what, cases[i].what), "%s", error->what);
        model_config_fini(&config);
    }
}

/* Rows and columns by hand, as they are stored. */
static const struct {
    int shape, size, place;
    const char *name;
    int row, column;             /* of the slice */
    int whole_row, whole_column; /* -1: padding */
} elements[] = {
        /* 8 heads of 2 channels, 16 columns each of q, k and v */
        {10, 4, 1, "h.1.attn.c_attn.weight", 3, 0, 3, 4},
        {10, 4, 1, "h.1.attn.c_attn.weight", 3, 4, 3, 20},
        {10, 4, 1, "h.1.attn.c_attn.weight", 3, 11, 3, 39},
        {10, 4, 3, "h.1.attn.c_attn.bias", 5, 0, 29, 0},
        {10, 4, 3, "h.1.attn.c_proj.weight", 1, 2, 13, 2},
        {10, 4, 2, "h.0.mlp.c_fc.weight", 1, 2, 1, 34},
        {10, 4, 2, "wte.weight", 7, 5, 23, 5},
        {10, 4, 3, "wte.weight", 6, 5, 30, 5},
        {10, 4, 3, "wte.weight", 7, 5, -1, 0},
        /* 8 heads of 4 channels, of which 2 are for k and v */
        {8, 2, 1, "model.layers.0.self_attn.k_proj.weight", 1, 3, 5, 3},
        {8, 4, 3, "model.layers.0.self_attn.k_proj.weight", 1, 3, 1, 3},
        {8, 4, 3, "model.layers.0.self_attn.o_proj.weight", 2, 1, 2, 25},
        {8, 4, 3, "model.layers.0.mlp.gate_up_proj.weight", 0, 0, 12, 0},
        {8, 4, 3, "model.layers.0.mlp.gate_up_proj.weight", 4, 9, 28, 9},
        /* heads of 2 channels: q, then k and v whole */
        {9, 4, 2, "model.layers.0.self_attn.qkv_proj.weight", 1, 1, 9, 1},
        {9, 4, 2, "model.layers.0.self_attn.qkv_proj.weight", 4, 1, 16, 1},
        {9, 4, 2, "model.layers.0.self_attn.qkv_proj.weight", 9, 1, 21, 1},
        {9, 4, 2, "lm_head.weight", 0, 1, 4, 1},
        {9, 4, 2, "lm_head.weight", 1, 1, -1, 0},
        {9, 8, 7, "lm_head.weight", 0, 1, -1, 0},
};

Test(model_slice, elements_lie_where_heads_and_ranges_say)
{
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        struct model_config config;
        tiny_config(shapes[elements[i].shape], &config);
        struct param_table table =
                slice(&config, elements[i].size, elements[i].place);
        int id = param_table_find(&table, elements[i].name);
        cr_assert_geq(id, 0, "%s", elements[i].name);
        const struct param *p = &table.params[id];
        size_t at =
                (size_t)(elements[i].row * p->shape[1] + elements[i].column);
        struct slice_run run = {.begin = at};
        int64_t columns =
                p->slice.range_count ? p->slice.shape[1] : p->shape[1];
        cr_assert(param_slice_next(p, at + 1, &run));
        cr_expect_eq(run.is_padding, elements[i].whole_row < 0);
        cr_expect(
                run.is_padding ||
                        (int64_t)run.whole == elements[i].whole_row * columns +
                                                      elements[i].whole_column,
                "row %zu: %s: %zu", i, p->name, run.whole);
        param_table_fini(&table);
        model_config_fini(&config);
    }
}

Test(model_slice, query_heads_read_their_own_key_value_head)
{
    struct model_config config, part;
    tiny_config(shapes[8], &config); /* 8 heads, 2 for k and v */
    for (int place = 0; place < 8; place++) {
        tiny_must(model_config_slice(&config, (struct tp){8, place}, &part));
        cr_expect(part.kv_used == 1 && part.first_kv == place / 4);
        cr_expect(part.kv_heads == 2 && part.heads == 1);
    }
    tiny_must(model_config_slice(&config, (struct tp){2, 1}, &part));
    cr_expect(part.kv_used == 0 && part.kv_heads == 1 && part.heads == 4);
    model_config_fini(&config);
}
