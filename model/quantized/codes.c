#include "model/quantized/codes.h"

#include "base/must.h"
#include "base/number/sizes.h"
#include "base/progress.h"
#include "model/quantized/quantized.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 14, /* elements that a thread reads and encodes at a time */
    LIMIT = 1 << 20, /* elements encoded at a time if bands are short */
    TRANSPOSED_ROWS = 64, /* rows of a transpose read at once */
};

/* A piece of work: whole rows, except stored 4-bit codes. */
struct band {
    const struct codes_maker *maker;
    size_t begin, count; /* elements */
    size_t first_scale;
    float *values, *scales; /* scratch per band */
    uint8_t *codes;
};

/* The granularity of encoding in elements. */
static size_t grain_of(const struct codes_maker *maker)
{
    const struct quant_matrix *m = maker->whole;
    size_t columns = (size_t)m->columns;
    if (m->format == QUANT_FP8)
        return QUANT_TILE * columns;
    if (maker->param->conv1d)
        return TRANSPOSED_ROWS * columns;
    return quant_is_4bit(m) ? m->block : columns;
}

static const struct quantized *stored_of(const struct codes_maker *maker)
{
    const struct weight_source *source = maker->source;
    return source->stored ? source->stored(source->ctx, maker->id) : NULL;
}

bool codes_are_stored(const struct codes_maker *maker)
{
    return stored_of(maker) != NULL;
}

/* --- values --------------------------------------------------------------- */

/* Reads column `column` of a transpose: a contiguous part of a row in the file.
 */
static enum zd_status read_column(const struct band *band, size_t column)
{
    enum { RUN = 1024 };
    float run[RUN];
    const struct weight_source *source = band->maker->source;
    size_t columns = (size_t)band->maker->whole->columns,
           rows = band->count / columns;
    size_t first =
            column * (size_t)band->maker->whole->rows + band->begin / columns;
    for (size_t r = 0; r < rows; r += RUN) {
        size_t count = rows - r < RUN ? rows - r : RUN;
        ZD_TRY(source->read(
                source->ctx, band->maker->id, first + r, count, run));
        for (size_t i = 0; i < count; i++)
            band->values[(r + i) * columns + column] = run[i];
    }
    return ZD_OK;
}

static enum zd_status read_values(const struct band *band)
{
    const struct codes_maker *maker = band->maker;
    size_t columns = (size_t)band->maker->whole->columns;
    int failed = 0;
    if (!maker->param->conv1d)
        return weights_read_parallel(
                maker->source, maker->id, band->begin, band->count,
                band->values);
#pragma omp parallel for schedule(dynamic) reduction(+ : failed)
    for (size_t column = 0; column < columns; column++)
        failed += read_column(band, column) != ZD_OK;
    /* error messages are per thread: repeats the failed read on this one */
    for (size_t column = 0; failed && column < columns; column++)
        ZD_TRY(read_column(band, column));
    return ZD_OK;
}

/* --- codes ---------------------------------------------------------------- */

static void encode_blocks(const struct band *band)
{
    const struct quant_matrix *m = band->maker->whole;
#pragma omp parallel for schedule(dynamic)
    for (size_t at = 0; at < band->count; at += PIECE) {
        size_t left = band->count - at;
        quant_encode4(
                band->codes + at / 2, band->scales + at / m->block,
                band->values + at, m->format, left < PIECE ? left : PIECE,
                m->block);
    }
}

static void encode_rows(const struct band *band)
{
    size_t columns = (size_t)band->maker->whole->columns;
#pragma omp parallel for schedule(dynamic)
    for (size_t at = 0; at < band->count; at += columns)
        band->scales[at / columns] = quant_encode8(
                (int8_t *)band->codes + at, band->values + at, columns);
}

static void encode_tiles(const struct band *band)
{
    const struct quant_matrix *m = band->maker->whole;
    size_t columns = (size_t)m->columns, rows = band->count / columns;
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t r = 0; r < rows; r += QUANT_TILE)
        for (size_t c = 0; c < columns; c += QUANT_TILE) {
            size_t at = r * columns + c;
            size_t scale = quant_scale_of(m, band->begin + at);
            band->scales[scale - band->first_scale] = quant_encode_tile(
                    band->codes + at, band->values + at,
                    size_min(rows - r, QUANT_TILE),
                    size_min(columns - c, QUANT_TILE), columns);
        }
}

static enum zd_status make_band(const struct band *band)
{
    const struct quantized *stored = stored_of(band->maker);
    if (stored)
        return quantized_read_codes(
                stored, band->begin, band->count, band->codes);
    ZD_TRY(read_values(band));
    if (quant_is_4bit(band->maker->whole))
        encode_blocks(band);
    else if (band->maker->whole->format == QUANT_INT8)
        encode_rows(band);
    else
        encode_tiles(band);
    return ZD_OK;
}

/* Stores the scales of parts that begin in the range. */
static void keep_scales(
        const struct band *band, size_t begin, size_t end, float *scales)
{
    size_t last =
            quant_scale_of(band->maker->whole, band->begin + band->count - 1);
    for (size_t i = band->first_scale; i <= last; i++) {
        size_t first = quant_scale_first(band->maker->whole, i);
        if (first >= begin && first < end)
            scales[i] = band->scales[i - band->first_scale];
    }
}

enum zd_status codes_make(
        const struct codes_maker *maker, size_t begin, size_t end,
        codes_write_fn *write, void *ctx, float *scales)
{
    const struct quant_matrix *m = maker->whole;
    size_t total = quant_matrix_count(m), grain = grain_of(maker);
    size_t most = grain < LIMIT ? LIMIT / grain * grain : grain;
    bool keeps = scales && !stored_of(maker);
    most = size_min(most, quant_parts(end - begin + grain, grain) * grain);
    ZD_FREED float *values = zd_array(most, sizeof *values);
    ZD_FREED float *made =
            zd_array(quant_scale_of(m, most - 1) + 1, sizeof *made);
    ZD_FREED uint8_t *codes = zd_array(most, 1);
    for (size_t at = begin; at < end;) {
        size_t first = at / grain * grain;
        size_t wanted = quant_parts(end - first, grain) * grain;
        struct band band = {
                .maker = maker,
                .begin = first,
                .count = size_min(size_min(wanted, most), total - first),
                .first_scale = quant_scale_of(m, first),
                .values = values,
                .scales = made,
                .codes = codes};
        size_t to = size_min(end, first + band.count);
        ZD_TRY(make_band(&band));
        progress_completed(); /* also when weights are computed, not read */
        ZD_TRY(write(
                ctx, at, to - at, codes + quant_code_bytes(m, at - first)));
        if (keeps)
            keep_scales(&band, begin, end, scales);
        at = to;
    }
    return ZD_OK;
}

enum zd_status codes_finish(
        const struct codes_maker *maker, const float *scales, void *out)
{
    const struct quantized *stored = stored_of(maker);
    if (stored)
        return quantized_read_scales(stored, out);
    quant_store_scales(out, scales, maker->whole);
    return ZD_OK;
}

/* --- whole weights -------------------------------------------------------- */

struct quant_matrix codes_matrix(
        const struct param *param, enum quant_format format, bool nested)
{
    struct quant_matrix m = {
            .format = format,
            .rows = param_out(param),
            .columns = param_in(param)};
    if (!quant_is_4bit(&m))
        return m;
    m.block = QUANT_BLOCK;
    m.nested_block = nested ? QUANT_NESTED_BLOCK : 0;
    return m;
}

static enum zd_status copy_codes(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    const struct codes_whole *whole = ctx;
    memcpy(whole->codes + quant_code_bytes(&whole->matrix, begin), codes,
           quant_code_bytes(&whole->matrix, count));
    return ZD_OK;
}

enum zd_status codes_make_whole(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, struct codes_whole *out)
{
    const struct codes_maker maker = {source, &table->params[id], id, matrix};
    size_t count = quant_matrix_count(matrix);
    ZD_FREED float *scales = zd_array(quant_scale_count(matrix), sizeof(float));
    ZD_SCOPED(codes_whole_fini)
    struct codes_whole whole = {
            *matrix, zd_array(quant_code_bytes(matrix, count), 1),
            zd_array(quant_scale_bytes(matrix), 1)};
    ZD_TRY(codes_make(&maker, 0, count, copy_codes, &whole, scales));
    ZD_TRY(codes_finish(&maker, scales, whole.scales));
    *out = ZD_TAKE(whole);
    return ZD_OK;
}

void codes_whole_fini(struct codes_whole *whole)
{
    free(whole->codes);
    free(whole->scales);
    *whole = (struct codes_whole){0};
}
