#include "model/params.h"

#include <assert.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER_PARAMS_MAX = 16 };

/* A table being written, tensor by tensor. */
struct builder {
    const struct model_config *config;
    struct param_table *table;
    int unit;
};

static struct param *add_matrix(
        struct builder *b, int64_t rows, int64_t columns, const char *format,
        ...) __attribute__((format(printf, 4, 5)));
static struct param *add_vector(
        struct builder *b, enum param_init init, int64_t count,
        const char *format, ...) __attribute__((format(printf, 4, 5)));

static struct param *add(
        struct builder *b, int dims, int64_t rows, int64_t columns,
        const char *format, va_list args)
{
    struct param *p = &b->table->params[b->table->count++];
    vsnprintf(p->name, sizeof p->name, format, args);
    p->unit = b->unit;
    p->dims = dims;
    p->shape[0] = rows;
    p->shape[1] = columns;
    p->count = (size_t)rows * (size_t)columns;
    p->trainable = true;
    p->adapts = -1;
    p->learning_rate = 1;
    p->decays = dims == 2;
    return p;
}

/* One section: blocks of `group` lines. */
static void set_blocks(struct param *p, bool by_column, int64_t group)
{
    int64_t lines = p->shape[by_column ? 1 : 0];
    p->blocks = (struct tensor_blocks){
            .rows = p->shape[0],
            .columns = p->shape[1],
            .by_column = by_column,
            .section_count = 1,
            .sections = {{0, group, 0}},
            .count = (lines + group - 1) / group};
}

static struct param *add_matrix(
        struct builder *b, int64_t rows, int64_t columns, const char *format,
        ...)
{
    va_list args;
    va_start(args, format);
    struct param *p = add(b, 2, rows, columns, format, args);
    va_end(args);
    p->init = PARAM_INIT_NORMAL;
    p->init_std = (float)b->config->initializer_range;
    set_blocks(p, false, 1);
    return p;
}

static struct param *add_vector(
        struct builder *b, enum param_init init, int64_t count,
        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct param *p = add(b, 1, count, 1, format, args);
    va_end(args);
    p->init = init;
    /* the weight of a norm is one block; a bias has one for each element */
    set_blocks(p, false, init == PARAM_INIT_ONES ? count : 1);
    return p;
}

/* GPT-2's Conv1D: the weight is [in, out]. */
static struct param *add_conv1d(
        struct builder *b, int i, const char *name, int in, int out,
        bool residual)
{
    struct param *p = add_matrix(b, in, out, "h.%d.%s.weight", i, name);
    if (residual)
        p->init_std /= (float)sqrt(2.0 * b->config->layers);
    set_blocks(p, true, 1);
    add_vector(b, PARAM_INIT_CLEAR, out, "h.%d.%s.bias", i, name);
    return p;
}

/* The columns of c_attn: those of q and k by head, each of v for itself. */
static void set_fused_blocks(struct param *p, const struct model_config *c)
{
    int64_t C = c->hidden_size, H = c->heads;
    struct tensor_blocks *blocks = &p->blocks;
    blocks->section_count = 3;
    blocks->sections[0] = (struct tensor_section){0, c->head_dim, 0};
    blocks->sections[1] = (struct tensor_section){C, c->head_dim, H};
    blocks->sections[2] = (struct tensor_section){2 * C, 1, 2 * H};
    blocks->count = 2 * H + C;
}

static void add_gpt2_norm(struct builder *b, const char *name)
{
    int C = b->config->hidden_size;
    add_vector(b, PARAM_INIT_ONES, C, "%s.weight", name);
    add_vector(b, PARAM_INIT_CLEAR, C, "%s.bias", name);
}

static void add_gpt2(struct builder *b)
{
    const struct model_config *c = b->config;
    int C = c->hidden_size, F = c->intermediate_size;
    char name[32];
    add_matrix(b, c->vocab_size, C, "wte.weight")->is_embedding = true;
    add_matrix(b, c->max_positions, C, "wpe.weight")->is_embedding = true;
    for (int i = 0; i < c->layers; i++) {
        b->unit++;
        snprintf(name, sizeof name, "h.%d.ln_1", i);
        add_gpt2_norm(b, name);
        set_fused_blocks(add_conv1d(b, i, "attn.c_attn", C, 3 * C, false), c);
        add_conv1d(b, i, "attn.c_proj", C, C, true);
        snprintf(name, sizeof name, "h.%d.ln_2", i);
        add_gpt2_norm(b, name);
        add_conv1d(b, i, "mlp.c_fc", C, F, false);
        add_conv1d(b, i, "mlp.c_proj", F, C, true);
    }
    b->unit++;
    add_gpt2_norm(b, "ln_f");
}

/* Linear: the weight is [out, in]. */
static struct param *add_weight(
        struct builder *b, int i, const char *name, int in, int out, bool bias)
{
    struct param *p =
            add_matrix(b, out, in, "model.layers.%d.%s.weight", i, name);
    p->is_product = !bias;
    return p;
}

static struct param *add_bias(
        struct builder *b, int i, const char *name, int out)
{
    return add_vector(
            b, PARAM_INIT_CLEAR, out, "model.layers.%d.%s.bias", i, name);
}

static void add_linear(
        struct builder *b, int i, const char *name, int in, int out, bool bias)
{
    add_weight(b, i, name, in, out, bias);
    if (bias)
        add_bias(b, i, name, out);
}

static void add_layer_norm(
        struct builder *b, int i, const char *name, int count)
{
    add_vector(b, PARAM_INIT_ONES, count, "model.layers.%d.%s.weight", i, name);
}

/* The weights, then the biases: each kind as one matrix. */
static void add_qkv(struct builder *b, int i)
{
    const struct model_config *c = b->config;
    int C = c->hidden_size, D = c->head_dim;
    int q = c->heads * D, kv = c->kv_heads * D;
    bool bias = c->qkv_bias;
    set_blocks(add_weight(b, i, "self_attn.q_proj", C, q, bias), false, D);
    struct param *k = add_weight(b, i, "self_attn.k_proj", C, kv, bias);
    set_blocks(k, false, D);
    k->joins = JOIN_QKV;
    add_weight(b, i, "self_attn.v_proj", C, kv, bias)->joins = JOIN_QKV;
    if (!bias)
        return;
    add_bias(b, i, "self_attn.q_proj", q);
    add_bias(b, i, "self_attn.k_proj", kv)->joins = JOIN_QKV;
    add_bias(b, i, "self_attn.v_proj", kv)->joins = JOIN_QKV;
}

static void add_gate_up(struct builder *b, int i)
{
    const struct model_config *c = b->config;
    int C = c->hidden_size, F = c->intermediate_size;
    add_weight(b, i, "mlp.gate_proj", C, F, c->mlp_bias);
    add_weight(b, i, "mlp.up_proj", C, F, c->mlp_bias)->joins = JOIN_GATE_UP;
    if (!c->mlp_bias)
        return;
    add_bias(b, i, "mlp.gate_proj", F);
    add_bias(b, i, "mlp.up_proj", F)->joins = JOIN_GATE_UP;
}

static void add_llama_layer(struct builder *b, int i)
{
    const struct model_config *c = b->config;
    int C = c->hidden_size, F = c->intermediate_size, D = c->head_dim;
    add_layer_norm(b, i, "input_layernorm", C);
    add_qkv(b, i);
    if (c->qk_norm) {
        add_layer_norm(b, i, "self_attn.q_norm", D);
        add_layer_norm(b, i, "self_attn.k_norm", D);
    }
    add_linear(b, i, "self_attn.o_proj", c->heads * D, C, c->out_bias);
    add_layer_norm(b, i, "post_attention_layernorm", C);
    add_gate_up(b, i);
    add_linear(b, i, "mlp.down_proj", F, C, c->mlp_bias);
}

static void add_llama(struct builder *b)
{
    const struct model_config *c = b->config;
    int C = c->hidden_size;
    add_matrix(b, c->vocab_size, C, "model.embed_tokens.weight")->is_embedding =
            true;
    for (int i = 0; i < c->layers; i++) {
        b->unit++;
        add_llama_layer(b, i);
    }
    b->unit++;
    add_vector(b, PARAM_INIT_ONES, C, "model.norm.weight");
}

/* A pattern may be written with the prefix that some GPT-2 files carry. */
static bool matches(
        const struct model_config *config, const struct param *param,
        const char *pattern)
{
    char prefixed[PARAM_NAME_MAX + 16];
    bool gpt2 = config->family == MODEL_GPT2;
    snprintf(
            prefixed, sizeof prefixed, "%s%s", gpt2 ? "transformer." : "",
            param->name);
    return strstr(prefixed, pattern) || fnmatch(pattern, param->name, 0) == 0 ||
           fnmatch(pattern, prefixed, 0) == 0;
}

static enum zd_status freeze_matching(
        const struct model_config *config, struct param_table *table,
        const char *pattern)
{
    int found = 0;
    for (int id = 0; id < table->count; id++)
        if (matches(config, &table->params[id], pattern)) {
            table->params[id].trainable = false;
            found++;
        }
    if (found && *pattern)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0306",
            "train.freeze: `%s` matches no tensor of the model", pattern);
    if (config->tied && strstr(pattern, "lm_head"))
        zd_fail_help(
                "the head is tied: it is the tensor `%s`",
                table->params[0].name);
    else
        zd_fail_help(
                "names look like `%s`",
                table->params[table->unit_first[1]].name);
    return ZD_ERR_CONFIG;
}

static void finish_units(struct param_table *table)
{
    int unit = 0;
    for (int id = 0; id < table->count; id++) {
        while (unit <= table->params[id].unit)
            table->unit_first[unit++] = id;
        table->total += table->params[id].count;
    }
    table->unit_first[unit] = table->count;
    assert(unit == table->unit_count);
}

enum zd_status param_table_build(
        const struct model_config *config, const char *const *freeze,
        int freeze_count, struct param_table *table_out)
{
    struct param_table table = {.unit_count = config->layers + 2};
    struct builder builder = {config, &table, 0};
    size_t max = (size_t)config->layers * LAYER_PARAMS_MAX + 8;
    table.params = calloc(max, sizeof *table.params);
    table.unit_first =
            calloc((size_t)table.unit_count + 1, sizeof *table.unit_first);
    if (!table.params || !table.unit_first) {
        param_table_fini(&table);
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for a tensor table");
    }
    if (config->family == MODEL_GPT2)
        add_gpt2(&builder);
    else
        add_llama(&builder);
    if (!config->tied)
        add_matrix(
                &builder, config->vocab_size, config->hidden_size,
                "lm_head.weight");
    assert((size_t)table.count <= max);
    finish_units(&table);
    for (int i = 0; i < freeze_count; i++) {
        enum zd_status status = freeze_matching(config, &table, freeze[i]);
        if (status != ZD_OK) {
            param_table_fini(&table);
            return status;
        }
    }
    for (int id = 0; id < table.count; id++)
        if (table.params[id].trainable)
            table.trainable += table.params[id].count;
    if (table.trainable == 0) {
        param_table_fini(&table);
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0306",
                "train.freeze leaves no tensor to train");
    }
    *table_out = table;
    return ZD_OK;
}

size_t param_code_bytes(const struct param_table *table, int id, size_t count)
{
    return quant_code_bytes(&table->codes[id], count);
}

size_t param_scale_bytes(const struct param_table *table, int id)
{
    return quant_scale_bytes(&table->codes[id]);
}

size_t param_scale_count(const struct param_table *table, int id)
{
    return quant_scale_count(&table->codes[id]);
}

int param_codes_packed(const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (param_in_codes(table, id))
            return quant_is_4bit(&table->codes[id]) ? 2 : 1;
    return 0;
}

const char *param_codes_name(const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (param_in_codes(table, id))
            return quant_format_name(table->codes[id].format);
    return NULL;
}

size_t param_most_in_codes(const struct param_table *table)
{
    size_t most = 0;
    for (int id = 0; id < table->count; id++)
        if (param_in_codes(table, id) && table->params[id].count > most)
            most = table->params[id].count;
    return most;
}

size_t param_joined_count(const struct param_table *table, int id)
{
    const struct param *params = table->params;
    size_t count = 0;
    while (params[id].joins)
        id--;
    do
        count += params[id++].count;
    while (id < table->count && params[id].joins && params[id].dims == 2);
    return count;
}

void param_table_fini(struct param_table *table)
{
    if (!table)
        return;
    free(table->adapters);
    free(table->codes);
    free(table->params);
    free(table->unit_first);
    memset(table, 0, sizeof *table);
}

int param_table_find(const struct param_table *table, const char *name)
{
    for (int id = 0; id < table->count; id++)
        if (strcmp(table->params[id].name, name) == 0)
            return id;
    return -1;
}
