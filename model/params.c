#include "base/must.h"
#include "model/slice.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Builds a table, tensor by tensor. */
struct builder {
    const struct model_config *config; /* of the slice, and .. */
    const struct model_config *model;  /* .. of the whole */
    struct param_table *table;
    int64_t extents[EXTENTS], whole[EXTENTS];
    int place;
};

static const struct tensor_row head = {
        "lm_head.weight", ROLE_HEAD, TENSOR_LINEAR, EXTENT_V, EXTENT_C};

static void extents_of(const struct model_config *c, int64_t out[EXTENTS])
{
    int64_t D = c->head_dim, q = c->heads * D, kv = c->kv_heads * D;
    const int64_t extents[EXTENTS] = {
            [EXTENT_V] = c->vocab_size,
            [EXTENT_POSITIONS] = c->max_positions,
            [EXTENT_C] = c->hidden_size,
            [EXTENT_F] = c->intermediate_size,
            [EXTENT_2F] = 2 * (int64_t)c->intermediate_size,
            [EXTENT_Q] = q,
            [EXTENT_KV] = kv,
            [EXTENT_QKV] = q + 2 * kv,
            [EXTENT_D] = D};
    memcpy(out, extents, sizeof extents);
}

static bool is_there(
        const struct model_config *config, const struct tensor_row *row)
{
    return !row->when || *((const bool *)config + row->when);
}

/* Does a later row of the layer have the weight's bias? */
static bool has_bias(
        const struct model_config *config, const struct tensor_row *row)
{
    enum role bias = row->role + 1;
    for (row++; row->name; row++)
        if (row->role == bias)
            return is_there(config, row);
    return false;
}

/* Blocks of `group` lines; in a fused projection by head for q and k, by line
 * for v. */
static struct tensor_blocks blocks_of(
        const struct model_config *c, const struct tensor_row *row,
        const int64_t shape[2], bool conv1d)
{
    int64_t D = c->head_dim, H = c->heads, KV = c->kv_heads;
    int64_t lines = shape[conv1d ? 1 : 0];
    bool by_head = row->flags & TENSOR_BY_HEAD;
    int64_t group = row->kind == TENSOR_NORM ? lines : by_head ? D : 1;
    struct tensor_blocks blocks = {
            .rows = shape[0],
            .columns = shape[1],
            .by_column = conv1d,
            .section_count = 1,
            .sections = {{0, group, 0}},
            .count = (lines + group - 1) / group};
    if (row->rows != EXTENT_QKV || !by_head)
        return blocks;
    blocks.section_count = 3;
    blocks.sections[1] = (struct tensor_section){H * D, D, H};
    blocks.sections[2] = (struct tensor_section){(H + KV) * D, 1, H + KV};
    blocks.count = H + KV + KV * D;
    return blocks;
}

/* Adds the next range: `extent` of a tensor, or of a part that begins at
 * `from`. */
static void add_range(
        const struct builder *b, enum extent extent, int64_t from,
        struct param_slice *slice)
{
    int64_t here = b->extents[extent], whole = b->whole[extent];
    bool is_shared = here == whole;
    int64_t begin = is_shared ? 0 : b->place * here;
    int64_t left = whole > begin ? whole - begin : 0;
    struct slice_range *range = &slice->ranges[slice->range_count++];
    range->whole = from + begin;
    range->count = left < here ? left : here;
    range->is_shared = is_shared;
    if (slice->range_count > 1)
        range->here = range[-1].here + range[-1].count;
}

/* The slice of a row's tensor, with rows and columns as (out, in). */
static struct param_slice slice_of(
        const struct builder *b, const struct tensor_row *row, bool is_matrix)
{
    struct param_slice slice = {0};
    bool rows = b->extents[row->rows] != b->whole[row->rows];
    enum extent cut = rows ? row->rows : row->columns;
    if (!rows && !(is_matrix && b->extents[cut] != b->whole[cut]))
        return slice;
    slice.by_column = !rows;
    if (cut == EXTENT_QKV) {
        add_range(b, EXTENT_Q, 0, &slice);
        add_range(b, EXTENT_KV, b->whole[EXTENT_Q], &slice);
        add_range(
                b, EXTENT_KV, b->whole[EXTENT_Q] + b->whole[EXTENT_KV], &slice);
    } else if (cut == EXTENT_2F) {
        add_range(b, EXTENT_F, 0, &slice);
        add_range(b, EXTENT_F, b->whole[EXTENT_F], &slice);
    } else {
        add_range(b, cut, 0, &slice);
    }
    slice.shape[0] = b->whole[row->rows];
    slice.shape[1] = is_matrix ? b->whole[row->columns] : 1;
    return slice;
}

static void add(
        struct builder *b, const struct tensor_row *row, int unit,
        const char *prefix)
{
    static const enum param_init inits[] = {
            [TENSOR_EMBEDDING] = PARAM_INIT_NORMAL,
            [TENSOR_LINEAR] = PARAM_INIT_NORMAL,
            [TENSOR_NORM] = PARAM_INIT_ONES,
            [TENSOR_BIAS] = PARAM_INIT_CLEAR};
    const struct model_config *c = b->config;
    struct param *p = &b->table->params[b->table->count++];
    bool in_layer = unit > 0 && unit <= c->layers;
    bool is_linear = row->kind == TENSOR_LINEAR;
    bool is_matrix = is_linear || row->kind == TENSOR_EMBEDDING;
    int64_t rows = b->extents[row->rows];
    int64_t columns = is_matrix ? b->extents[row->columns] : 1;
    bool conv1d = is_linear && in_layer && c->family->conv1d;
    *p = (struct param){
            .role = row->role,
            .unit = unit,
            .dims = is_matrix ? 2 : 1,
            .shape = {conv1d ? columns : rows, conv1d ? rows : columns},
            .count = (size_t)rows * (size_t)columns,
            .trainable = true,
            .decays = is_matrix,
            .is_embedding = row->kind == TENSOR_EMBEDDING,
            .conv1d = conv1d,
            .is_product = is_linear && in_layer && !has_bias(c, row),
            .joins = row->joins,
            .init = row->kind == TENSOR_NORM &&
                                    c->family->norm_form == RMSNORM_ONE_PLUS
                            ? PARAM_INIT_CLEAR
                            : inits[row->kind],
            .init_std = is_matrix ? (float)c->initializer_range : 0,
            .adapts = -1,
            .learning_rate = 1};
    if (row->flags & TENSOR_RESIDUAL)
        p->init_std /= (float)sqrt(2.0 * c->layers);
    p->slice = slice_of(b, row, is_matrix);
    if (conv1d && p->slice.range_count) { /* stored as (in, out) */
        p->slice.by_column = !p->slice.by_column;
        p->slice.shape[0] = b->whole[row->columns];
        p->slice.shape[1] = b->whole[row->rows];
    }
    ZD_PRINT(p->name, "%s%s", prefix, row->name);
    const int64_t *shape = p->slice.range_count ? p->slice.shape : p->shape;
    p->blocks = blocks_of(b->model, row, shape, conv1d);
    param_cut_blocks(p);
}

static void add_unit(
        struct builder *b, const struct tensor_row *rows, int unit,
        const char *prefix)
{
    b->table->unit_first[unit] = b->table->count;
    for (const struct tensor_row *row = rows; row->name; row++)
        if (is_there(b->config, row))
            add(b, row, unit, prefix);
}

static size_t count_rows(const struct tensor_row *rows)
{
    size_t count = 0;
    while (rows[count].name)
        count++;
    return count;
}

/* A pattern may also have the prefix of some GPT-2 files. */
static bool matches(
        const struct model_config *config, const struct param *param,
        const char *pattern)
{
    char prefixed[PARAM_NAME_MAX + 16];
    const char *prefix = config->family->file_prefix;
    ZD_PRINT(prefixed, "%s%s", prefix ? prefix : "", param->name);
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

static void add_all(struct builder *b)
{
    struct param_table *table = b->table;
    const struct model_family *family = b->config->family;
    int layers = b->config->layers;
    add_unit(b, family->embeddings, 0, "");
    for (int i = 0; i < layers; i++) {
        char prefix[32];
        ZD_PRINT(prefix, "%s%d.", family->layer_prefix, i);
        add_unit(b, family->layer, i + 1, prefix);
    }
    add_unit(b, family->last, layers + 1, "");
    if (!b->config->tied)
        add(b, &head, layers + 1, "");
    table->unit_first[layers + 2] = table->count;
    for (int id = 0; id < table->count; id++)
        table->total += table->params[id].count;
}

enum zd_status param_table_build(
        const struct model_config *config, const char *const *freeze,
        int freeze_count, struct param_table *table_out)
{
    const struct tp whole = {1, 0};
    return param_table_slice(config, whole, freeze, freeze_count, table_out);
}

enum zd_status param_table_slice(
        const struct model_config *whole, struct tp tp,
        const char *const *freeze, int freeze_count,
        struct param_table *table_out)
{
    ZD_SCOPED(param_table_fini)
    struct param_table table = {.unit_count = whole->layers + 2};
    struct model_config slice;
    struct builder builder = {&slice, whole, &table, .place = tp.place};
    const struct model_config *config = &slice;
    const struct model_family *family = whole->family;
    ZD_TRY(model_config_slice(whole, tp, &slice));
    extents_of(&slice, builder.extents);
    extents_of(whole, builder.whole);
    size_t max = (size_t)config->layers * count_rows(family->layer) +
                 count_rows(family->embeddings) + count_rows(family->last) + 1;
    table.params = zd_array(max, sizeof *table.params);
    table.unit_first =
            zd_array((size_t)table.unit_count + 1, sizeof *table.unit_first);
    add_all(&builder);
    for (int i = 0; i < freeze_count; i++)
        ZD_TRY(freeze_matching(config, &table, freeze[i]));
    for (int id = 0; id < table.count; id++)
        table.trainable +=
                table.params[id].trainable ? table.params[id].count : 0;
    if (table.trainable == 0)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0306",
                "train.freeze leaves no tensor to train");
    *table_out = ZD_TAKE(table);
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

size_t param_whole_scale_bytes(const struct param_table *table, int id)
{
    return quant_scale_bytes(param_whole_codes(table, id));
}

size_t param_whole_scale_count(const struct param_table *table, int id)
{
    return quant_scale_count(param_whole_codes(table, id));
}

const struct quant_matrix *param_first_codes(const struct param_table *table)
{
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id))
            return &table->codes[id];
    return NULL;
}

int param_codes_packed(const struct param_table *table)
{
    const struct quant_matrix *first = param_first_codes(table);
    return first ? quant_is_4bit(first) ? 2 : 1 : 0;
}

const char *param_codes_name(const struct param_table *table)
{
    const struct quant_matrix *first = param_first_codes(table);
    return first ? quant_format_name(first->format) : NULL;
}

size_t param_most_in_codes(const struct param_table *table)
{
    size_t most = 0;
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id) && table->params[id].count > most)
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
    free(table->whole_codes);
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
