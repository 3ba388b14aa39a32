#include "model/files/export_quantized.h"
#include "base/must.h"
#include "model/quantized/codes.h"
#include "model/quantized/quantized.h"

#include <stdlib.h>
#include <string.h>

/* file_tensor.kind of what is written of a quantized weight: that of the tensor
 * beside it, and 1; or of the weight itself. */
enum { KIND_WEIGHT = BESIDES + 1 };
#define KIND_OF(beside) ((int)(beside) + 1)

struct quantizing {
    const struct param_table *table;
    struct weight_source source;
    const struct quantize_options *quantize;
    enum dtype dtype;
    bool nested;
    float *offsets; /* (table->count) of nested absmax; owned */
    int id;         /* of the weight that is held; -1: none */
    struct codes_whole weight;
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
            .source = *source,
            .quantize = quantize,
            .dtype = dtype,
            .nested = quantize->double_quant && quantize->format != QUANT_INT8,
            .offsets = zd_array((size_t)table->count, sizeof *q->offsets),
            .id = -1};
    q->source.stored = NULL; /* values are quantized, however they are stored */
    return q;
}

void quantizing_destroy(struct quantizing *q)
{
    codes_whole_fini(&q->weight);
    free(q->offsets);
    free(q);
}

static struct quant_matrix matrix_of(const struct quantizing *q, int id)
{
    return codes_matrix(&q->table->params[id], q->quantize->format, q->nested);
}

static enum zd_status hold_weight(struct quantizing *q, int id)
{
    struct quant_matrix matrix = matrix_of(q, id);
    if (q->id == id)
        return ZD_OK;
    q->id = -1;
    codes_whole_fini(&q->weight);
    ZD_TRY(codes_make_whole(&q->source, q->table, id, &matrix, &q->weight));
    if (q->nested)
        q->offsets[id] = *(const float *)q->weight.scales;
    q->id = id;
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
            .is_nested = q->nested,
            .nested_block = QUANT_NESTED_BLOCK,
            .nested_offset = q->offsets[id]};
    return quant_state_text(&state);
}

/* The text of a quant_state holds the offset, so the offset is needed before
 * anything is written. */
enum zd_status quantizing_list(
        struct quantizing *q, int id, const char *name,
        struct tensor_files *files)
{
    struct quant_matrix m = matrix_of(q, id);
    bool is_4bit = quant_is_4bit(&m), nested = q->nested;
    int64_t blocks = (int64_t)quant_scale_count(&m);
    if (nested)
        ZD_TRY(hold_weight(q, id));
    char *text = is_4bit ? state_text(q, id) : NULL;
    const struct {
        bool is_written;
        int kind;
        const char *dtype;
        int dims;
        int64_t rows, columns;
    } pieces[] = {
            {is_4bit, KIND_WEIGHT, "U8", 2,
             (int64_t)quant_parts(quant_matrix_count(&m), 2), 1},
            {!is_4bit, KIND_WEIGHT, "I8", 2, m.rows, m.columns},
            {!is_4bit, KIND_OF(BESIDE_SCB), "F32", 1, m.rows, 1},
            {!is_4bit, KIND_OF(BESIDE_WEIGHT_FORMAT), "U8", 0, 1, 1},
            {is_4bit, KIND_OF(BESIDE_ABSMAX), nested ? "U8" : "F32", 1, blocks,
             1},
            {is_4bit, KIND_OF(BESIDE_QUANT_MAP), "F32", 1, 16, 1},
            {nested, KIND_OF(BESIDE_NESTED_ABSMAX), "F32", 1,
             (int64_t)quant_parts((size_t)blocks, QUANT_NESTED_BLOCK), 1},
            {nested, KIND_OF(BESIDE_NESTED_QUANT_MAP), "F32", 1, 256, 1},
            {is_4bit, KIND_OF(BESIDE_STATE_NF4), "U8", 1,
             text ? (int64_t)strlen(text) : 0, 1}};
    int stem = (int)(strlen(name) - strlen(".weight"));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int kind = pieces[i].kind;
        if (!pieces[i].is_written)
            continue;
        struct file_tensor *tensor = tensor_files_add(
                files, id, kind, pieces[i].dtype, pieces[i].dims,
                pieces[i].rows, pieces[i].columns);
        snprintf(
                tensor->name, sizeof tensor->name, "%.*s%s", stem, name,
                kind == KIND_WEIGHT ? ".weight" : quantized_ends[kind - 1]);
    }
    free(text);
    return ZD_OK;
}

enum zd_status quantizing_read(
        struct quantizing *q, const struct file_tensor *tensor, size_t begin,
        size_t count, void *out)
{
    float map[256];
    char *text = NULL;
    struct quant_matrix m = matrix_of(q, tensor->id);
    size_t groups = quant_parts(quant_scale_count(&m), QUANT_NESTED_BLOCK);
    size_t element = strcmp(tensor->entry.dtype, "F32") == 0 ? 4 : 1;
    ZD_TRY(hold_weight(q, tensor->id));
    const float *scales = q->weight.scales;
    const void *from = scales;
    if (tensor->kind == KIND_WEIGHT)
        from = q->weight.codes;
    else if (tensor->kind == KIND_OF(BESIDE_ABSMAX) && q->nested)
        from = scales + 1 + groups;
    else if (tensor->kind == KIND_OF(BESIDE_NESTED_ABSMAX))
        from = scales + 1;
    else if (tensor->kind == KIND_OF(BESIDE_QUANT_MAP))
        quant_values(q->quantize->format, map), from = map;
    else if (tensor->kind == KIND_OF(BESIDE_NESTED_QUANT_MAP))
        quant_dynamic_map(map), from = map;
    else if (tensor->kind == KIND_OF(BESIDE_STATE_NF4))
        from = text = state_text(q, tensor->id);
    else if (tensor->kind == KIND_OF(BESIDE_WEIGHT_FORMAT))
        from = ""; /* 0: by rows */
    memcpy(out, (const char *)from + begin * element, count * element);
    free(text);
    return ZD_OK;
}

/* As transformers writes it. */
json_t *quantizing_config(const struct quantizing *q)
{
    bool is_int8 = q->quantize->format == QUANT_INT8;
    return zd_must(json_pack(
            "{s:s s:b s:b s:s s:b s:s s:s s:f s:n s:b s:b}", "quant_method",
            "bitsandbytes", "load_in_4bit", !is_int8, "load_in_8bit", is_int8,
            "bnb_4bit_quant_type", "nf4", "bnb_4bit_use_double_quant",
            (int)q->quantize->double_quant, "bnb_4bit_compute_dtype",
            dtype_torch_name(q->dtype), "bnb_4bit_quant_storage", "uint8",
            "llm_int8_threshold", 6.0, "llm_int8_skip_modules",
            "llm_int8_enable_fp32_cpu_offload", 0, "llm_int8_has_fp16_weight",
            0));
}
