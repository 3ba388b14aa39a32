/* base_digest.h - digests that identify the tensors of a base: a checkpoint
 * stores the sum for the tensors that it does not hold.
 *
 * A tensor's digest is the sum of digests of each 256 values, or bytes of codes
 * and scales, with their position, so it does not depend on cuts or order. */
#pragma once

#include "model/weights.h"

/* The digest of values of tensor `name` from element `first` on; both ends are
 * multiples of 256 or the tensor's end. */
uint64_t base_digest_values(
        const char *name, size_t first, const float *values, size_t count);

/* The digest of bytes of an array that arrive in order, from byte `at` on, a
 * multiple of 256. */
enum { BASE_DIGEST_BYTES = 256 };
struct base_digest {
    uint64_t seed, sum;
    size_t at; /* bytes so far in the array */
    unsigned char piece[BASE_DIGEST_BYTES];
};
struct base_digest base_digest_codes(const char *name, size_t at);
struct base_digest base_digest_scales(const char *name, size_t at);
void base_digest_add(
        struct base_digest *digest, const void *data, size_t bytes);
/* Ends the digest and returns it. */
uint64_t base_digest_end(struct base_digest *digest);

/* The sum as text, for files and messages. */
enum { BASE_DIGEST_TEXT = 20 };
void base_digest_text(uint64_t digest, char out[BASE_DIGEST_TEXT]);

/* The digest of all frozen tensors of `table`; reads them whole, on all
 * threads. Ids of `source` and `table` agree. */
enum zd_status base_digest_read(
        const struct param_table *table, const struct weight_source *source,
        uint64_t *digest_out);
