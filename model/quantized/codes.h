/* codes.h - the codes of a base's weights in parts: as stored in a file, or
 * quantized here (kernels/quant).
 *
 * A part may begin and end anywhere. Only whole blocks, rows or bands of tiles
 * can be quantized, so a part is extended to whole ones:
 *
 *   | band | band | band | ..      the codes of a range, and the scales of
 *       |-- range --|              what begins in it
 *
 * Values come from `source`, not rounded. GPT-2's weights are (in, out); their
 * transpose is quantized. With tensor parallelism this file works on whole
 * tensors; cut.h gives the slices. */
#pragma once

#include "model/weights.h"

/* A weight (param_is_quantized) and the quantization of the whole tensor. */
struct codes_maker {
    const struct weight_source *source;
    const struct param *param;
    int id;
    const struct quant_matrix *whole;
};
static inline struct codes_maker codes_maker_of(
        const struct param_table *table, const struct weight_source *source,
        int id)
{
    return (struct codes_maker){
            source, &table->params[id], id, param_whole_codes(table, id)};
}

/* Is it stored quantized? Then its scales are complete on every rank. */
bool codes_are_stored(const struct codes_maker *maker);

/* Passes the codes of elements [begin, end) of the weight to `write` in order:
 * (ctx, first element, count, codes). begin and end are at whole bytes or the
 * weight's end. Sets scales[i] (quant_scale_count of them; NULL: none) of every
 * block, row or tile that begins in the range, except for weights that are
 * stored quantized. Uses all threads. */
typedef enum zd_status codes_write_fn(
        void *ctx, size_t begin, size_t count, const uint8_t *codes);
enum zd_status codes_make(
        const struct codes_maker *maker, size_t begin, size_t end,
        codes_write_fn *write, void *ctx, float *scales);

/* Packs the weight's scales (quant_scale_bytes) from those of all parts. */
enum zd_status codes_finish(
        const struct codes_maker *maker, const float *scales, void *out);

/* The geometry of a weight that is quantized here. nested: absmax of 4-bit
 * blocks are quantized to 8 bits. */
struct quant_matrix codes_matrix(
        const struct param *param, enum quant_format format, bool nested);

/* A whole weight, quantized as in `matrix`, or as stored. */
struct codes_whole {
    struct quant_matrix matrix;
    uint8_t *codes; /* owned */
    void *scales;   /* packed as in dequantize.h; owned */
};
enum zd_status codes_make_whole(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, struct codes_whole *out);
void codes_whole_fini(struct codes_whole *whole);
