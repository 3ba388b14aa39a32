/* Quantized weights of a base: any part equals that of the whole, as
 * kernels/quant quantizes or as a file stores it; norms of rows. */
#include "model/quantized/codes.h"

#include "base/must.h"
#include "base/number/sizes.h"
#include "base/progress.h"
#include "kernels/kernels.h"
#include "model/adapters/lora.h"
#include "model/files/config.h"
#include "model/files/weights_hf.h"
#include "model/quantized/row_norms.h"
#include "tests/model/tiny.h"

#include <criterion/criterion.h>

#include <math.h>

enum { PATH_BYTES = 4000 };

struct adapted {
    struct model_config config;
    struct param_table table;
    struct weight_source source;
    size_t least; /* elements of a part */
};

/* Adapters on m->config; its base in `base`, or as it is stored in `dir`. */
static void adapt(struct adapted *m, const char *dir, enum lora_base base)
{
    struct lora_options options = lora_options_default();
    struct peft_config adapter;
    options.r = 2;
    options.quantize_base = base;
    m->least = 0;
    tiny_must(param_table_build(&m->config, NULL, 0, &m->table));
    tiny_must(lora_config(&options, &adapter));
    tiny_must(lora_extend(&m->config, &adapter, &options, &m->table));
    peft_config_fini(&adapter);
    tiny_must(lora_quantize(&m->config, &options, dir, &m->table));
    tiny_must(
            dir ? weights_open_hf(dir, &m->config, &m->table, NULL, &m->source)
                : weights_open_random(3, &m->table, &m->source));
}

/* Of a fixture. */
static void setup(struct adapted *m, const char *name, enum lora_base base)
{
    char dir[PATH_BYTES];
    ZD_PRINT(dir, "%s/%s", getenv("ZEROD_FIXTURES"), name);
    tiny_must(model_config_read(dir, true, &m->config));
    adapt(m, dir, base);
}

/* Random, of one layer that is wider and longer than tiles are. */
static void setup_wide(struct adapted *m, bool transposed, enum lora_base base)
{
    tiny_config(
            transposed ? "{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_embd\":"
                         "150,"
                         "\"n_layer\":1,\"n_head\":3,\"n_positions\":8}"
                       : "llama_long",
            &m->config);
    adapt(m, NULL, base);
}

static void teardown(struct adapted *m)
{
    weights_close(&m->source);
    param_table_fini(&m->table);
    model_config_fini(&m->config);
}

/* How many are quantized? Each is given to `check`. */
static int each_quantized(
        const struct adapted *m, void (*check)(const struct adapted *m, int id))
{
    int found = 0;
    for (int id = 0; id < m->table.count; id++)
        if (param_is_quantized(&m->table, id)) {
            check(m, id);
            found++;
        }
    return found;
}

struct sink {
    const struct quant_matrix *m;
    uint8_t *codes;
    size_t next;
};

static enum zd_status take(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    struct sink *sink = ctx;
    cr_assert(begin == sink->next, "in order");
    memcpy(sink->codes + quant_code_bytes(sink->m, begin), codes,
           quant_code_bytes(sink->m, count));
    sink->next = begin + count;
    return ZD_OK;
}

/* The codes and what decodes them, of weight `id` in parts of `part`, each with
 * scales of its own, which are added up. */
static void make(
        const struct adapted *m, int id, size_t part, uint8_t *codes,
        void *decoding)
{
    const struct codes_maker maker = codes_maker_of(&m->table, &m->source, id);
    const struct quant_matrix *matrix = &m->table.codes[id];
    size_t total = quant_matrix_count(matrix);
    size_t scale_count = quant_scale_count(matrix);
    ZD_FREED float *scales = calloc(scale_count, sizeof *scales);
    ZD_FREED float *own = malloc(scale_count * sizeof *own);
    for (size_t at = 0; at < total; at += part) {
        struct sink sink = {matrix, codes, at};
        memset(own, 0, scale_count * sizeof *own);
        size_t end = total - at < part ? total : at + part;
        tiny_must(codes_make(&maker, at, end, take, &sink, own));
        cr_assert(sink.next == end);
        for (size_t i = 0; i < scale_count; i++)
            scales[i] += own[i];
    }
    tiny_must(codes_finish(&maker, scales, decoding));
}

/* Element i of the codes' order, of weights as they are read. */
static size_t read_index(const struct adapted *m, int id, size_t i)
{
    const struct quant_matrix *matrix = &m->table.codes[id];
    size_t columns = (size_t)matrix->columns;
    return m->table.params[id].conv1d
                   ? i % columns * (size_t)matrix->rows + i / columns
                   : i;
}

static float *values_of(const struct adapted *m, int id)
{
    size_t count = m->table.params[id].count;
    ZD_FREED float *read = malloc(count * sizeof *read);
    float *values = malloc(count * sizeof *values);
    tiny_must(m->source.read(m->source.ctx, id, 0, count, read));
    for (size_t i = 0; i < count; i++)
        values[i] = read[read_index(m, id, i)];
    return values;
}

/* As kernels/quant makes of the whole matrix. */
static void encode(
        const struct quant_matrix *m, const float *x, uint8_t *codes,
        float *scales)
{
    size_t columns = (size_t)m->columns, rows = (size_t)m->rows;
    if (quant_is_4bit(m))
        quant_encode4(codes, scales, x, m->format, rows * columns, m->block);
    for (size_t r = 0; r < rows && m->format == QUANT_INT8; r++)
        scales[r] = quant_encode8(
                (int8_t *)codes + r * columns, x + r * columns, columns);
    for (size_t r = 0; r < rows && m->format == QUANT_FP8; r += QUANT_TILE)
        for (size_t c = 0; c < columns; c += QUANT_TILE) {
            size_t at = r * columns + c;
            scales[quant_scale_of(m, at)] = quant_encode_tile(
                    codes + at, x + at, size_min(rows - r, QUANT_TILE),
                    size_min(columns - c, QUANT_TILE), columns);
        }
}

/* Cut into parts. */
static void compare_made(const struct adapted *m, int id)
{
    const struct quant_matrix *matrix = &m->table.codes[id];
    size_t bytes = quant_code_bytes(matrix, quant_matrix_count(matrix));
    size_t scale_bytes = quant_scale_bytes(matrix);
    size_t words = quant_parts(scale_bytes, sizeof(float));
    ZD_FREED uint8_t *codes = malloc(2 * bytes);
    ZD_FREED float *scales = malloc(2 * words * sizeof *scales);
    ZD_FREED float *of_blocks =
            malloc(quant_scale_count(matrix) * sizeof *of_blocks);
    ZD_FREED float *x = values_of(m, id);
    encode(matrix, x, codes, of_blocks);
    quant_store_scales(scales, of_blocks, matrix);
    static const size_t parts[] = {512, 1536, 20 << 10, 1 << 20};
    for (int i = 0; i < 4; i++) {
        if (parts[i] < m->least)
            continue;
        make(m, id, parts[i], codes + bytes, scales + words);
        cr_assert(
                memcmp(codes, codes + bytes, bytes) == 0, "%s by %zu",
                m->table.params[id].name, parts[i]);
        cr_assert(
                memcmp(scales, scales + words, scale_bytes) == 0,
                "scales of %s by %zu", m->table.params[id].name, parts[i]);
    }
}

Test(model_codes, any_part_equals_that_of_the_whole)
{
    static const char *const names[] = {"gpt2/model", "llama_odd/model"};
    for (int n = 0; n < 2; n++)
        for (int base = LORA_BASE_NF4; base <= LORA_BASE_FP8; base++) {
            struct adapted m;
            setup(&m, names[n], (enum lora_base)base);
            int found = each_quantized(&m, compare_made);
            cr_assert(found == m.config.layers * (n ? 7 : 4));
            teardown(&m);
        }
}

/* A band that is made at once has many rows of tiles. */
Test(model_codes, a_weight_may_have_more_rows_than_a_tile)
{
    for (int transposed = 0; transposed < 2; transposed++)
        for (int base = LORA_BASE_NF4; base <= LORA_BASE_FP8; base++) {
            struct adapted m;
            setup_wide(&m, transposed, (enum lora_base)base);
            m.least = 20 << 10;
            each_quantized(&m, compare_made);
            teardown(&m);
        }
}

/* --- lengths of rows ------------------------------------------------------ */

/* Of the row that `codes` and `scales` decode to. */
static double length_of(
        const struct quant_matrix *matrix, const void *codes,
        const void *scales, size_t row)
{
    double squares = 0;
    for (size_t i = 0; i < (size_t)matrix->columns; i++) {
        double value = quant_value(
                codes, scales, matrix, row * (size_t)matrix->columns + i);
        squares += value * value;
    }
    return sqrt(squares);
}

/* Made of all of the weight, read of a part of its rows. */
static void compare_lengths(const struct adapted *m, int id)
{
    enum { FROM = 3 };
    const struct quant_matrix *matrix = &m->table.codes[id];
    size_t rows = (size_t)matrix->rows - FROM, apart = 0;
    struct codes_whole whole;
    float *held = calloc(2 * rows, sizeof *held), *plain = held + rows;
    tiny_must(codes_make_whole(&m->source, &m->table, id, matrix, &whole));
    tiny_must(weights_add_row_norms(
            &m->source, &m->table, id, matrix, FROM, rows, 1, held));
    tiny_must(weights_add_row_norms(
            &m->source, &m->table, id, NULL, FROM, rows, 1, plain));
    for (size_t r = 0; r < rows; r++) {
        double want = length_of(matrix, whole.codes, whole.scales, FROM + r);
        cr_assert(
                held[r] == (float)want, "%s: row %zu of %s is %.9g, not %.9g",
                m->table.params[id].name, r, quant_format_name(matrix->format),
                (double)held[r], want);
        cr_assert(fabs(plain[r] - want) < 0.1 * want);
        apart += plain[r] != held[r];
    }
    cr_assert(apart > rows / 2);
    codes_whole_fini(&whole);
    free(held);
}

Test(model_codes, row_norms_are_of_the_dequantized_weight)
{
    for (int transposed = 0; transposed < 2; transposed++)
        for (int base = LORA_BASE_NF4; base <= LORA_BASE_FP8; base++) {
            struct adapted m;
            setup_wide(&m, transposed, (enum lora_base)base);
            each_quantized(&m, compare_lengths);
            teardown(&m);
        }
}

/* --- stored quantized ------------------------------------------------------
 */

/* What the table decodes them to is what the source reads. */
static void compare_stored(const struct adapted *m, int id)
{
    const struct quant_matrix *matrix = &m->table.codes[id];
    size_t count = quant_matrix_count(matrix);
    ZD_FREED uint8_t *codes = malloc(quant_code_bytes(matrix, count));
    ZD_FREED void *scales = malloc(quant_scale_bytes(matrix));
    float *x = values_of(m, id), *back = malloc(count * sizeof *back);
    const struct codes_maker maker = codes_maker_of(&m->table, &m->source, id);
    cr_assert(codes_are_stored(&maker));
    make(m, id, 1024, codes, scales);
    tiny_must(tiny_plain(DTYPE_FP32)
                      ->dequantize(NULL, back, codes, scales, matrix));
    cr_assert(
            memcmp(x, back, count * sizeof *x) == 0, "%s",
            m->table.params[id].name);
    free(x);
    free(back);
}

Test(model_codes, a_quantized_model_is_loaded_as_stored)
{
    static const char *const names[] = {
            "quant/nf4-nested", "quant/gpt2-nf4", "quant/fp4", "quant/int8",
            "quant/fp8"};
    for (int n = 0; n < 5; n++) {
        struct adapted m;
        setup(&m, names[n], LORA_BASE_NONE);
        cr_assert(each_quantized(&m, compare_stored) > 0, "%s", names[n]);
        teardown(&m);
    }
}

Test(model_codes, only_frozen_weights_of_layers_are_quantized)
{
    struct adapted m;
    setup(&m, "llama_odd/model", LORA_BASE_NF4);
    for (int id = 0; id < m.table.count; id++) {
        const struct param *p = &m.table.params[id];
        bool is_layers = p->unit > 0 && p->unit <= m.config.layers;
        cr_assert(
                param_is_quantized(&m.table, id) ==
                        (is_layers && p->dims == 2 && !p->trainable),
                "%s", p->name);
    }
    teardown(&m);
}

/* Random weights are read from nowhere. */
Test(model_codes, quantizing_reports_progress)
{
    struct adapted m;
    struct progress work = {0};
    setup_wide(&m, false, LORA_BASE_NF4);
    int id = 0;
    while (!param_is_quantized(&m.table, id))
        id++;
    struct codes_whole whole;
    progress_use(&work);
    tiny_must(codes_make_whole(
            &m.source, &m.table, id, &m.table.codes[id], &whole));
    progress_use(NULL);
    cr_expect_geq(work.completed, 1);
    codes_whole_fini(&whole);
    teardown(&m);
}
