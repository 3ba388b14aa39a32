/* pair.h - the same array for each of two runners of an operation, in the
 * memory of each: the host's or a GPU's.
 *
 * Operations use of[0] and of[1]. Pairs are valid until the thread's next
 * pairs_begin. */
#pragma once

#include "kernels/kernels.h"

/* The table that runs the operations, and its environment. */
struct runner {
    const struct kernels *ops;
    int threads;           /* 0: unchanged */
    struct device *device; /* NULL: the CPU */
    int shift;             /* offset of arrays from an aligned address, in
                              elements */
    /* For a table that kernels_backend does not have; else NULL. */
    size_t (*attention_floats)(const struct attention_shape *shape);
};

/* Sets the calling thread's environment to the runner's. */
void runner_enter(struct runner runner);

struct pair {
    void *of[2];
    struct runner runner[2];
    enum dtype dtype[2];
    size_t count;
};

/* Sets the calling thread's runners for new pairs, and resets the noted
 * difference. */
void pair_runners(struct runner a, struct runner b);
/* Frees the pairs made so far. */
void pairs_begin(void);
const struct runner *pair_runner(int which);
enum dtype pair_type(void); /* the first runner's */
/* Sets the thread's environment to this runner's; returns its operations. */
const struct kernels *pair_enter(int which);

/* The same values in both. */
struct pair pair_of_values(enum dtype dtype, size_t count, const void *values);
/* Random in [-scale, scale). */
struct pair pair_of(enum dtype dtype, size_t count, float scale, uint64_t seed);
/* These floats as logits of either table, with the values of the narrower type
 * in both. */
struct pair pair_of_logits(const float *floats, size_t count);
struct pair pair_of_ints(const int32_t *ints, size_t count);
struct pair pair_of_zeros(size_t bytes); /* as floats */
/* Both get the first runner's current values. */
struct pair pair_of_first(const struct pair *pair);

/* The values in the host's memory, to be freed. */
void *pair_fetch(const struct pair *pair, int which);

/* Notes the largest |a - b| / (1 + |b|). */
void pair_compare(struct pair pair);
#define PAIRS_COMPARE(...)                                                     \
    for (struct pair all_[] = {__VA_ARGS__}, *p_ = all_;                       \
         p_ < all_ + sizeof all_ / sizeof *all_; p_++)                         \
    pair_compare(*p_)
void pair_differs(double difference); /* NaN counts as infinite */
double pair_difference(void);         /* the largest noted */

/* A digest of the first runner's results compared since the last call in this
 * thread, to compare the bits of two runs. */
uint64_t pair_digest(void);
