/* fuzz.h - random numbers for programs that mutate inputs. */
#pragma once

#include <stdint.h>

/* The same numbers follow the same seed. */
static inline uint64_t fuzz_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 24;
}
