#include "pair.h"

#include "arrays.h"
#include "base/device/device_memory.h"
#include "base/file/hash.h"
#include "base/must.h"
#include "tests/support/require.h"

#include <assert.h>
#include <stdio.h>

static _Thread_local struct runner runners[2];
static _Thread_local uint64_t digest;
static _Thread_local double most;

/* The pairs of the thread, to be freed. */
enum { MOST_PAIRS = 64 };
static _Thread_local struct pair made[MOST_PAIRS];
static _Thread_local int made_count;

/* 0: leave the number as it is, which threads may not change at once. */
void runner_enter(struct runner runner)
{
    device_use(runner.device);
    if (runner.threads > 0)
        kernels_set_threads(runner.threads);
}

void pair_runners(struct runner a, struct runner b)
{
    pairs_begin();
    runners[0] = a;
    runners[1] = b;
    most = 0.0;
}

const struct runner *pair_runner(int which)
{
    return &runners[which];
}

enum dtype pair_type(void)
{
    return runners[0].ops->dtype;
}

const struct kernels *pair_enter(int which)
{
    runner_enter(runners[which]);
    return runners[which].ops;
}

/* Bytes of the block that an array lies in: one too many, and never none. */
static size_t block_bytes(const struct pair *p, int i)
{
    size_t elements = p->count + (size_t)p->runner[i].shift + 1;
    return elements * dtype_bytes(p->dtype[i]);
}

static size_t shift_bytes(const struct pair *p, int i)
{
    return (size_t)p->runner[i].shift * dtype_bytes(p->dtype[i]);
}

/* Puts the array where its runner wants it. */
static void place(struct pair *p, int i, const void *values)
{
    size_t bytes = p->count * dtype_bytes(p->dtype[i]);
    void *block;
    device_use(p->runner[i].device);
    if (p->runner[i].device) {
        require(device_take(block_bytes(p, i), &block));
        p->of[i] = (char *)block + shift_bytes(p, i);
        if (bytes)
            require(device_write(p->of[i], values, bytes));
        return;
    }
    block = malloc(block_bytes(p, i));
    p->of[i] = (char *)block + shift_bytes(p, i);
    memcpy(p->of[i], values, bytes);
}

static void release(struct pair *p, int i)
{
    char *block = (char *)p->of[i] - shift_bytes(p, i);
    device_use(p->runner[i].device);
    if (p->runner[i].device)
        device_give(block, block_bytes(p, i));
    else
        free(block);
}

void pairs_begin(void)
{
    while (made_count > 0) {
        struct pair *p = &made[--made_count];
        release(p, 0);
        release(p, 1);
    }
}

static struct pair keep(struct pair p)
{
    assert(made_count < MOST_PAIRS);
    return made[made_count++] = p;
}

static struct pair begin(enum dtype dtype, size_t count)
{
    return (struct pair){
            .runner = {runners[0], runners[1]},
            .dtype = {dtype, dtype},
            .count = count};
}

struct pair pair_of_values(enum dtype dtype, size_t count, const void *values)
{
    struct pair p = begin(dtype, count);
    for (int i = 0; i < 2; i++)
        place(&p, i, values);
    return keep(p);
}

struct pair pair_of(enum dtype dtype, size_t count, float scale, uint64_t seed)
{
    ZD_FREED void *values = random_array(dtype, count, scale, seed);
    struct pair p = pair_of_values(dtype, count, values);
    return p;
}

struct pair pair_of_ints(const int32_t *ints, size_t count)
{
    return pair_of_values(DTYPE_FP32, count, ints);
}

struct pair pair_of_zeros(size_t bytes)
{
    size_t count = (bytes + sizeof(float) - 1) / sizeof(float);
    ZD_FREED void *zeros = calloc(count + 1, sizeof(float));
    struct pair p = pair_of_values(DTYPE_FP32, count, zeros);
    return p;
}

struct pair pair_of_logits(const float *floats, size_t count)
{
    struct pair p = begin(DTYPE_FP32, count);
    ZD_FREED float *values = copy_of(floats, count * sizeof *values);
    ZD_FREED void *narrow = malloc(count * sizeof *values + 1);
    for (int i = 0; i < 2; i++) {
        p.dtype[i] = p.runner[i].ops->logits_dtype;
        dtype_round(values, p.dtype[i], count);
    }
    for (int i = 0; i < 2; i++) {
        dtype_convert(narrow, p.dtype[i], values, DTYPE_FP32, count);
        place(&p, i, narrow);
    }
    return keep(p);
}

void *pair_fetch(const struct pair *p, int i)
{
    size_t bytes = p->count * dtype_bytes(p->dtype[i]);
    void *values = malloc(bytes + 1);
    device_use(p->runner[i].device);
    if (bytes && p->runner[i].device)
        require(device_read(values, p->of[i], bytes));
    else
        memcpy(values, p->of[i], bytes);
    return values;
}

struct pair pair_of_first(const struct pair *p)
{
    ZD_FREED void *values = pair_fetch(p, 0);
    struct pair same = pair_of_values(p->dtype[0], p->count, values);
    return same;
}

uint64_t pair_digest(void)
{
    uint64_t was = digest;
    digest = 0;
    return was;
}

void pair_differs(double difference)
{
    if (!(difference <= most))
        most = isnan(difference) ? INFINITY : difference;
}

double pair_difference(void)
{
    return most;
}

void pair_compare(struct pair p)
{
    void *values[2];
    for (int i = 0; i < 2; i++)
        values[i] = pair_fetch(&p, i);
    pair_differs(worst(values[0], values[1], p.dtype[0], p.count));
    digest = hash_64(values[0], p.count * dtype_bytes(p.dtype[0]), digest);
    free(values[0]);
    free(values[1]);
}
