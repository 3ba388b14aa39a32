#include "model/files/export_quantized.h"
#include "base/must.h"
#include "model/quantized/quant_state.h"

#include <stdlib.h>
#include <string.h>

/* What is written of a weight. */
enum piece_kind {
    PIECE_CODES = 1,
    PIECE_ABSMAX,
    PIECE_QUANT_MAP,
    PIECE_NESTED_ABSMAX,
    PIECE_NESTED_QUANT_MAP,
    PIECE_STATE,
    PIECE_SCB,
    PIECE_FORMAT
};

/* A quantized weight; of one at a time. */
struct coded {
    int id;   /* -1: none */
    float *x; /* (rows, columns) */
    void *codes;
    float *scales; /* absmax or SCB */
    uint8_t *nested;
    float *nested_scales;
};

struct quantizing {
    const struct param_table *table;
    const struct weight_source *source;
    const struct quantize_options *quantize;
    enum dtype dtype;
    float *offsets; /* (table->count) of nested absmax; owned */
    struct coded weight;
};

bool quantizing_takes(const struct param_table *table, int id)
{
    const struct param *p = &table->params[id];
    return param_is_linear(p) && p->unit > 0 && p->unit < table->unit_count - 1;
}

struct quantizing *quantizing_create(
        const struct param_table *table, const struct weight_source *source,
        enum dtype dtype, const struct quantize_options *quantize)
{
    struct quantizing *q = zd_array(1, sizeof *q);
    *q = (struct quantizing){
            .table = table,
            .source = source,
            .quantize = quantize,
            .dtype = dtype,
            .offsets = zd_array((size_t)table->count, sizeof *q->offsets),
            .weight = {.id = -1}};
    return q;
}

static void coded_fini(struct coded *c)
{
    free(c->x);
    free(c->codes);
    free(c->scales);
    free(c->nested);
    free(c->nested_scales);
    *c = (struct coded){.id = -1};
}

void quantizing_destroy(struct quantizing *q)
{
    coded_fini(&q->weight);
    free(q->offsets);
    free(q);
}

/* --- codes ---------------------------------------------------------------- */

static enum zd_status read_transposed(
        const struct quantizing *q, int id, float *out)
{
    size_t count = q->table->params[id].count;
    size_t rows = (size_t)param_out(&q->table->params[id]),
           columns = (size_t)param_in(&q->table->params[id]);
    float *x = malloc(count * sizeof *x);
    if (!x)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    enum zd_status status = q->source->read(q->source->ctx, id, 0, count, x);
    for (size_t r = 0; status == ZD_OK && r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[r * columns + c] = x[c * rows + r];
    free(x);
    return status;
}

static void encode(const struct quantizing *q, int id)
{
    const struct coded *c = &q->weight;
    size_t count = q->table->params[id].count;
    size_t columns = (size_t)param_in(&q->table->params[id]);
    if (q->quantize->format != QUANT_INT8) {
        quant_encode4(
                c->codes, c->scales, c->x, q->quantize->format, count,
                QUANT_BLOCK);
        return;
    }
    for (size_t r = 0; r < count / columns; r++)
        c->scales[r] = quant_encode8(
                (int8_t *)c->codes + r * columns, c->x + r * columns, columns);
}

static enum zd_status code_weight(struct quantizing *q, int id)
{
    struct coded *c = &q->weight;
    const struct param *p = &q->table->params[id];
    size_t blocks = quant_parts(p->count, QUANT_BLOCK);
    size_t scales = blocks + (size_t)param_out(p);
    if (c->id == id)
        return ZD_OK;
    coded_fini(c);
    c->x = malloc(p->count * sizeof *c->x);
    c->codes = malloc(p->count);
    c->scales = malloc(scales * sizeof *c->scales);
    c->nested = malloc(scales);
    c->nested_scales = malloc(scales * sizeof *c->nested_scales);
    if (!c->x || !c->codes || !c->scales || !c->nested || !c->nested_scales)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    ZD_TRY(p->conv1d ? read_transposed(q, id, c->x)
                     : q->source->read(q->source->ctx, id, 0, p->count, c->x));
    encode(q, id);
    if (q->quantize->double_quant) {
        q->offsets[id] = quant_nested_offset(c->scales, blocks);
        quant_nest(
                c->nested, c->nested_scales, c->scales, q->offsets[id], blocks);
    }
    c->id = id;
    return ZD_OK;
}

static char *state_text(const struct quantizing *q, int id)
{
    const struct quant_state state = {
            .format = q->quantize->format,
            .dtype = q->dtype,
            .rows = param_out(&q->table->params[id]),
            .columns = param_in(&q->table->params[id]),
            .block = QUANT_BLOCK,
            .is_nested = q->quantize->double_quant,
            .nested_block = QUANT_NESTED_BLOCK,
            .nested_offset = q->offsets[id]};
    return quant_state_text(&state);
}

/* --- what is in the file -------------------------------------------------- */

/* `end` takes the place of the last `cut` characters of the weight's name. */
static void add(
        struct tensor_files *files, int id, enum piece_kind kind,
        const char *name, size_t cut, const char *end, const char *dtype,
        int dims, int64_t rows, int64_t columns)
{
    struct file_tensor *tensor =
            tensor_files_add(files, id, kind, dtype, dims, rows, columns);
    snprintf(
            tensor->name, sizeof tensor->name, "%.*s%s",
            (int)(strlen(name) - cut), name, end);
}

/* The text of a quant_state holds the offset, so that is known first. */
enum zd_status quantizing_list(
        struct quantizing *q, int id, const char *name,
        struct tensor_files *files)
{
    const struct param *p = &q->table->params[id];
    const size_t cut = strlen(".weight");
    int64_t rows = param_out(p), halves = (int64_t)quant_parts(p->count, 2);
    size_t blocks = quant_parts(p->count, QUANT_BLOCK);
    int64_t groups = (int64_t)quant_parts(blocks, QUANT_NESTED_BLOCK);
    bool nested = q->quantize->double_quant;
    if (nested)
        ZD_TRY(code_weight(q, id));
    if (q->quantize->format == QUANT_INT8) {
        add(files, id, PIECE_CODES, name, 0, "", "I8", 2, rows, param_in(p));
        add(files, id, PIECE_SCB, name, cut, ".SCB", "F32", 1, rows, 1);
        add(files, id, PIECE_FORMAT, name, cut, ".weight_format", "U8", 0, 1,
            1);
        return ZD_OK;
    }
    char *text = state_text(q, id);
    add(files, id, PIECE_CODES, name, 0, "", "U8", 2, halves, 1);
    add(files, id, PIECE_ABSMAX, name, 0, ".absmax", nested ? "U8" : "F32", 1,
        (int64_t)blocks, 1);
    add(files, id, PIECE_QUANT_MAP, name, 0, ".quant_map", "F32", 1, 16, 1);
    if (nested) {
        add(files, id, PIECE_NESTED_ABSMAX, name, 0, ".nested_absmax", "F32", 1,
            groups, 1);
        add(files, id, PIECE_NESTED_QUANT_MAP, name, 0, ".nested_quant_map",
            "F32", 1, 256, 1);
    }
    add(files, id, PIECE_STATE, name, 0, ".quant_state.bitsandbytes__nf4", "U8",
        1, (int64_t)strlen(text), 1);
    free(text);
    return ZD_OK;
}

static void read_state(
        const struct quantizing *q, int id, size_t begin, size_t count,
        void *out)
{
    char *text = state_text(q, id);
    memcpy(out, text + begin, count);
    free(text);
}

enum zd_status quantizing_read(
        struct quantizing *q, const struct file_tensor *tensor, size_t begin,
        size_t count, void *out)
{
    float map[256];
    const char *from = NULL;
    const struct coded *c = &q->weight;
    enum piece_kind kind = (enum piece_kind)tensor->kind;
    bool is_map = kind == PIECE_QUANT_MAP || kind == PIECE_NESTED_QUANT_MAP;
    if (kind != PIECE_STATE && kind != PIECE_FORMAT && !is_map)
        ZD_TRY(code_weight(q, tensor->id));
    switch (kind) {
    case PIECE_CODES:
        from = c->codes;
        break;
    case PIECE_ABSMAX:
        from = q->quantize->double_quant ? (const char *)c->nested
                                         : (const char *)c->scales;
        break;
    case PIECE_SCB:
        from = (const char *)c->scales;
        break;
    case PIECE_NESTED_ABSMAX:
        from = (const char *)c->nested_scales;
        break;
    case PIECE_QUANT_MAP:
        quant_values(q->quantize->format, map);
        from = (const char *)map;
        break;
    case PIECE_NESTED_QUANT_MAP:
        quant_dynamic_map(map);
        from = (const char *)map;
        break;
    case PIECE_STATE:
        read_state(q, tensor->id, begin, count, out);
        return ZD_OK;
    case PIECE_FORMAT: /* by rows */
        *(uint8_t *)out = 0;
        return ZD_OK;
    }
    size_t element = strcmp(tensor->entry.dtype, "F32") == 0 ? 4 : 1;
    memcpy(out, from + begin * element, count * element);
    return ZD_OK;
}

/* As transformers writes it. */
json_t *quantizing_config(const struct quantizing *q)
{
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    bool is_int8 = q->quantize->format == QUANT_INT8;
    return zd_must(json_pack(
            "{s:s s:b s:b s:s s:b s:s s:s s:f s:n s:b s:b}", "quant_method",
            "bitsandbytes", "load_in_4bit", !is_int8, "load_in_8bit", is_int8,
            "bnb_4bit_quant_type", "nf4", "bnb_4bit_use_double_quant",
            (int)q->quantize->double_quant, "bnb_4bit_compute_dtype",
            types[q->dtype], "bnb_4bit_quant_storage", "uint8",
            "llm_int8_threshold", 6.0, "llm_int8_skip_modules",
            "llm_int8_enable_fp32_cpu_offload", 0, "llm_int8_has_fp16_weight",
            0));
}
