/* codes.h - the quantized values of a base's weights, part by part: as a file
 * stores them, or quantized here (kernels/quant).
 *
 * A part may begin and end anywhere. Whole blocks, rows or bands of tiles are
 * quantized, so a part is extended to those that its ends cut:
 *
 *   | band | band | band | ..      the codes of a range, and the scales of
 *       |-- range --|              what begins in it
 *
 * Values are those that `source` reads, not rounded. GPT-2's weights are (in,
 * out); their transpose is quantized. With tensor parallelism all of this is of
 * whole tensors, of which a slice has some (cut.h). */
#pragma once

#include "model/weights.h"

/* A weight (param_is_quantized), and how the whole of it is quantized. */
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

/* Codes of elements [begin, end) of the weight, piece by piece in order:
 * write(ctx, first element, count, codes). begin and end at whole bytes, or
 * the weight's end. Sets scales[i] (quant_scale_count of them; NULL: none) of
 * every block, row or tile that begins in the range; leaves the others alone.
 * Of a weight that is stored quantized it sets none. By all threads of the
 * caller. */
typedef enum zd_status codes_write_fn(
        void *ctx, size_t begin, size_t count, const uint8_t *codes);
enum zd_status codes_make(
        const struct codes_maker *maker, size_t begin, size_t end,
        codes_write_fn *write, void *ctx, float *scales);

/* What decodes the weight (quant_scale_bytes), of the scales of all. */
enum zd_status codes_finish(
        const struct codes_maker *maker, const float *scales, void *out);

/* The geometry of a weight that is quantized here. nested: absmax of 4-bit
 * blocks are quantized to 8 bits. */
struct quant_matrix codes_matrix(
        const struct param *param, enum quant_format format, bool nested);

/* A whole weight, quantized as `matrix` says, or as it is stored. */
struct codes_whole {
    struct quant_matrix matrix;
    uint8_t *codes; /* owned */
    void *scales;   /* as dequantize.h has them; owned */
};
enum zd_status codes_make_whole(
        const struct weight_source *source, const struct param_table *table,
        int id, const struct quant_matrix *matrix, struct codes_whole *out);
void codes_whole_fini(struct codes_whole *whole);
