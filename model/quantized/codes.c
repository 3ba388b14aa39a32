#include "model/quantized/codes.h"

#include "base/must.h"
#include "base/number/sizes.h"
#include "base/progress.h"
#include "model/quantized/quantized.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 14, /* elements that a thread reads and encodes at a time */
    LIMIT = 1 << 20, /* .. that are made at a time, where bands are short */
    TRANSPOSED_ROWS = 64, /* of a transpose */
};

struct codes_maker {
    const struct param_table *table;
    const struct weight_source *source;
    float *values;  /* of a band */
    uint8_t *codes; /* likewise */
    float *scales;  /* likewise */
};

/* What is made at a time: whole rows, but for 4 bits stored as they are. */
struct band {
    struct codes_maker *maker;
    const struct quant_matrix *m;
    int id;
    size_t begin, count; /* elements */
    size_t first_scale;
};

/* Elements that are made together at least, and from a multiple of them. */
static size_t grain_of(const struct codes_maker *maker, int id)
{
    const struct quant_matrix *m = param_whole_codes(maker->table, id);
    size_t columns = (size_t)m->columns;
    if (m->format == QUANT_FP8)
        return QUANT_TILE * columns;
    if (maker->table->params[id].conv1d)
        return TRANSPOSED_ROWS * columns;
    return quant_is_4bit(m) ? m->block : columns;
}

/* .. and at most. */
static size_t band_most(const struct codes_maker *maker, int id)
{
    size_t grain = grain_of(maker, id);
    return grain < LIMIT ? LIMIT / grain * grain : grain;
}

struct codes_maker *codes_maker_create(
        const struct param_table *table, const struct weight_source *source)
{
    struct codes_maker *maker = zd_array(1, sizeof *maker);
    size_t most = 0, most_scales = 0;
    *maker = (struct codes_maker){.table = table, .source = source};
    for (int id = 0; id < table->count; id++) {
        if (!param_is_quantized(table, id))
            continue;
        size_t count = band_most(maker, id);
        most = size_max(most, count);
        most_scales = size_max(
                most_scales,
                quant_scale_of(param_whole_codes(table, id), count - 1) + 1);
    }
    maker->values = zd_array(most, sizeof *maker->values);
    maker->codes = zd_array(most, 1);
    maker->scales = zd_array(most_scales, sizeof *maker->scales);
    return maker;
}

void codes_maker_destroy(struct codes_maker *maker)
{
    if (!maker)
        return;
    free(maker->values);
    free(maker->codes);
    free(maker->scales);
    free(maker);
}

static const struct quantized *stored_of(
        const struct codes_maker *maker, int id)
{
    const struct weight_source *source = maker->source;
    return source->stored ? source->stored(source->ctx, id) : NULL;
}

bool codes_are_stored(const struct codes_maker *maker, int id)
{
    return stored_of(maker, id) != NULL;
}

/* --- values --------------------------------------------------------------- */

/* Column `column` of a transpose: a run of a row of the file. */
static enum zd_status read_column(const struct band *band, size_t column)
{
    enum { RUN = 1024 };
    float run[RUN];
    const struct weight_source *source = band->maker->source;
    size_t columns = (size_t)band->m->columns, rows = band->count / columns;
    size_t first = column * (size_t)band->m->rows + band->begin / columns;
    for (size_t r = 0; r < rows; r += RUN) {
        size_t count = rows - r < RUN ? rows - r : RUN;
        ZD_TRY(source->read(source->ctx, band->id, first + r, count, run));
        for (size_t i = 0; i < count; i++)
            band->maker->values[(r + i) * columns + column] = run[i];
    }
    return ZD_OK;
}

static enum zd_status read_values(const struct band *band)
{
    const struct codes_maker *maker = band->maker;
    size_t columns = (size_t)band->m->columns;
    int failed = 0;
    if (!maker->table->params[band->id].conv1d)
        return weights_read_parallel(
                maker->source, band->id, band->begin, band->count,
                maker->values);
#pragma omp parallel for schedule(dynamic) reduction(+ : failed)
    for (size_t column = 0; column < columns; column++)
        failed += read_column(band, column) != ZD_OK;
    /* an error's record is its thread's: once more, for this one's */
    for (size_t column = 0; failed && column < columns; column++)
        ZD_TRY(read_column(band, column));
    return ZD_OK;
}

/* --- codes ---------------------------------------------------------------- */

static void encode_blocks(const struct band *band)
{
    const struct quant_matrix *m = band->m;
#pragma omp parallel for schedule(dynamic)
    for (size_t at = 0; at < band->count; at += PIECE) {
        size_t left = band->count - at;
        quant_encode4(
                band->maker->codes + at / 2,
                band->maker->scales + at / m->block, band->maker->values + at,
                m->format, left < PIECE ? left : PIECE, m->block);
    }
}

static void encode_rows(const struct band *band)
{
    size_t columns = (size_t)band->m->columns;
#pragma omp parallel for schedule(dynamic)
    for (size_t at = 0; at < band->count; at += columns)
        band->maker->scales[at / columns] = quant_encode8(
                (int8_t *)band->maker->codes + at, band->maker->values + at,
                columns);
}

static void encode_tiles(const struct band *band)
{
    const struct quant_matrix *m = band->m;
    size_t columns = (size_t)m->columns, rows = band->count / columns;
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (size_t r = 0; r < rows; r += QUANT_TILE)
        for (size_t c = 0; c < columns; c += QUANT_TILE) {
            size_t at = r * columns + c;
            size_t scale = quant_scale_of(m, band->begin + at);
            band->maker->scales[scale - band->first_scale] = quant_encode_tile(
                    band->maker->codes + at, band->maker->values + at,
                    size_min(rows - r, QUANT_TILE),
                    size_min(columns - c, QUANT_TILE), columns);
        }
}

static enum zd_status make_band(const struct band *band)
{
    const struct quantized *stored = stored_of(band->maker, band->id);
    if (stored)
        return quantized_read_codes(
                stored, band->begin, band->count, band->maker->codes);
    ZD_TRY(read_values(band));
    if (quant_is_4bit(band->m))
        encode_blocks(band);
    else if (band->m->format == QUANT_INT8)
        encode_rows(band);
    else
        encode_tiles(band);
    return ZD_OK;
}

/* Those of what begins in the range. */
static void keep_scales(
        const struct band *band, size_t begin, size_t end, float *scales)
{
    size_t last = quant_scale_of(band->m, band->begin + band->count - 1);
    for (size_t i = band->first_scale; i <= last; i++) {
        size_t first = quant_scale_first(band->m, i);
        if (first >= begin && first < end)
            scales[i] = band->maker->scales[i - band->first_scale];
    }
}

enum zd_status codes_make(
        struct codes_maker *maker, int id, size_t begin, size_t end,
        codes_write_fn *write, void *ctx, float *scales)
{
    const struct quant_matrix *m = param_whole_codes(maker->table, id);
    size_t total = quant_matrix_count(m), most = band_most(maker, id);
    size_t grain = grain_of(maker, id);
    bool keeps = scales && !stored_of(maker, id);
    for (size_t at = begin; at < end;) {
        size_t first = at / grain * grain;
        size_t wanted = quant_parts(end - first, grain) * grain;
        size_t left = total - first;
        size_t made = size_min(wanted, size_min(most, left));
        struct band band = {maker, m,    id,
                            first, made, quant_scale_of(m, first)};
        size_t last = band.begin + band.count, to = end < last ? end : last;
        ZD_TRY(make_band(&band));
        progress_completed(); /* also where weights are made, not read */
        ZD_TRY(
                write(ctx, at, to - at,
                      maker->codes + quant_code_bytes(m, at - band.begin)));
        if (keeps)
            keep_scales(&band, begin, end, scales);
        at = to;
    }
    return ZD_OK;
}

enum zd_status codes_finish(
        const struct codes_maker *maker, int id, const float *scales, void *out)
{
    const struct quantized *stored = stored_of(maker, id);
    if (stored)
        return quantized_read_scales(stored, out);
    quant_store_scales(out, scales, param_whole_codes(maker->table, id));
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
    struct param_table one =
            *table; /* in which this weight alone is quantized */
    size_t count = quant_matrix_count(matrix);
    float *scales = zd_array(quant_scale_count(matrix), sizeof *scales);
    one.codes = zd_array((size_t)table->count, sizeof *one.codes);
    one.codes[id] = *matrix;
    one.whole_codes = NULL;
    *out = (struct codes_whole){
            *matrix, zd_array(quant_code_bytes(matrix, count), 1),
            zd_array(quant_scale_bytes(matrix), 1)};
    struct codes_maker *maker = codes_maker_create(&one, source);
    enum zd_status status =
            codes_make(maker, id, 0, count, copy_codes, out, scales);
    if (status == ZD_OK)
        status = codes_finish(maker, id, scales, out->scales);
    codes_maker_destroy(maker);
    free(scales);
    free(one.codes);
    if (status != ZD_OK)
        codes_whole_fini(out);
    return status;
}

void codes_whole_fini(struct codes_whole *whole)
{
    free(whole->codes);
    free(whole->scales);
    *whole = (struct codes_whole){0};
}
