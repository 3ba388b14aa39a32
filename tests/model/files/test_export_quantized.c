#include "base/must.h"
#include "model/files/export_hf.h"

#include "tests/model/opened.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

struct exported {
    struct opened base;
    struct model_config again;
    struct weight_source source;
    struct scratch scratch;
};

static void setup(
        struct exported *e, const char *name, enum dtype dtype,
        const struct quantize_options *quantize)
{
    enum dtype storage;
    opened_base(&e->base, name);
    scratch_init(&e->scratch);
    const char *out = scratch_path(&e->scratch, "out");
    const struct hf_export_job job = {
            .dir = out,
            .config = &e->base.config,
            .table = &e->base.table,
            .dtype = dtype,
            .copy_from = e->base.dir,
            .file_prefix = true};
    tiny_must(weights_export_quantized(&job, &e->base.source, quantize));
    tiny_must(model_config_read(out, true, &e->again));
    cr_assert(e->again.is_quantized);
    tiny_must(weights_open_hf(
            out, &e->again, &e->base.table, &storage, &e->source));
    cr_assert(quantize->format == QUANT_INT8 || storage == dtype);
}

static void teardown(struct exported *e)
{
    weights_close(&e->source);
    model_config_fini(&e->again);
    scratch_fini(&e->scratch);
    opened_fini(&e->base);
}

static void transpose(float *x, size_t rows, size_t columns)
{
    ZD_FREED float *y = malloc(rows * columns * sizeof *y);
    memcpy(y, x, rows * columns * sizeof *y);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            x[c * rows + r] = y[r * columns + c];
}

/* x, rows of (out, in), quantized and dequantized. */
static void quantize_and_back(
        float *x, size_t rows, size_t columns,
        const struct quantize_options *quantize)
{
    size_t count = rows * columns, blocks = quant_parts(count, QUANT_BLOCK);
    uint8_t *codes = malloc(count), *nested = malloc(blocks);
    ZD_FREED float *scales = malloc(2 * blocks * sizeof *scales);
    float values[16], map[256];
    if (quantize->format == QUANT_INT8)
        for (size_t r = 0; r < rows; r++) {
            float scb =
                    quant_encode8((int8_t *)codes, x + r * columns, columns);
            quant_decode(
                    x + r * columns, QUANT_INT8, NULL, codes, 0, scb, columns);
        }
    else {
        quant_values(quantize->format, values);
        quant_encode4(codes, scales, x, quantize->format, count, QUANT_BLOCK);
        if (quantize->double_quant) {
            float offset = quant_nested_offset(scales, blocks);
            quant_dynamic_map(map);
            quant_nest(nested, scales + blocks, scales, offset, blocks);
            quant_unnest(
                    scales, nested, scales + blocks, map, offset,
                    QUANT_NESTED_BLOCK, 0, blocks);
        }
        for (size_t i = 0; i < count; i++)
            quant_decode(
                    x + i, quantize->format, values, codes, i,
                    scales[i / QUANT_BLOCK], 1);
    }
    free(codes);
    free(nested);
}

static void compare(
        const char *name, enum dtype dtype,
        const struct quantize_options *quantize)
{
    struct exported e;
    int coded = 0;
    setup(&e, name, dtype, quantize);
    for (int id = 0; id < e.base.table.count; id++) {
        const struct param *p = &e.base.table.params[id];
        size_t rows = (size_t)p->shape[0], columns = (size_t)p->shape[1];
        bool is_coded = p->dims == 2 && !p->is_embedding &&
                        strcmp(p->name, "lm_head.weight") != 0;
        bool is_transposed = is_coded && e.base.config.family->conv1d;
        ZD_FREED float *expected =
                read_all(&e.base.source, id, p->count, SIZE_MAX);
        ZD_FREED float *got = read_all(&e.source, id, p->count, SIZE_MAX);
        if (is_transposed)
            transpose(expected, rows, columns);
        if (is_coded)
            quantize_and_back(
                    expected, is_transposed ? columns : rows,
                    is_transposed ? rows : columns, quantize);
        else
            dtype_round(expected, dtype, p->count);
        if (is_transposed)
            transpose(expected, columns, rows);
        cr_expect(
                memcmp(expected, got, p->count * sizeof *got) == 0, "%s of %s",
                p->name, name);
        coded += is_coded;
    }
    cr_assert(coded > 0);
    teardown(&e);
}

Test(model_export_quantized, an_export_reads_as_the_quantized_weights)
{
    static const struct quantize_options nf4 = {QUANT_NF4, false},
                                         nested = {QUANT_NF4, true},
                                         int8 = {QUANT_INT8, false};
    static const char *const names[] = {"llama_odd", "gpt2", "qwen3"};
    for (int i = 0; i < 3; i++) {
        compare(names[i], DTYPE_BF16, &nf4);
        compare(names[i], DTYPE_FP16, &nested);
        compare(names[i], DTYPE_BF16, &int8);
    }
}
