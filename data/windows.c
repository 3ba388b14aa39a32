/* windows.c - samples of text that may not be whole yet, in an order that does
 * not depend on how far it is.
 *
 * Each entry is a stream, cut into windows that are permuted in themselves.
 * Several entries take turns by their shares: sample i of entry k has the time
 *
 *   (i + phase_k) / share_k          phase_k in [0, 1) by (data_seed, k)
 *
 * and samples are taken by their times. So the windows that are needed at first
 * are the first ones of every entry. */
#include "data/dataset_internal.h"

#include "base/must.h"
#include "base/number/rng.h"
#include "data/parquet/parquet.h"
#include "data/stream.h"

#include <math.h>
#include <stdlib.h>

static uint64_t file_bytes(const struct corpus *corpus)
{
    uint64_t bytes = 0;
    ZD_EACH(file, corpus->list.files, corpus->list.count)
        bytes += file->bytes;
    return bytes;
}

/* --- threads and memory --------------------------------------------------- */

enum {
    THREADS_LEAST = 3,
    THREADS_MOST = 16,
    THREAD_BYTES = 8 << 20,
    LONG_BYTES = 7 * GROWTH_RECORD_BYTES /* its JSON, document and words */
};

/* What the readers of all entries take: buffers of stream.c, the text that a
 * unit leaves over, the writer's buffers, a long record's text; and windows or
 * pages. */
static uint64_t reader_bytes(const struct dataset *dataset)
{
    static const uint64_t packed[] = {
            [CONTAINER_GZIP] = 1 << 20,
            [CONTAINER_ZSTD] = ZSTD_WINDOW_MAX + (2 << 20),
            [CONTAINER_PARQUET] = PARQUET_HELD_MAX};
    uint64_t sum = 0;
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        const struct file_list *list = &part->corpus.list;
        uint64_t most = 0;
        ZD_EACH(file, list->files, list->count)
            if (packed[file->container] > most)
                most = packed[file->container];
        sum += most + (2 << 20) + GROWTH_RECORD_BYTES;
    }
    return sum + LONG_BYTES;
}

/* Of all entries together; each has one at least. */
static int thread_count(const struct dataset *dataset, int wanted)
{
    const uint64_t most = 190 << 20;
    uint64_t readers = reader_bytes(dataset);
    uint64_t left = readers < most ? (most - readers) / THREAD_BYTES : 0;
    int threads = left < THREADS_MOST ? (int)left : THREADS_MOST;
    threads = threads > THREADS_LEAST ? threads : THREADS_LEAST;
    threads = wanted > 0 && wanted < threads ? wanted : threads;
    return threads > dataset->part_count ? threads : dataset->part_count;
}

static const char *why_whole(
        const struct dataset *dataset, const struct data_options *options,
        bool counts_samples)
{
    bool is_stream = true;
    uint64_t bytes = 0;
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        const struct corpus *corpus = &part->corpus;
        bytes += corpus->list.is_tokens ? 0 : file_bytes(corpus);
        is_stream &= corpus->packing == PACKING_STREAM;
    }
    if (bytes < DATA_LARGE || (dataset->in_windows && !counts_samples))
        return NULL;
    return counts_samples
                   ? "an epoch's length is needed, since train.max_steps is "
                     "not set, or an evaluation or a save is due each epoch"
           : !is_stream ? "whole documents are packed the longest first, which "
                          "all have to be known for (data.packing)"
           : options->val_split > 0
                   ? "the last samples are kept for evaluation, and are known "
                     "at the end of the text (data.val_split)"
           : options->shuffle == SHUFFLE_AUTO
                   ? "prompts, conversations and token files are taken in the "
                     "order of their files only with data.shuffle = \"windows\""
                   : "data.shuffle = \"windows\" is not set";
}

uint64_t dataset_growth_bytes(
        const struct data_options *options, bool counts_samples,
        const char **waits_out)
{
    const struct dataset_request request = {
            .options = options,
            .entries = options->train,
            .entry_count = options->train_count,
            .shuffle = options->shuffle != SHUFFLE_NO,
            .to = options->val_split > 0 ? 1 - options->val_split : 1};
    struct dataset dataset = {.part_count = 0};
    uint64_t bytes = 0;
    *waits_out = NULL;
    if (windows_choose(&dataset, &request) == ZD_OK) {
        *waits_out = why_whole(&dataset, options, counts_samples);
        if (dataset.in_windows && !counts_samples)
            bytes = (uint64_t)thread_count(
                            &dataset, options->preprocessing_threads) *
                            THREAD_BYTES +
                    reader_bytes(&dataset);
    }
    ZD_EACH(part, dataset.parts, dataset.part_count)
        corpus_close(&part->corpus);
    free(dataset.parts);
    zd_error_clear();
    return bytes;
}

/* --- which ---------------------------------------------------------------- */

enum zd_status windows_choose(
        struct dataset *dataset, const struct dataset_request *request)
{
    enum data_shuffle shuffle = request->options->shuffle;
    bool is_whole = request->from == 0 && request->to == 1, may = is_whole;
    uint64_t bytes = 0;
    dataset->parts =
            zd_array((size_t)request->entry_count, sizeof *dataset->parts);
    for (int i = 0; i < request->entry_count; i++)
        ZD_TRY(corpus_find(
                request, &request->entries[i],
                &dataset->parts[dataset->part_count++].corpus));
    if (!request->shuffle || shuffle == SHUFFLE_WHOLE)
        return ZD_OK;
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        const struct corpus *corpus = &part->corpus;
        bytes += file_bytes(corpus);
        may &= corpus->list.is_text && corpus->packing == PACKING_STREAM;
        if (shuffle != SHUFFLE_WINDOWS || corpus->packing == PACKING_STREAM)
            continue;
        ZD_FAIL(ZD_ERR_CONFIG, "E0213",
                "data.shuffle = \"windows\" needs documents packed as a "
                "stream, and those of %s are packed whole (data.packing)",
                corpus->entry->path);
        return zd_fail_help("shuffle = true in [data], or packing = true");
    }
    dataset->in_windows =
            shuffle == SHUFFLE_WINDOWS ? is_whole : may && bytes >= DATA_LARGE;
    int threads =
            thread_count(dataset, request->options->preprocessing_threads);
    for (int i = 0; i < dataset->part_count; i++) {
        struct corpus *corpus = &dataset->parts[i].corpus;
        corpus->in_windows = dataset->in_windows;
        corpus->number = i;
        corpus->long_record = &dataset->long_record;
        corpus->growth_threads = threads / dataset->part_count;
    }
    return ZD_OK;
}

void windows_share(struct dataset *dataset)
{
    double sum = 0;
    bool is_known = true;
    for (int i = 0; i < dataset->part_count; i++) {
        struct dataset_part *part = &dataset->parts[i];
        double weight = part->corpus.entry->weight;
        part->share = weight > 0 ? weight : (double)file_bytes(&part->corpus);
        part->phase = rng_uniform(
                dataset->seed, rng_stream("data.phase"), (uint64_t)i);
        sum += part->share;
        is_known &= part->count > 0;
        dataset->samples += part->count;
    }
    ZD_EACH(part, dataset->parts, dataset->part_count)
        part->share /= sum;
    if (!is_known)
        dataset->samples = 0;
}

static double time_of(const struct dataset_part *part, int64_t turn)
{
    return ((double)turn + part->phase) / part->share;
}

/* The entry that the n-th sample is of, whose `turn` is how many it has had.
 * Fewer than n samples have a time before n - count, and few follow. */
static struct dataset_part *find_turn(const struct dataset *dataset, int64_t n)
{
    int count = dataset->part_count;
    struct dataset_part *parts = dataset->parts, *next = parts;
    double begin = n > count ? (double)(n - count - 1) : 0;
    int64_t taken = 0;
    parts->turn = n;
    if (count == 1)
        return parts;
    ZD_EACH(part, parts, count) {
        part->turn = (int64_t)floor(begin * part->share);
        while (part->turn > 0 && time_of(part, part->turn) >= begin)
            part->turn--;
        while (time_of(part, part->turn) < begin)
            part->turn++;
        taken += part->turn;
    }
    for (;; next->turn++) {
        next = parts;
        ZD_EACH(part, parts + 1, count - 1)
            if (time_of(part, part->turn) < time_of(next, next->turn))
                next = part;
        if (taken++ == n)
            return next;
    }
}

/* Windows of an epoch hold 2^20 tokens of all entries together, then twice as
 * many each, up to 2^26: small ones come soon, large ones mix well. Window w is
 * samples [*begin_out, *begin_out + *count_out). */
static int64_t window_of(
        const struct dataset_part *part, int64_t turn, int T,
        int64_t *begin_out, int64_t *count_out)
{
    enum { FIRST = 1 << 20, DOUBLINGS = 6 };
    int64_t count = (int64_t)(part->share * (double)(FIRST / T));
    int64_t begin = 0, window = 0;
    count = count > 0 ? count : 1;
    while (turn >= begin + count && window < DOUBLINGS) {
        begin += count;
        count *= 2;
        window++;
    }
    int64_t further = (turn - begin) / count;
    *begin_out = begin + further * count;
    *count_out = count;
    return window + further;
}

/* How many samples the entry has, once its first `needed` are there; -1: at
 * least so many. */
static enum zd_status wait_for(
        struct dataset *dataset, const struct dataset_part *part,
        int64_t needed, int64_t *all_out)
{
    uint64_t T = (uint64_t)dataset->T, words;
    int64_t most = part->corpus.entry->max_samples;
    bool is_whole;
    *all_out = part->count;
    if (!part->corpus.growth)
        return ZD_OK;
    if (most > 0 && needed > most)
        needed = most;
    ZD_TRY(growth_wait(
            part->corpus.growth, (uint64_t)needed * T + 1,
            &dataset->interrupted, &dataset->coming, &words, &is_whole));
    int64_t there = words > 0 ? (int64_t)((words - 1) / T) : 0;
    *all_out = is_whole ? there : -1;
    if (most > 0 && there >= most)
        *all_out = most;
    if (*all_out != 0)
        return ZD_OK;
    return ZD_BAD(
            "E0439", "%s has fewer tokens than one sample takes, %d",
            part->corpus.entry->path, dataset->T + 1);
}

enum zd_status windows_find(
        struct dataset *dataset, int64_t n, struct dataset_part **part_out,
        int64_t *sample_out)
{
    enum { EPOCH = 40 }; /* bits of a window's number */
    struct dataset_part *part = find_turn(dataset, n);
    int64_t turn = part->turn, all, epoch = 0, begin, count;
    uint64_t stream = rng_stream("data.window");
    int64_t window = window_of(part, turn, dataset->T, &begin, &count);
    ZD_TRY(wait_for(dataset, part, begin + count, &all));
    if (all > 0) {
        epoch = turn / all;
        turn %= all;
        window = window_of(part, turn, dataset->T, &begin, &count);
        count = count < all - begin ? count : all - begin;
    }
    if (dataset->part_count > 1)
        stream += rng_stream("data.part") * (uint64_t)(part - dataset->parts);
    *part_out = part;
    *sample_out = begin + (int64_t)rng_permute(
                                  dataset->seed,
                                  stream + ((uint64_t)epoch << EPOCH) +
                                          (uint64_t)window,
                                  (uint64_t)(turn - begin), (uint64_t)count);
    return ZD_OK;
}
