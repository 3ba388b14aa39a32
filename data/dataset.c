#include "data/dataset_internal.h"

#include "base/log.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "base/threads.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Samples that an entry's documents make. */
static int64_t count_samples(const struct corpus *corpus, bool packing, int T)
{
    if (!packing)
        return corpus_documents(corpus);
    /* sample j is words jT .. jT+T */
    return corpus->count > 0 ? (int64_t)((corpus->count - 1) / (uint64_t)T) : 0;
}

static enum zd_status fail_short(
        const struct data_entry *entry, const struct dataset_part *part,
        const struct dataset_request *request)
{
    int64_t all = part->all;
    const struct data_options *options = request->options;
    const struct corpus *corpus = &part->corpus;
    enum zd_status status;
    if (all == 0 && !options->packing)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0439", "%s has no documents", entry->path);
    if (all == 0) {
        status = ZD_FAIL(
                ZD_ERR_DATA, "E0439",
                "%s has %llu tokens, but one sample takes %d", entry->path,
                (unsigned long long)corpus->count, options->cutoff_len + 1);
        zd_fail_help("lower data.cutoff_len, or give more text");
        return status;
    }
    if (part->count > 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0439",
                "weight = %g of %lld samples of %s is empty", entry->weight,
                (long long)part->count, entry->path);
    status =
            ZD_FAIL(ZD_ERR_DATA, "E0439",
                    "data.val_split = %g of %lld samples of %s %s",
                    options->val_split, (long long)all, entry->path,
                    request->from > 0 ? "is empty" : "leaves none to train on");
    zd_fail_help("another share, or [[data.eval]]");
    return status;
}

/* Which samples of the entry take part. */
static enum zd_status set_part(
        struct dataset_part *part, const struct data_entry *entry,
        const struct dataset_request *request)
{
    const struct data_options *options = request->options;
    int64_t all =
            count_samples(&part->corpus, options->packing, options->cutoff_len);
    if (entry->max_samples > 0 && all > entry->max_samples)
        all = entry->max_samples;
    part->all = all;
    part->first = llround(request->from * (double)all);
    part->count = llround(request->to * (double)all) - part->first;
    part->taken = llround(entry->weight * (double)part->count);
    if (part->count <= 0 || part->taken <= 0)
        return fail_short(entry, part, request);
    return ZD_OK;
}

static void set_digest(
        struct dataset *dataset, const struct dataset_request *request)
{
    struct hasher *hasher = zd_must(hasher_create());
    for (int i = 0; i < dataset->part_count; i++) {
        const struct data_entry *entry = &request->entries[i];
        hasher_update(hasher, dataset->parts[i].corpus.digest, HASH_HEX);
        hasher_update(hasher, &entry->weight, sizeof entry->weight);
        hasher_update(hasher, &entry->max_samples, sizeof entry->max_samples);
    }
    hasher_update(hasher, &request->from, sizeof request->from);
    hasher_update(hasher, &request->to, sizeof request->to);
    hasher_finish(hasher, dataset->digest);
    hasher_destroy(hasher);
}

static enum zd_status check_request(const struct dataset_request *request)
{
    const struct data_options *options = request->options;
    assert(request->from >= 0 && request->from < request->to &&
           request->to <= 1);
    if (options->cutoff_len < 1)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0448", "data.cutoff_len is %d, not at least 1",
                options->cutoff_len);
    if (request->entry_count < 1)
        return ZD_FAIL(ZD_ERR_CONFIG, "E0448", "there is no [[data.train]]");
    return ZD_OK;
}

/* Words of sample number `sample` of a part into dataset->words; how many there
 * are, at most T + 1. */
static enum zd_status read_words(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        int *count_out)
{
    uint64_t begin, count, most = (uint64_t)dataset->T + 1;
    if (dataset->packing) {
        begin = (uint64_t)sample * (uint64_t)dataset->T;
        count = most;
    } else {
        corpus_document(&part->corpus, sample, &begin, &count);
        if (count > most)
            count = most;
    }
    *count_out = (int)count;
    return corpus_words(&part->corpus, begin, (size_t)count, dataset->words);
}

/* --- what is trained of it --- */

/* One sample. */
struct words_count {
    int inputs, targets;
    int documents;     /* that begin in it */
    int split;         /* words of a document that began in an earlier sample */
    int split_targets; /* among them */
};

/* Of the sample that is in dataset->words. */
static struct words_count count_words(const struct dataset *dataset, int count)
{
    struct words_count sum = {
            .inputs = count < dataset->T ? count : dataset->T};
    bool begun = dataset->words[0] & WORD_FIRST;
    sum.documents = begun;
    for (int t = 1; t < count; t++) {
        bool is_first = dataset->words[t] & WORD_FIRST;
        bool is_target = dataset->words[t] & WORD_TRAIN;
        begun |= is_first;
        sum.documents += is_first && t < dataset->T; /* else the next one's */
        sum.targets += is_target;
        sum.split += !begun;
        sum.split_targets += !begun && is_target;
    }
    return sum;
}

/* Without a target a run would train nothing and end with 0. */
static enum zd_status check_trained(
        struct dataset *dataset, struct dataset_part *part,
        const struct data_entry *entry)
{
    int count, targets = 0;
    for (int64_t i = 0; i < part->count && targets == 0; i++) {
        ZD_TRY(read_words(dataset, part, part->first + i, &count));
        targets = count_words(dataset, count).targets;
    }
    if (targets > 0)
        return ZD_OK;
    if (part->corpus.is_part) {
        zd_log_warning(
                "%s: none of the targets in its first %lld documents is "
                "trained",
                entry->path, (long long)corpus_documents(&part->corpus));
        return ZD_OK;
    }
    ZD_FAIL(ZD_ERR_DATA, "E0449",
            "%s trains nothing: every target of its %lld sample%s is masked",
            entry->path, (long long)part->count, part->count == 1 ? "" : "s");
    zd_fail_help(
            "`zerod data inspect` shows them. data.train_on = \"assistant\" "
            "counts the assistant's turns alone, and data.cutoff_len = %d may "
            "end before the first of them",
            dataset->T);
    return ZD_ERR_DATA;
}

/* Without packing a sample is the beginning of a document. */
static void count_cut(
        const struct dataset *dataset, const struct dataset_part *part,
        struct dataset_facts *facts)
{
    uint64_t begin, tokens, most = (uint64_t)dataset->T + 1;
    for (int64_t i = 0; !dataset->packing && i < part->count; i++) {
        corpus_document(&part->corpus, part->first + i, &begin, &tokens);
        if (tokens <= most)
            continue;
        facts->cut_documents++;
        facts->cut_tokens += (int64_t)tokens;
        facts->lost_tokens += (int64_t)(tokens - most);
    }
}

/* An epoch takes `taken` of `count` samples: each as often as the others. */
static enum zd_status count_part(
        struct dataset *dataset, struct dataset_part *part,
        struct dataset_facts *facts)
{
    double share = (double)part->taken / (double)part->count;
    int count, begun = 1; /* documents that begin in the sample before */
    for (int64_t i = 0; i < part->count; i++) {
        ZD_TRY(read_words(dataset, part, part->first + i, &count));
        struct words_count sum = count_words(dataset, count);
        facts->inputs += share * sum.inputs;
        facts->targets += share * sum.targets;
        if (!dataset->packing)
            continue;
        facts->packed_documents += sum.documents + (sum.split && i == 0);
        facts->split_targets += share * sum.split_targets;
        facts->split_documents += sum.split && begun;
        begun = sum.documents;
    }
    return ZD_OK;
}

/* Packed prompts and answers are read for the warning, since an answer without
 * its question is the worse loss. */
static enum zd_status tell_cut(
        struct dataset *dataset, struct dataset_part *part,
        const struct data_entry *entry)
{
    struct dataset_facts facts = {0};
    count_cut(dataset, part, &facts);
    if (facts.cut_documents > 0)
        zd_log_info(
                "%s: data.cutoff_len = %d cuts %lld of %lld documents; %lld of "
                "their %lld tokens are left out",
                entry->path, dataset->T, (long long)facts.cut_documents,
                (long long)part->count, (long long)facts.lost_tokens,
                (long long)facts.cut_tokens);
    if (!dataset->packing || !corpus_has_masks(&part->corpus))
        return ZD_OK;
    ZD_TRY(count_part(dataset, part, &facts));
    if (facts.split_documents > 0)
        zd_log_warning(
                "%s: packing into samples of %d tokens cuts %lld of %lld "
                "documents; %.0f of %.0f trained tokens are in a sample "
                "without the beginning of their document; data.packing = false "
                "keeps documents whole up to data.cutoff_len",
                entry->path, dataset->T, (long long)facts.split_documents,
                (long long)facts.packed_documents, facts.split_targets,
                facts.targets);
    return ZD_OK;
}

enum zd_status dataset_count(
        struct dataset *dataset, struct dataset_facts *facts_out)
{
    struct dataset_facts facts = {0};
    for (int i = 0; i < dataset->part_count; i++) {
        struct dataset_part *part = &dataset->parts[i];
        int64_t documents = corpus_documents(&part->corpus);
        facts.documents = facts.documents < 0 || documents < 0
                                  ? -1
                                  : facts.documents + documents;
        facts.samples += part->all;
        facts.held_out += part->all - part->count;
        count_cut(dataset, part, &facts);
        ZD_TRY(count_part(dataset, part, &facts));
    }
    *facts_out = facts;
    return ZD_OK;
}

const char *dataset_chat_template(const struct dataset *dataset)
{
    for (int i = 0; i < dataset->part_count; i++)
        if (dataset->parts[i].corpus.chat_template)
            return dataset->parts[i].corpus.chat_template;
    return NULL;
}

enum zd_status dataset_compare_template(
        const struct dataset *dataset, const struct dataset_request *request)
{
    enum chat_template ours;
    if (!dataset_chat_template(dataset) || !request->tokenizer)
        return ZD_OK;
    if (chat_template_resolve(
                request->options->chat_template, request->tokenizer, &ours) !=
        ZD_OK)
        return ZD_OK;
    return chat_template_compare(ours, request->tokenizer);
}

static enum zd_status open_part(
        struct dataset *dataset, struct dataset_part *part,
        const struct data_entry *entry, const struct dataset_request *request,
        enum corpus_depth depth)
{
    if (!part->corpus.is_part) {
        ZD_TRY(set_part(part, entry, request));
    } else { /* what is known of it; more may follow */
        int64_t count =
                count_samples(&part->corpus, dataset->packing, dataset->T);
        part->taken = part->count = count > 0 ? count : 0;
    }
    if (depth == CORPUS_OPEN || part->count == 0)
        return ZD_OK;
    if (!request->may_be_masked)
        ZD_TRY(check_trained(dataset, part, entry));
    return tell_cut(dataset, part, entry);
}

static enum zd_status open_dataset(
        const struct dataset_request *request, enum corpus_depth depth,
        struct dataset **out)
{
    const struct data_options *options = request->options;
    ZD_TRY(check_request(request));
    struct dataset *dataset = zd_array(1, sizeof *dataset);
    enum zd_status status = ZD_OK;
    dataset->T = options->cutoff_len;
    dataset->packing = options->packing;
    dataset->shuffle = request->shuffle;
    dataset->seed = request->data_seed;
    dataset->words = zd_array((size_t)dataset->T + 1, sizeof *dataset->words);
    dataset->parts =
            zd_array((size_t)request->entry_count, sizeof *dataset->parts);
    for (int i = 0; i < request->entry_count && status == ZD_OK; i++) {
        struct dataset_part *part = &dataset->parts[i];
        const struct data_entry *entry = &request->entries[i];
        status = corpus_open(request, entry, depth, &part->corpus);
        if (status != ZD_OK)
            break;
        dataset->part_count++;
        status = open_part(dataset, part, entry, request, depth);
        part->base = dataset->samples;
        dataset->samples += part->taken;
    }
    if (status != ZD_OK) {
        dataset_close(dataset);
        return status;
    }
    set_digest(dataset, request);
    *out = dataset;
    return ZD_OK;
}

/* Everything that is wrong with the data, found before it is opened to train.
 */
static enum zd_status look(
        const struct dataset_request *request, enum corpus_depth depth,
        bool *is_part_out)
{
    struct dataset *dataset;
    ZD_TRY(open_dataset(request, depth, &dataset));
    *is_part_out = false;
    for (int i = 0; i < dataset->part_count; i++)
        *is_part_out |= dataset->parts[i].corpus.is_part;
    enum zd_status status = request->compares_template
                                    ? dataset_compare_template(dataset, request)
                                    : ZD_OK;
    dataset_close(dataset);
    return status;
}

enum zd_status dataset_prepare(const struct dataset_request *request)
{
    bool is_part;
    return look(request, CORPUS_CHECK, &is_part);
}

enum zd_status dataset_check(
        const struct dataset_request *request, bool *is_part_out)
{
    return look(request, CORPUS_LOOK, is_part_out);
}

enum zd_status dataset_open(
        const struct dataset_request *request, struct dataset **out)
{
    return open_dataset(request, CORPUS_OPEN, out);
}

/* --- the cache, read whole beside the training -----------------------------
 */

static void *check_caches(void *ctx)
{
    struct dataset *dataset = ctx;
    /* lowest priority: it takes idle time only */
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    for (int i = 0; i < dataset->part_count; i++) {
        bool is_sound;
        const struct corpus *corpus = &dataset->parts[i].corpus;
        if (corpus_check(corpus, &dataset->stop, &is_sound) != ZD_OK)
            zd_log_warning(
                    "the data cache could not be checked: %s",
                    zd_error_get()->what);
        else if (!is_sound)
            atomic_store(&dataset->damaged, corpus->cache.path);
        zd_error_clear();
    }
    return NULL;
}

void dataset_check_begin(struct dataset *dataset)
{
    if (!dataset->has_checker)
        dataset->has_checker = thread_start(
                                       &dataset->checker, "zerod-cache",
                                       check_caches, dataset) == 0;
}

void dataset_check_wait(struct dataset *dataset)
{
    if (dataset->has_checker)
        pthread_join(dataset->checker, NULL);
    dataset->has_checker = false;
}

static enum zd_status check_damaged(const struct dataset *dataset)
{
    const char *path = atomic_load(&dataset->damaged);
    if (!path)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_DATA, "E0450", "%s is damaged: its digest does not match",
            path);
    zd_fail_help("start again: it will be rebuilt");
    return ZD_ERR_DATA;
}

void dataset_close(struct dataset *dataset)
{
    if (!dataset)
        return;
    atomic_store(&dataset->stop, true);
    dataset_check_wait(dataset);
    for (int i = 0; i < dataset->part_count; i++)
        corpus_close(&dataset->parts[i].corpus);
    free(dataset->parts);
    free(dataset->words);
    free(dataset);
}

int64_t dataset_samples(const struct dataset *dataset)
{
    return dataset->samples;
}

int64_t dataset_tokens(const struct dataset *dataset)
{
    int64_t tokens = 0;
    for (int i = 0; i < dataset->part_count; i++)
        tokens += (int64_t)dataset->parts[i].corpus.count;
    return tokens;
}

const char *dataset_digest(const struct dataset *dataset)
{
    return dataset->digest;
}

/* Where the n-th sample lies: its entry, and its number there. */
static struct dataset_part *find_sample(
        const struct dataset *dataset, int64_t n, int64_t *sample_out)
{
    int64_t epoch = n / dataset->samples, place = n % dataset->samples;
    struct dataset_part *part = dataset->parts;
    if (dataset->shuffle)
        place = (int64_t)rng_permute(
                dataset->seed, rng_stream("data.epoch") + (uint64_t)epoch,
                (uint64_t)place, (uint64_t)dataset->samples);
    while (place >= part->base + part->taken)
        part++;
    /* Epochs go round the entry; when an epoch is not a whole number of
     * rounds, each round has its own order, so that epochs do not cut the
     * file at the same places. */
    int64_t turn = epoch * part->taken + place - part->base;
    int64_t sample = turn % part->count;
    if (dataset->shuffle && part->taken % part->count != 0)
        sample = (int64_t)rng_permute(
                dataset->seed,
                rng_stream("data.round") + (uint64_t)(turn / part->count),
                (uint64_t)sample, (uint64_t)part->count);
    *sample_out = part->first + sample;
    return part;
}

enum zd_status dataset_sample(
        struct dataset *dataset, int64_t n, int32_t *tokens, int32_t *targets,
        int32_t *doc_start, int *token_count_out)
{
    const uint32_t *words = dataset->words;
    int64_t sample;
    int count, T = dataset->T, start = 0;
    assert(n >= 0);
    ZD_TRY(check_damaged(dataset));
    struct dataset_part *part = find_sample(dataset, n, &sample);
    ZD_TRY(read_words(dataset, part, sample, &count));
    for (int t = 0; t < T; t++) {
        bool is_padding = t >= count;
        bool is_trained = t + 1 < count && (words[t + 1] & WORD_TRAIN);
        if (is_padding || words[t] & WORD_FIRST)
            start = t;
        tokens[t] = is_padding ? 0 : (int32_t)(words[t] & WORD_ID);
        targets[t] = is_trained ? (int32_t)(words[t + 1] & WORD_ID) : -1;
        doc_start[t] = start;
    }
    *token_count_out = count < T ? count : T;
    return ZD_OK;
}
