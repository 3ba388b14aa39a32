/* plan_case.h - plans of the fake model: what a test asks for, and what it
 * counts in the answer. */
#pragma once

#include "fake.h"

/* The model, of the test's own process: made in `shape` by plan_setup. */
extern struct fake fake;
extern struct fake_shape shape;

void plan_setup(void);
void plan_teardown(void);

/* Training of the model in bf16; nothing is offloaded. */
struct zero_request request(int stage, int world, int accumulation);
/* So many of its ranks hold the same shard. */
void replicate(struct zero_request *r, int replicas);
/* The plan, which must come about; it lives until the next one. */
const struct zero_plan *build(const struct zero_request *r);
/* What all groups of it send in a step. */
struct comm_counters sent(const struct zero_plan *plan);

/* Padded elements: all trainable, and all. */
size_t trainable(const struct zero_plan *plan);
size_t all(const struct zero_plan *plan);
/* What a rank sends when `count` elements are gathered or scattered. */
uint64_t share(size_t count, int world, size_t bytes);
const struct arena_plan *spans_of(const struct zero_plan *plan);
/* Of the span of this name; 0: there is none. */
size_t bytes_of(const struct zero_plan *plan, const char *name);
