/* base_digest.h - digests by which the tensors of a base are recognized: a
 * checkpoint has the sum for those that it does not hold.
 *
 * A tensor's digest is the sum of digests of 256 of its values, or bytes of its
 * codes and scales, each with its position: the same for every cut, in any
 * order. */
#pragma once

#include "model/weights.h"

/* Of a run of values of tensor `name` from its element `first` on, a multiple
 * of 256, to another one or the tensor's end. */
uint64_t base_digest_values(
        const char *name, size_t first, const float *values, size_t count);

/* Of an array of bytes from byte `at` of it on, a multiple of 256, as they
 * come. */
enum { BASE_DIGEST_BYTES = 256 };
struct base_digest {
    uint64_t seed, sum;
    size_t at; /* bytes so far of the array */
    unsigned char piece[BASE_DIGEST_BYTES];
};
struct base_digest base_digest_codes(const char *name, size_t at);
struct base_digest base_digest_scales(const char *name, size_t at);
void base_digest_add(
        struct base_digest *digest, const void *data, size_t bytes);
/* Nothing more comes. */
uint64_t base_digest_end(struct base_digest *digest);

/* As files and people have the sum. */
enum { BASE_DIGEST_TEXT = 20 };
void base_digest_text(uint64_t digest, char out[BASE_DIGEST_TEXT]);

/* Of all that does not train in `table`, whose ids are the source's, read
 * whole, by all threads. */
enum zd_status base_digest_read(
        const struct param_table *table, const struct weight_source *source,
        uint64_t *digest_out);
