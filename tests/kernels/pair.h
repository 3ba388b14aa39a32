/* pair.h - the same array twice, once for each of two runners of an operation,
 * where each of them wants it: in memory of the host or of a GPU.
 *
 * Operations are given of[0] and of[1]. Pairs live until the next pairs_begin
 * of the thread. */
#pragma once

#include "kernels/kernels.h"

/* What runs the operations, and what sets the scene for it. */
struct runner {
    const struct kernels *ops;
    int threads;           /* 0: as they are */
    struct device *device; /* NULL: the CPU */
    int shift;             /* elements from an aligned place to an array */
    /* Of a table that kernels_backend does not have, else NULL. */
    size_t (*attention_floats)(const struct attention_shape *shape);
};

/* Makes the calling thread run as the runner does. */
void runner_enter(struct runner runner);

struct pair {
    void *of[2];
    struct runner runner[2];
    enum dtype dtype[2];
    size_t count;
};

/* The runners of the pairs made from now on, in the calling thread; no
 * difference has been seen. */
void pair_runners(struct runner a, struct runner b);
/* Frees the pairs made so far. */
void pairs_begin(void);
const struct runner *pair_runner(int which);
enum dtype pair_type(void); /* the first runner's */
/* The thread runs as this runner does; returns its operations. */
const struct kernels *pair_enter(int which);

/* The same values in both. */
struct pair pair_of_values(enum dtype dtype, size_t count, const void *values);
/* Random in [-scale, scale). */
struct pair pair_of(enum dtype dtype, size_t count, float scale, uint64_t seed);
/* These floats as logits of either table: both have the values of the narrower
 * one. */
struct pair pair_of_logits(const float *floats, size_t count);
struct pair pair_of_ints(const int32_t *ints, size_t count);
struct pair pair_of_zeros(size_t bytes); /* as floats */
/* Both have what the first runner has there now. */
struct pair pair_of_first(const struct pair *pair);

/* The values in the host's memory, to be freed. */
void *pair_fetch(const struct pair *pair, int which);

/* Notes the greatest |a - b| / (1 + |b|), and any other difference. */
void pair_compare(struct pair pair);
#define PAIRS_COMPARE(...)                                                     \
    for (struct pair all_[] = {__VA_ARGS__}, *p_ = all_;                       \
         p_ < all_ + sizeof all_ / sizeof *all_; p_++)                         \
    pair_compare(*p_)
void pair_differs(double difference); /* not a number: infinite */
double pair_difference(void);         /* the greatest noted */

/* Of the first runner's results compared since the last call, in this thread:
 * tells whether two runs gave the same bits. */
uint64_t pair_digest(void);
