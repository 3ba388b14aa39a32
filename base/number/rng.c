#include "base/number/rng.h"

#include "base/number/philox.h"

#include <assert.h>

uint64_t rng_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static uint64_t join(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t words[4];
    philox(seed, stream, index, words);
    return join(words[0], words[1]);
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

/* A permutation of 0 .. 2^(2 half) - 1. Eight rounds rather than the four that
 * suffice in theory: small domains mix slowly. */
static uint64_t feistel(
        uint64_t seed, uint64_t stream, uint64_t value, int half)
{
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint64_t mixed = rng_u64(seed, stream, round << 32 | right);
        uint64_t next = left ^ (mixed & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t rng_permute(
        uint64_t seed, uint64_t stream, uint64_t index, uint64_t count)
{
    assert(index < count);
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < count)
        half++;
    /* away from the numbers that rng_u64 gives for the same stream */
    stream = ~stream;
    /* Walk the cycle until it is back inside: a permutation of a set, followed
     * to its next visit of a subset, is a permutation of the subset. The domain
     * is less than four times the subset. */
    do
        index = feistel(seed, stream, index, half);
    while (index >= count);
    return index;
}
