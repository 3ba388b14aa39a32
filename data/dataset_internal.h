/* dataset_internal.h - what dataset.h hides, for dataset.c and inspect.c. */
#ifndef ZD_DATA_DATASET_INTERNAL_H
#define ZD_DATA_DATASET_INTERNAL_H

#include "data/pack.h"

#include <pthread.h>

/* One entry: of its `all` samples, [first, first + count) take part, of which
 * an epoch takes `taken`, at places [base, base + taken) of the epoch. */
struct dataset_part {
    struct corpus corpus;
    struct pack pack;
    struct token_cache index; /* of samples, with part_has_index */
    int64_t all, first, count, taken, base;
};

struct dataset {
    int T;
    bool shuffle;
    uint64_t seed;
    struct dataset_part *parts;
    int part_count;
    int64_t samples; /* of an epoch */
    char digest[HASH_HEX];
    atomic_bool interrupted; /* by loader_destroy: no one waits for text */
    /* of the sample that was read last, each (T + 1): */
    uint32_t *words;
    bool *starts; /* attention begins anew */

    /* of the thread that reads the cache whole */
    pthread_t checker;
    bool has_checker;
    atomic_bool stop;
    _Atomic(const char *) damaged; /* path of a file that is; NULL: none yet */
};

/* Do its samples have an index? Else they follow from their number. */
bool part_has_index(const struct dataset_part *part);
/* Sample number `sample` of a part into dataset->words; how many words it has,
 * at most T + 1. */
enum zd_status dataset_read(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        int *count_out);

/* --- facts.c --- */

/* Of the rows of all parts. */
struct row_notes dataset_notes(const struct dataset *dataset);

/* Without a target a run would train nothing and end with 0. */
enum zd_status facts_check_trained(
        struct dataset *dataset, struct dataset_part *part,
        const struct data_entry *entry);
/* What becomes of documents that no sample holds whole. */
enum zd_status facts_tell(
        struct dataset *dataset, struct dataset_part *part,
        const struct data_entry *entry);

#endif
