/* decode.h - runs of small integers: levels, indexes of dictionaries, deltas.
 *
 * Source:  parquet-format Encodings.md: RLE/bit-packing hybrid (RLE = 3), delta
 *          (DELTA_BINARY_PACKED = 5).
 * Errors:  false where the bytes end, or say what cannot be. */
#ifndef ZD_DATA_PARQUET_DECODE_H
#define ZD_DATA_PARQUET_DECODE_H

#include "data/parquet/thrift.h"

/* Runs of one value, and groups of 8 packed values of `width` bits. */
struct hybrid {
    const unsigned char *at, *end;
    int width;     /* 0 to 32 */
    uint64_t left; /* of the run */
    bool is_packed;
    unsigned bit; /* of the packed byte at `at` */
    uint32_t value;
};

void hybrid_begin(
        struct hybrid *hybrid, const unsigned char *at,
        const unsigned char *end, int width);
bool hybrid_next(struct hybrid *hybrid, uint32_t *value_out);

/* A first value, then blocks of differences to a least one. */
struct delta {
    const unsigned char *at, *end;
    uint64_t total, left;      /* values; not given yet */
    uint64_t minis, mini_size; /* miniblocks of a block, values of one */
    uint64_t minis_left, mini_left;
    const unsigned char *widths,
            *mini; /* of the next miniblock; the open one */
    unsigned width, bit;
    uint64_t value, least;
    bool has_begun;
};

bool delta_begin(
        struct delta *delta, const unsigned char *at, const unsigned char *end);
bool delta_next(struct delta *delta, int64_t *value_out);
/* Where the encoding ends, once all values were taken. */
const unsigned char *delta_end(const struct delta *delta);

#endif
