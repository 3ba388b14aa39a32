#include "model/quantized/base_digest.h"

#include "base/file/hash.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "base/progress.h"
#include "model/quantized/codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUES = 256,    /* that have one digest */
    PIECE = 1 << 16, /* that a thread reads at a time */
    LIMIT = 1 << 20, /* that are in memory */
};

uint64_t base_digest_values(
        const char *name, size_t first, const float *values, size_t count)
{
    uint64_t seed = rng_stream(name), sum = 0;
    for (size_t i = 0; i < count; i += VALUES) {
        size_t n = count - i < VALUES ? count - i : VALUES;
        sum += hash_64(values + i, n * sizeof *values, seed ^ (first + i));
    }
    return sum;
}

/* --- bytes ---------------------------------------------------------------- */

struct base_digest base_digest_codes(const char *name, size_t at)
{
    return (struct base_digest){.seed = rng_stream(name), .at = at};
}

struct base_digest base_digest_scales(const char *name, size_t at)
{
    return (struct base_digest){.seed = ~rng_stream(name), .at = at};
}

static void end_piece(struct base_digest *d)
{
    size_t used = d->at % BASE_DIGEST_BYTES;
    size_t whole = used ? used : BASE_DIGEST_BYTES;
    d->sum += hash_64(d->piece, whole, d->seed ^ (d->at - whole));
}

void base_digest_add(struct base_digest *d, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    while (bytes) {
        size_t used = d->at % BASE_DIGEST_BYTES;
        size_t room = BASE_DIGEST_BYTES - used;
        size_t n = bytes < room ? bytes : room;
        memcpy(d->piece + used, from, n);
        d->at += n;
        from += n;
        bytes -= n;
        if (d->at % BASE_DIGEST_BYTES == 0)
            end_piece(d);
    }
}

uint64_t base_digest_end(struct base_digest *d)
{
    if (d->at % BASE_DIGEST_BYTES)
        end_piece(d);
    return d->sum;
}

void base_digest_text(uint64_t digest, char out[BASE_DIGEST_TEXT])
{
    snprintf(out, BASE_DIGEST_TEXT, "%016llx", (unsigned long long)digest);
}

/* --- a whole base --------------------------------------------------------- */

struct reading {
    const struct param_table *table;
    const struct weight_source *source;
    struct codes_maker *maker; /* NULL: none is quantized */
    float *values;             /* (LIMIT) */
    uint64_t sum;
};

static enum zd_status read_values(struct reading *r, int id)
{
    const struct param *p = &r->table->params[id];
    for (size_t begin = 0; begin < p->count; begin += LIMIT) {
        size_t left = p->count - begin, count = left < LIMIT ? left : LIMIT;
        uint64_t sum = 0;
        ZD_TRY(weights_read_parallel(r->source, id, begin, count, r->values));
#pragma omp parallel for reduction(+ : sum)
        for (size_t at = 0; at < count; at += PIECE)
            sum += base_digest_values(
                    p->name, begin + at, r->values + at,
                    count - at < PIECE ? count - at : PIECE);
        r->sum += sum;
        progress_completed();
    }
    return ZD_OK;
}

struct packed {
    struct base_digest digest;
    const struct param_table *table;
    int id;
};

static enum zd_status add_packed(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    struct packed *p = ctx;
    (void)begin;
    base_digest_add(
            &p->digest, codes,
            quant_code_bytes(&p->table->codes[p->id], count));
    return ZD_OK;
}

static enum zd_status read_codes(struct reading *r, int id)
{
    const char *name = r->table->params[id].name;
    size_t decoding = quant_scale_bytes(&r->table->codes[id]);
    float *scales = zd_array(
            quant_scale_count(param_whole_codes(r->table, id)), sizeof *scales);
    char *bytes = zd_array(decoding, 1);
    struct packed codes = {base_digest_codes(name, 0), r->table, id};
    struct base_digest digest = base_digest_scales(name, 0);
    enum zd_status status = codes_make(
            r->maker, id, 0, r->table->params[id].count, add_packed, &codes,
            scales);
    if (status == ZD_OK)
        status = codes_finish(r->maker, id, scales, bytes);
    if (status == ZD_OK) {
        base_digest_add(&digest, bytes, decoding);
        r->sum += base_digest_end(&codes.digest) + base_digest_end(&digest);
    }
    free(scales);
    free(bytes);
    progress_completed();
    return status;
}

enum zd_status base_digest_read(
        const struct param_table *table, const struct weight_source *source,
        uint64_t *digest_out)
{
    struct reading r = {
            .table = table,
            .source = source,
            .maker = table->codes ? codes_maker_create(table, source) : NULL,
            .values = zd_array(LIMIT, sizeof *r.values)};
    enum zd_status status = ZD_OK;
    for (int id = 0; id < table->count && status == ZD_OK; id++) {
        if (table->params[id].trainable)
            continue;
        status = param_is_quantized(table, id) ? read_codes(&r, id)
                                               : read_values(&r, id);
    }
    codes_maker_destroy(r.maker);
    free(r.values);
    *digest_out = r.sum;
    return status;
}
