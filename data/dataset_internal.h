/* dataset_internal.h - what dataset.h hides, for dataset.c and inspect.c. */
#ifndef ZD_DATA_DATASET_INTERNAL_H
#define ZD_DATA_DATASET_INTERNAL_H

#include "data/corpus.h"

#include <pthread.h>

/* One entry: of its `all` samples, [first, first + count) take part, of which
 * an epoch takes `taken`, at places [base, base + taken) of the epoch. */
struct dataset_part {
    struct corpus corpus;
    int64_t all, first, count, taken, base;
};

struct dataset {
    int T;
    bool packing, shuffle;
    uint64_t seed;
    struct dataset_part *parts;
    int part_count;
    int64_t samples; /* of an epoch */
    char digest[HASH_HEX];
    uint32_t *words; /* (T + 1) */

    /* of the thread that reads the cache whole */
    pthread_t checker;
    bool has_checker;
    atomic_bool stop;
    _Atomic(const char *) damaged; /* path of a file that is; NULL: none yet */
};

#endif
