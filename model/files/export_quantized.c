#include "model/files/export_quantized.h"

#include "model/files/export_dir.h"
#include "model/files/export_hf.h"
#include "model/files/hf_names.h"
#include "model/quantized/quant_state.h"

#include "base/file/fs.h"
#include "base/file/safetensors.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = PARAM_NAME_MAX + 64, PIECES = 6 };

/* What is written of a weight. */
enum piece_kind {
    PIECE_WHOLE, /* as it is */
    PIECE_CODES,
    PIECE_ABSMAX,
    PIECE_QUANT_MAP,
    PIECE_NESTED_ABSMAX,
    PIECE_NESTED_QUANT_MAP,
    PIECE_STATE,
    PIECE_SCB,
    PIECE_FORMAT
};

struct piece {
    int id;
    enum piece_kind kind;
};

/* A weight in codes; of one at a time. */
struct coded {
    int id;   /* -1: none */
    float *x; /* (rows, columns) */
    void *codes;
    float *scales; /* absmax or SCB */
    uint8_t *nested;
    float *nested_scales;
};

struct quantizing {
    const struct model_config *config;
    const struct param_table *table;
    const struct weight_source *source;
    const struct hf_export_options *options;
    const struct quantize_options *quantize;
    int count;
    struct st_entry *entries;
    struct piece *pieces;
    char (*names)[NAME_BYTES];
    float *offsets; /* (table->count) of nested absmax */
    struct coded coded;
};

static bool is_coded(const struct quantizing *q, int id)
{
    const struct param *p = &q->table->params[id];
    return param_is_linear(&q->table->params[id]) && p->unit > 0 &&
           p->unit < q->table->unit_count - 1;
}

static int64_t rows_of(const struct quantizing *q, int id)
{
    return param_out(&q->table->params[id]);
}

static int64_t columns_of(const struct quantizing *q, int id)
{
    return param_in(&q->table->params[id]);
}

/* --- codes ---------------------------------------------------------------- */

static void coded_fini(struct coded *c)
{
    free(c->x);
    free(c->codes);
    free(c->scales);
    free(c->nested);
    free(c->nested_scales);
    *c = (struct coded){.id = -1};
}

static enum zd_status read_transposed(
        const struct quantizing *q, int id, float *out)
{
    size_t count = q->table->params[id].count;
    size_t rows = (size_t)rows_of(q, id), columns = (size_t)columns_of(q, id);
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
    const struct coded *c = &q->coded;
    size_t count = q->table->params[id].count;
    size_t columns = (size_t)columns_of(q, id);
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
    struct coded *c = &q->coded;
    size_t count = q->table->params[id].count;
    size_t scales = quant_parts(count, QUANT_BLOCK) + (size_t)rows_of(q, id);
    if (c->id == id)
        return ZD_OK;
    coded_fini(c);
    c->x = malloc(count * sizeof *c->x);
    c->codes = malloc(count);
    c->scales = malloc(scales * sizeof *c->scales);
    c->nested = malloc(scales);
    c->nested_scales = malloc(scales * sizeof *c->nested_scales);
    if (!c->x || !c->codes || !c->scales || !c->nested || !c->nested_scales)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    ZD_TRY(q->table->params[id].conv1d
                   ? read_transposed(q, id, c->x)
                   : q->source->read(q->source->ctx, id, 0, count, c->x));
    encode(q, id);
    if (q->quantize->double_quant) {
        size_t blocks = quant_parts(count, QUANT_BLOCK);
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
            .dtype = q->options->dtype,
            .rows = rows_of(q, id),
            .columns = columns_of(q, id),
            .block = QUANT_BLOCK,
            .is_nested = q->quantize->double_quant,
            .nested_block = QUANT_NESTED_BLOCK,
            .nested_offset = q->offsets[id]};
    return quant_state_text(&state);
}

/* --- what is in the file -------------------------------------------------- */

/* `end` takes the place of the last `cut` characters of the weight's name. */
static void add(
        struct quantizing *q, int id, enum piece_kind kind, size_t cut,
        const char *end, const char *dtype, int dims, int64_t rows,
        int64_t columns)
{
    int i = q->count++;
    char name[HF_NAME_BYTES];
    if (q->options->file_prefix)
        hf_name_in_files(q->config, &q->table->params[id], name);
    else
        snprintf(name, sizeof name, "%s", q->table->params[id].name);
    snprintf(
            q->names[i], NAME_BYTES, "%.*s%s", (int)(strlen(name) - cut), name,
            end);
    q->pieces[i] = (struct piece){id, kind};
    q->entries[i] =
            (struct st_entry){q->names[i], dtype, dims, {rows, columns}};
}

static void add_int8(struct quantizing *q, int id)
{
    const size_t cut = strlen(".weight");
    int64_t rows = rows_of(q, id);
    add(q, id, PIECE_CODES, 0, "", "I8", 2, rows, columns_of(q, id));
    add(q, id, PIECE_SCB, cut, ".SCB", "F32", 1, rows, 1);
    add(q, id, PIECE_FORMAT, cut, ".weight_format", "U8", 0, 1, 1);
}

static void add_nf4(struct quantizing *q, int id)
{
    size_t count = q->table->params[id].count;
    int64_t blocks = (int64_t)quant_parts(count, QUANT_BLOCK);
    bool nested = q->quantize->double_quant;
    char *text = state_text(q, id);
    add(q, id, PIECE_CODES, 0, "", "U8", 2, (int64_t)quant_parts(count, 2), 1);
    add(q, id, PIECE_ABSMAX, 0, ".absmax", nested ? "U8" : "F32", 1, blocks, 1);
    add(q, id, PIECE_QUANT_MAP, 0, ".quant_map", "F32", 1, 16, 1);
    if (nested) {
        add(q, id, PIECE_NESTED_ABSMAX, 0, ".nested_absmax", "F32", 1,
            (int64_t)quant_parts((size_t)blocks, QUANT_NESTED_BLOCK), 1);
        add(q, id, PIECE_NESTED_QUANT_MAP, 0, ".nested_quant_map", "F32", 1,
            256, 1);
    }
    add(q, id, PIECE_STATE, 0, ".quant_state.bitsandbytes__nf4", "U8", 1,
        (int64_t)strlen(text), 1);
    free(text);
}

/* The text of a quant_state holds the offset, so that is known first. */
static enum zd_status list_pieces(struct quantizing *q)
{
    for (int id = 0; id < q->table->count; id++) {
        const struct param *p = &q->table->params[id];
        if (!is_coded(q, id)) {
            add(q, id, PIECE_WHOLE, 0, "",
                dtype_safetensors_name(q->options->dtype), p->dims, p->shape[0],
                p->shape[1]);
            continue;
        }
        if (q->quantize->double_quant)
            ZD_TRY(code_weight(q, id));
        if (q->quantize->format == QUANT_INT8)
            add_int8(q, id);
        else
            add_nf4(q, id);
    }
    return ZD_OK;
}

static enum zd_status write_whole(
        struct quantizing *q, int id, struct st_writer *writer)
{
    enum { RUN = 1 << 16 };
    size_t count = q->table->params[id].count;
    enum dtype type = q->options->dtype;
    float *x = malloc(2 * RUN * sizeof *x);
    if (!x)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    enum zd_status status = ZD_OK;
    for (size_t at = 0; status == ZD_OK && at < count; at += RUN) {
        size_t n = count - at < RUN ? count - at : RUN;
        status = q->source->read(q->source->ctx, id, at, n, x);
        dtype_convert(x + RUN, type, x, DTYPE_FP32, n);
        if (status == ZD_OK)
            status = st_writer_write(writer, x + RUN, n * dtype_bytes(type));
    }
    free(x);
    return status;
}

static enum zd_status write_state(
        const struct quantizing *q, int id, struct st_writer *writer)
{
    char *text = state_text(q, id);
    enum zd_status status = st_writer_write(writer, text, strlen(text));
    free(text);
    return status;
}

static enum zd_status write_piece(
        struct quantizing *q, const struct piece *piece,
        struct st_writer *writer)
{
    float map[256];
    uint8_t by_rows = 0;
    const struct coded *c = &q->coded;
    size_t count = q->table->params[piece->id].count;
    size_t blocks = quant_parts(count, QUANT_BLOCK);
    bool nested = q->quantize->double_quant;
    bool is_nf4 = q->quantize->format != QUANT_INT8;
    switch (piece->kind) {
    case PIECE_WHOLE:
        return write_whole(q, piece->id, writer);
    case PIECE_CODES:
        ZD_TRY(code_weight(q, piece->id));
        return st_writer_write(
                writer, c->codes, is_nf4 ? quant_parts(count, 2) : count);
    case PIECE_ABSMAX:
        ZD_TRY(code_weight(q, piece->id));
        return nested ? st_writer_write(writer, c->nested, blocks)
                      : st_writer_write(writer, c->scales, 4 * blocks);
    case PIECE_NESTED_ABSMAX:
        ZD_TRY(code_weight(q, piece->id));
        return st_writer_write(
                writer, c->nested_scales,
                4 * quant_parts(blocks, QUANT_NESTED_BLOCK));
    case PIECE_SCB:
        ZD_TRY(code_weight(q, piece->id));
        return st_writer_write(
                writer, c->scales, 4 * (size_t)rows_of(q, piece->id));
    case PIECE_QUANT_MAP:
        quant_values(q->quantize->format, map);
        return st_writer_write(writer, map, 16 * sizeof *map);
    case PIECE_NESTED_QUANT_MAP:
        quant_dynamic_map(map);
        return st_writer_write(writer, map, sizeof map);
    case PIECE_STATE:
        return write_state(q, piece->id, writer);
    case PIECE_FORMAT:
        return st_writer_write(writer, &by_rows, 1);
    }
    return ZD_OK;
}

static enum zd_status write_file(struct quantizing *q, const char *dir)
{
    char path[EXPORT_PATH_BYTES];
    struct st_writer *writer;
    ZD_TRY(list_pieces(q));
    json_t *mark =
            zd_must(json_pack("{s:s}", EXPORT_WRITER_KEY, EXPORT_WRITER));
    fs_join(path, sizeof path, dir, "model.safetensors");
    enum zd_status status =
            st_writer_create(path, q->entries, q->count, mark, &writer);
    json_decref(mark);
    ZD_TRY(status);
    for (int i = 0; i < q->count; i++) {
        status = write_piece(q, &q->pieces[st_writer_order(writer, i)], writer);
        if (status != ZD_OK) {
            st_writer_abandon(writer);
            return status;
        }
    }
    return st_writer_finish(writer, NULL, NULL);
}

/* --- the folder ----------------------------------------------------------- */

/* As transformers writes it. */
static json_t *quantization(const struct quantizing *q)
{
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    bool is_int8 = q->quantize->format == QUANT_INT8;
    return zd_must(json_pack(
            "{s:s s:b s:b s:s s:b s:s s:s s:f s:n s:b s:b}", "quant_method",
            "bitsandbytes", "load_in_4bit", !is_int8, "load_in_8bit", is_int8,
            "bnb_4bit_quant_type", "nf4", "bnb_4bit_use_double_quant",
            (int)q->quantize->double_quant, "bnb_4bit_compute_dtype",
            types[q->options->dtype], "bnb_4bit_quant_storage", "uint8",
            "llm_int8_threshold", 6.0, "llm_int8_skip_modules",
            "llm_int8_enable_fp32_cpu_offload", 0, "llm_int8_has_fp16_weight",
            0));
}

static enum zd_status write_folder(
        struct quantizing *q, const char *dir, const char *temporary)
{
    size_t count = (size_t)q->table->count;
    q->entries = calloc(count * PIECES, sizeof *q->entries);
    q->pieces = calloc(count * PIECES, sizeof *q->pieces);
    q->names = calloc(count * PIECES, sizeof *q->names);
    q->offsets = calloc(count, sizeof *q->offsets);
    if (!q->entries || !q->pieces || !q->names || !q->offsets)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for an export");
    ZD_TRY(export_dir_begin(temporary));
    ZD_TRY(write_file(q, temporary));
    struct hf_export_job job = {
            .dir = dir,
            .config = q->config,
            .table = q->table,
            .options = *q->options};
    job.options.max_shard_bytes = UINT64_MAX; /* the file that is there */
    job.options.quantization = quantization(q);
    enum zd_status status = weights_export_end(&job);
    json_decref(job.options.quantization);
    return status;
}

enum zd_status weights_export_quantized(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options,
        const struct quantize_options *quantize)
{
    char to[EXPORT_PATH_BYTES], temporary[EXPORT_PATH_BYTES];
    struct quantizing q = {
            .config = config,
            .table = table,
            .source = source,
            .options = options,
            .quantize = quantize,
            .coded = {.id = -1}};
    ZD_TRY(export_dir_names(dir, to, temporary));
    enum zd_status status = write_folder(&q, dir, temporary);
    coded_fini(&q.coded);
    free(q.entries);
    free(q.pieces);
    free(q.names);
    free(q.offsets);
    return status;
}
