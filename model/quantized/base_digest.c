#include "model/quantized/base_digest.h"

#include "base/file/hash.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "base/number/sizes.h"
#include "base/progress.h"
#include "model/quantized/codes.h"

#include <stdio.h>
#include <string.h>

enum {
    VALUES = 256,    /* values per digest */
    PIECE = 1 << 16, /* values that a thread reads at a time */
    LIMIT = 1 << 20, /* values in memory */
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

static enum zd_status add_values(
        const struct weight_source *source, const struct param *p, int id,
        uint64_t *total)
{
    ZD_FREED float *values = zd_array(size_min(p->count, LIMIT), sizeof(float));
    for (size_t begin = 0; begin < p->count; begin += LIMIT) {
        size_t count = size_min(p->count - begin, LIMIT);
        uint64_t sum = 0;
        ZD_TRY(weights_read_parallel(source, id, begin, count, values));
#pragma omp parallel for reduction(+ : sum)
        for (size_t at = 0; at < count; at += PIECE)
            sum += base_digest_values(
                    p->name, begin + at, values + at,
                    size_min(count - at, PIECE));
        *total += sum;
        progress_completed();
    }
    return ZD_OK;
}

struct packed {
    struct base_digest digest;
    const struct quant_matrix *matrix;
};

static enum zd_status add_packed(
        void *ctx, size_t begin, size_t count, const uint8_t *codes)
{
    struct packed *p = ctx;
    (void)begin;
    base_digest_add(&p->digest, codes, quant_code_bytes(p->matrix, count));
    return ZD_OK;
}

static enum zd_status add_codes(struct codes_maker m, uint64_t *total)
{
    const char *name = m.param->name;
    size_t decoding = quant_scale_bytes(m.whole);
    ZD_FREED float *scales =
            zd_array(quant_scale_count(m.whole), sizeof(float));
    ZD_FREED char *bytes = zd_array(decoding, 1);
    struct packed codes = {base_digest_codes(name, 0), m.whole};
    struct base_digest digest = base_digest_scales(name, 0);
    ZD_TRY(codes_make(&m, 0, m.param->count, add_packed, &codes, scales));
    ZD_TRY(codes_finish(&m, scales, bytes));
    base_digest_add(&digest, bytes, decoding);
    *total += base_digest_end(&codes.digest) + base_digest_end(&digest);
    progress_completed();
    return ZD_OK;
}

enum zd_status base_digest_read(
        const struct param_table *table, const struct weight_source *source,
        uint64_t *digest_out)
{
    uint64_t sum = 0;
    for (int id = 0; id < table->count; id++) {
        const struct param *param = &table->params[id];
        if (param->trainable)
            continue;
        if (param_is_quantized(table, id))
            ZD_TRY(add_codes(codes_maker_of(table, source, id), &sum));
        else
            ZD_TRY(add_values(source, param, id, &sum));
    }
    *digest_out = sum;
    return ZD_OK;
}
