/* rng.h - counter-based random numbers: a value is a function of where it is
 * used (seed, stream, element), never of how many were drawn before it, so it
 * does not depend on world size, thread count or order.
 *
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3",
 * Philox 4x32-10. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A stream number for a name (FNV-1a 64), e.g. a tensor's. */
uint64_t rng_stream(const char *name);

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal deviates for elements begin..begin+count-1 of a stream
 * (Box-Muller; element e uses half e%2 of counter e/2). The same bits on every
 * machine. */
void rng_normal(
        uint64_t seed, uint64_t stream, uint64_t begin, size_t count,
        float *out);

/* Position `index` of a pseudo-random permutation of 0..count-1 chosen by
 * (seed, stream); O(1) time and memory (a Feistel network with cycle walking,
 * Black and Rogaway 2002). */
uint64_t rng_permute(
        uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);
