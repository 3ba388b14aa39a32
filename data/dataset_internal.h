/* dataset_internal.h - what dataset.h hides, for dataset.c and inspect.c. */
#pragma once

#include "data/corpus.h"

#include <pthread.h>

/* One entry: of its `all` samples, [first, first + count) take part, of which
 * an epoch takes `taken`, at places [base, base + taken) of the epoch.
 *
 * In windows it has a share of the samples, goes round its own at its own pace,
 * and begins at `phase` of a sample (find_turn). */
struct dataset_part {
    struct corpus corpus;
    struct token_cache index; /* of samples, unless packed as a stream */
    int64_t all, first, count, taken, base;
    double share, phase;
    int64_t turn; /* in find_turn */
};

struct dataset {
    int T;
    enum long_documents long_documents;
    bool shuffle, in_windows;
    uint64_t seed;
    struct dataset_part *parts;
    int part_count;
    int64_t samples; /* of an epoch; 0: not known yet */
    char digest[HASH_HEX];
    atomic_bool interrupted; /* by loader_destroy: no one waits for text */
    struct progress coming;  /* of text that is waited for */
    /* of the sample that was read last, each (T + 1): */
    uint32_t *words;
    bool *starts; /* attention begins anew */

    pthread_mutex_t long_record; /* of the threads that tokenize */

    /* of the thread that reads the cache whole */
    pthread_t checker;
    bool has_checker;
    atomic_bool stop;
    _Atomic(const char *) damaged; /* path of a file that is; NULL: none yet */
};

/* The n-th sample into dataset->words and starts; how many words it has, at
 * most T + 1. */
enum zd_status dataset_words(
        struct dataset *dataset, int64_t n, int *count_out);

/* --- pack.c --- */

/* Find or make the index of a part's samples. */
enum zd_status pack_obtain(
        struct dataset_part *part, const struct dataset_request *request);
/* Sample number `sample` of a part into dataset->words; how many words it has,
 * at most T + 1. */
enum zd_status dataset_read(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        int *count_out);

/* --- windows.c --- */

/* Find the corpora of all entries, and settle whether samples are taken in
 * windows: of the files and the job alone, since it decides their order.
 * ZD_ERR_CONFIG where a job asks for windows of what has none. Tells the
 * corpora; they are closed whatever happens. */
enum zd_status windows_choose(
        struct dataset *dataset, const struct dataset_request *request);
/* The entries' shares. */
void windows_share(struct dataset *dataset);
/* The n-th sample ever: its entry, and its number there. Waits for its text. */
enum zd_status windows_find(
        struct dataset *dataset, int64_t n, struct dataset_part **part_out,
        int64_t *sample_out);

/* --- dataset.c: what an epoch holds --- */

/* Of the rows of all parts. */
struct row_notes dataset_notes(const struct dataset *dataset);
/* Lines of what becomes of documents that no sample holds whole. */
void facts_write_long(const struct dataset_facts *facts, int T, FILE *out);
