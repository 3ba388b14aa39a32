#include "data/dataset_internal.h"

#include "base/log.h"
#include "base/must.h"
#include "base/number/rng.h"
#include "base/text_stream.h"
#include "base/threads.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* --- what an epoch holds, and what no sample of it has ---------------------
 */

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
        begun = is_first || (begun && !dataset->starts[t]);
        sum.documents += is_first && t < dataset->T; /* else the next one's */
        sum.targets += is_target;
        sum.split += !begun;
        sum.split_targets += !begun && is_target;
    }
    return sum;
}

/* Without a target a run would train nothing and end with 0. */
static enum zd_status check_trained(
        struct dataset *dataset, struct dataset_part *part)
{
    const struct data_entry *entry = part->corpus.entry;
    int count, targets = 0;
    for (int64_t i = 0; i < part->count && targets == 0; i++) {
        ZD_TRY(dataset_read(dataset, part, part->first + i, &count));
        targets = count_words(dataset, count).targets;
    }
    if (targets > 0)
        return ZD_OK;
    if (part->corpus.is_part) {
        zd_log_warning(
                "%s: none of the targets in its first %lld documents is "
                "trained",
                source_label(entry).text,
                (long long)corpus_documents(&part->corpus));
        return ZD_OK;
    }
    ZD_BAD("E0449",
           "%s trains nothing: every target of its %lld sample%s is masked",
           source_label(entry).text, (long long)part->count,
           part->count == 1 ? "" : "s");
    return zd_fail_help(
            "`zerod data inspect` shows them. data.train_on = \"assistant\" "
            "counts the assistant's turns alone, and data.cutoff_len = %d may "
            "end before the first of them",
            dataset->T);
}

/* Documents that no sample holds whole, and what becomes of them. */
static void count_long(
        const struct dataset *dataset, const struct dataset_part *part,
        struct dataset_facts *facts)
{
    uint64_t begin, tokens, most = (uint64_t)dataset->T + 1;
    int64_t documents = corpus_documents(&part->corpus);
    if (part->corpus.packing == PACKING_STREAM)
        return;
    facts->whole_documents += documents;
    for (int64_t d = 0; d < documents; d++) {
        corpus_document(&part->corpus, d, &begin, &tokens);
        if (tokens <= most)
            continue;
        facts->whole_documents--;
        switch (dataset->long_documents) {
        case LONG_TRUNCATE:
            facts->cut_documents++;
            facts->cut_tokens += (int64_t)tokens;
            facts->lost_tokens += (int64_t)(tokens - most);
            break;
        case LONG_SPLIT:
            facts->split_documents++;
            break;
        case LONG_DROP:
            facts->dropped_documents++;
            facts->dropped_tokens += (int64_t)tokens;
        }
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
        ZD_TRY(dataset_read(dataset, part, part->first + i, &count));
        struct words_count sum = count_words(dataset, count);
        facts->inputs += share * sum.inputs;
        facts->targets += share * sum.targets;
        facts->split_targets += share * sum.split_targets;
        if (part->corpus.packing != PACKING_STREAM)
            continue;
        facts->packed_documents += sum.documents + (sum.split && i == 0);
        facts->split_documents += sum.split && begun;
        begun = sum.documents;
    }
    return ZD_OK;
}

void facts_write_long(const struct dataset_facts *facts, int T, FILE *out)
{
    long long whole = facts->whole_documents, cut = facts->cut_documents;
    long long split = facts->split_documents;
    long long dropped = facts->dropped_documents;
    if (cut > 0)
        fprintf(out,
                "data.cutoff_len = %d cuts %lld of %lld documents; %lld of "
                "their %lld tokens are left out\n",
                T, cut, whole + cut, facts->lost_tokens, facts->cut_tokens);
    if (split > 0 && !facts->packed_documents)
        fprintf(out,
                "%lld of %lld documents are longer than data.cutoff_len = %d "
                "and are split into samples\n",
                split, whole + split, T);
    if (dropped > 0)
        fprintf(out,
                "%lld of %lld documents, with %lld tokens, are longer than "
                "data.cutoff_len = %d and are left out\n",
                dropped, whole + dropped, facts->dropped_tokens, T);
}

/* What is read of the lengths of documents alone. */
static void tell_long(
        const struct dataset *dataset, const struct dataset_part *part)
{
    struct dataset_facts facts = {0};
    char *text, *next, *line;
    size_t bytes;
    count_long(dataset, part, &facts);
    int64_t packed = corpus_documents(&part->corpus) - facts.dropped_documents;
    int64_t samples = (int64_t)part->index.header.doc_count;
    FILE *out = text_stream_open(&text, &bytes);
    facts_write_long(&facts, dataset->T, out);
    if (part->corpus.packing == PACKING_DOCUMENTS)
        fprintf(out, "%lld document%s packed into %lld sample%s of %d tokens\n",
                (long long)packed, packed == 1 ? " is" : "s are",
                (long long)samples, samples == 1 ? "" : "s", dataset->T);
    fclose(out);
    for (next = text; (line = strsep(&next, "\n")) && *line;)
        zd_log_info("%s: %s", source_label(part->corpus.entry).text, line);
    free(text);
}

/* Prompts and answers in a stream are read for the warning, since an answer
 * without its question is the worse loss. */
static enum zd_status tell_facts(
        struct dataset *dataset, struct dataset_part *part)
{
    const struct token_cache *cache = &part->corpus.cache;
    struct dataset_facts facts = {0};
    bool has_masks = /* text that the loss does not count */
            !part->corpus.list.is_tokens &&
            cache->header.trained_count + cache->header.doc_count <
                    cache->header.word_count;
    tell_long(dataset, part);
    if (part->corpus.packing != PACKING_STREAM || !has_masks)
        return ZD_OK;
    ZD_TRY(count_part(dataset, part, &facts));
    if (facts.split_documents > 0)
        zd_log_warning(
                "%s: packing into samples of %d tokens cuts %lld of %lld "
                "documents; %.0f of %.0f trained tokens are in a sample "
                "without the beginning of their document; data.packing = "
                "\"documents\" keeps documents whole up to data.cutoff_len",
                source_label(part->corpus.entry).text, dataset->T,
                facts.split_documents, facts.packed_documents,
                facts.split_targets, facts.targets);
    return ZD_OK;
}

struct row_notes dataset_notes(const struct dataset *dataset)
{
    struct row_notes all = {0};
    for (int i = 0; i < dataset->part_count; i++) {
        struct row_notes part = dataset->parts[i].corpus.notes;
        row_notes_append(&all, &part);
    }
    return all;
}

enum zd_status dataset_count(
        struct dataset *dataset, struct dataset_facts *facts_out)
{
    struct dataset_facts facts = {0};
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        int64_t documents = corpus_documents(&part->corpus);
        facts.documents = facts.documents < 0 || documents < 0
                                  ? -1
                                  : facts.documents + documents;
        facts.samples += part->all;
        facts.held_out += part->all - part->count;
        count_long(dataset, part, &facts);
        ZD_TRY(count_part(dataset, part, &facts));
    }
    *facts_out = facts;
    return ZD_OK;
}

/* --- opened --------------------------------------------------------------- */

/* Samples that an entry's documents make; -1: its documents are not known. */
static int64_t count_samples(const struct dataset_part *part, int T)
{
    const struct corpus *corpus = &part->corpus;
    if (corpus->packing != PACKING_STREAM)
        return part->index.map ? (int64_t)part->index.header.doc_count : -1;
    /* sample j is words jT .. jT+T */
    return corpus->count > 0 ? (int64_t)((corpus->count - 1) / (uint64_t)T) : 0;
}

/* No sample takes part. */
static enum zd_status fail_short(
        const struct dataset_part *part, const struct dataset_request *request)
{
    const struct data_options *options = request->options;
    const struct corpus *corpus = &part->corpus;
    const struct noted *bad = &corpus->notes.of[ROW_BAD];
    const char *path = corpus->entry->path;
    bool has_documents = corpus_documents(corpus) != 0;
    if (part->all > 0) {
        ZD_BAD("E0439", "data.val_split = %g of %lld samples of %s %s",
               options->val_split, (long long)part->all, path,
               request->from > 0 ? "is empty" : "leaves none to train on");
        zd_fail_help("another share, or [[data.eval]]");
    } else if (!has_documents && bad->rows > 0) {
        ZD_BAD("E0439",
               "%s has no row that is not bad: data.on_bad_row = \"skip\" "
               "left out all %lld",
               path, bad->rows);
        if (bad->kept > 0)
            zd_fail_help("the first: %s", bad->first[0]);
    } else if (corpus->packing == PACKING_STREAM) {
        ZD_BAD("E0439", "%s has %llu tokens, but one sample takes %d", path,
               (unsigned long long)corpus->count, options->cutoff_len + 1);
        zd_fail_help("lower data.cutoff_len, or give more text");
    } else if (has_documents) {
        ZD_BAD("E0439",
               "every document of %s is longer than data.cutoff_len = %d, and "
               "data.long_documents = \"drop\" leaves it out",
               path, options->cutoff_len);
    } else {
        ZD_BAD("E0439", "no row of %s gives any text", path);
        zd_fail_help("the rows are empty, or the chat template prints nothing");
    }
    return ZD_ERR_DATA;
}

/* With weights an epoch has as many samples as without, shared by weight. */
static enum zd_status set_shares(struct dataset *dataset)
{
    double sum = 0, before = 0;
    int64_t all = 0, taken = 0;
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        sum += part->corpus.entry->weight;
        all += part->count;
    }
    ZD_EACH(part, dataset->parts, sum > 0 ? dataset->part_count : 0) {
        const struct data_entry *entry = part->corpus.entry;
        before += entry->weight;
        int64_t until = llround(before / sum * (double)all);
        part->taken = until - taken;
        taken = until;
        if (part->taken == 0)
            return ZD_BAD(
                    "E0439",
                    "weight = %g of %g gives %s none of the %lld samples of an "
                    "epoch",
                    entry->weight, sum, entry->path, (long long)all);
    }
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        part->base = dataset->samples;
        dataset->samples += part->taken;
    }
    return ZD_OK;
}

static void set_digest(
        struct dataset *dataset, const struct dataset_request *request)
{
    struct hasher *hasher = hasher_create();
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        const struct data_entry *entry = part->corpus.entry;
        double weight = entry->weight > 0 ? entry->weight : 1; /* as it was */
        hasher_update(hasher, part->corpus.digest, HASH_HEX);
        hasher_update(hasher, &weight, sizeof weight);
        hasher_update(hasher, &entry->max_samples, sizeof entry->max_samples);
    }
    hasher_update(hasher, &request->from, sizeof request->from);
    hasher_update(hasher, &request->to, sizeof request->to);
    hasher_finish(hasher, dataset->digest);
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
    for (int i = 1; i < request->entry_count; i++)
        if ((request->entries[i].weight > 0) != (request->entries->weight > 0))
            return ZD_FAIL(
                    ZD_ERR_CONFIG, "E0448",
                    "%s has no weight, and another source has one",
                    request->entries[request->entries->weight > 0 ? i : 0]
                            .path);
    return ZD_OK;
}

void dataset_tell_template(
        const struct dataset *dataset, const struct dataset_request *request,
        bool names)
{
    const struct data_options *options = request->options;
    const struct chat_choice choice = {
            options->chat_template, options->chat_file, request->template_date};
    struct chat *chat = NULL;
    if (!dataset_summary(dataset).chat_template || !request->tokenizer)
        return;
    if (chat_create(&choice, request->tokenizer, false, &chat) == ZD_OK && chat)
        chat_tell(chat, request->tokenizer, names);
    zd_error_clear();
    chat_destroy(chat);
}

static enum zd_status open_part(
        const struct dataset *dataset, struct dataset_part *part,
        const struct dataset_request *request)
{
    ZD_TRY(corpus_open(&part->corpus, request));
    if (!part->corpus.list.is_tokens && !part->corpus.cache.map)
        return ZD_OK; /* its samples are not known yet */
    if (part->corpus.packing != PACKING_STREAM && part->corpus.cache.map)
        ZD_TRY(pack_obtain(part, request));
    int64_t all = count_samples(part, dataset->T);
    int64_t most = part->corpus.entry->max_samples;
    if (part->corpus.is_part) { /* what is known of it; more may follow */
        part->taken = part->count = all > 0 ? all : 0;
        return ZD_OK;
    }
    if (most > 0 && all > most)
        all = most;
    part->all = all;
    part->first = llround(request->from * (double)all);
    part->count = llround(request->to * (double)all) - part->first;
    part->taken = part->count;
    return part->count > 0 ? ZD_OK : fail_short(part, request);
}

/* What a start refuses and tells. */
static enum zd_status check_part(
        struct dataset *dataset, struct dataset_part *part,
        const struct dataset_request *request)
{
    if (part->count == 0)
        return ZD_OK;
    if (!request->may_be_masked)
        ZD_TRY(check_trained(dataset, part));
    /* of the samples that val_split keeps it is told once */
    return request->from > 0 ? ZD_OK : tell_facts(dataset, part);
}

static enum zd_status open_parts(
        struct dataset *dataset, const struct dataset_request *request)
{
    ZD_TRY(windows_choose(dataset, request));
    ZD_EACH(part, dataset->parts, dataset->part_count)
        ZD_TRY(open_part(dataset, part, request));
    if (dataset->in_windows)
        windows_share(dataset);
    else
        ZD_TRY(set_shares(dataset));
    ZD_EACH(part, dataset->parts, dataset->part_count)
        if (request->depth != DATA_TRUST)
            ZD_TRY(check_part(dataset, part, request));
    set_digest(dataset, request);
    return ZD_OK;
}

enum zd_status dataset_open(
        const struct dataset_request *request, struct dataset **out)
{
    ZD_TRY(check_request(request));
    struct dataset *dataset = zd_array(1, sizeof *dataset);
    size_t room = (size_t)request->options->cutoff_len + 1;
    pthread_mutex_init(&dataset->long_record, NULL);
    dataset->T = request->options->cutoff_len;
    dataset->long_documents = request->options->long_documents;
    dataset->shuffle = request->shuffle;
    dataset->seed = request->data_seed;
    dataset->words = zd_array(room, sizeof *dataset->words);
    dataset->starts = zd_array(room, sizeof *dataset->starts);
    enum zd_status status = open_parts(dataset, request);
    if (status == ZD_OK)
        *out = dataset;
    else
        dataset_close(dataset);
    return status;
}

/* --- the cache, read whole beside the training ---------------------------- */

static void check_cache(
        struct dataset *dataset, const struct token_cache *cache)
{
    bool is_sound = true;
    enum zd_status status = ZD_OK;
    if (cache->map)
        status = token_cache_check(cache, &dataset->stop, &is_sound);
    if (status != ZD_OK)
        zd_log_warning(
                "the data cache could not be checked: %s",
                zd_error_get()->what);
    else if (!is_sound)
        atomic_store(&dataset->damaged, cache->path);
    zd_error_clear();
}

static void *check_caches(void *ctx)
{
    struct dataset *dataset = ctx;
    /* lowest priority: it takes idle time only */
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19);
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        check_cache(dataset, &part->corpus.cache);
        check_cache(dataset, &part->index);
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

void dataset_close(struct dataset *dataset)
{
    if (!dataset)
        return;
    atomic_store(&dataset->stop, true);
    dataset_check_wait(dataset);
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        token_cache_close(&part->index);
        corpus_close(&part->corpus);
    }
    pthread_mutex_destroy(&dataset->long_record);
    free(dataset->parts);
    free(dataset->words);
    free(dataset->starts);
    free(dataset);
}

struct dataset_summary dataset_summary(const struct dataset *dataset)
{
    static const char *const names[] = {"false", "true", "documents", "auto"};
    enum data_packing packing = dataset->parts[0].corpus.packing;
    struct dataset_summary summary = {
            .samples = dataset->samples,
            .sources = dataset->part_count,
            .digest = dataset->digest,
            .order = !dataset->shuffle     ? "false"
                     : dataset->in_windows ? "windows"
                                           : "true"};
    ZD_EACH(part, dataset->parts, dataset->part_count) {
        const struct corpus *corpus = &part->corpus;
        summary.tokens += (int64_t)corpus->count;
        summary.bad_rows += atomic_load(&corpus->left_out);
        summary.is_part |= corpus->is_part;
        if (!summary.chat_template)
            summary.chat_template = corpus->chat_template;
        if (corpus->packing != packing)
            packing = PACKING_AUTO;
    }
    summary.packing = names[packing];
    return summary;
}

struct dataset_source dataset_source(const struct dataset *dataset, int index)
{
    const struct dataset_part *part = &dataset->parts[index];
    return (struct dataset_source){
            .share = dataset->in_windows
                             ? part->share
                             : (double)part->taken / (double)dataset->samples,
            .samples = part->count};
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

enum zd_status dataset_words(struct dataset *dataset, int64_t n, int *count_out)
{
    int64_t sample = 0;
    assert(n >= 0);
    const char *damaged = atomic_load(&dataset->damaged);
    if (damaged) {
        ZD_BAD("E0450", "%s is damaged: its digest does not match", damaged);
        return zd_fail_help("start again: it will be rebuilt");
    }
    struct dataset_part *part = dataset->parts;
    if (dataset->in_windows)
        ZD_TRY(windows_find(dataset, n, &part, &sample));
    else
        part = find_sample(dataset, n, &sample);
    return dataset_read(dataset, part, sample, count_out);
}

enum zd_status dataset_sample(
        struct dataset *dataset, int64_t n, int32_t *tokens, int32_t *targets,
        int32_t *doc_start, int *token_count_out)
{
    const uint32_t *words = dataset->words;
    int count, T = dataset->T, start = 0;
    ZD_TRY(dataset_words(dataset, n, &count));
    for (int t = 0; t < T; t++) {
        bool is_padding = t >= count;
        bool is_trained = t + 1 < count && (words[t + 1] & WORD_TRAIN);
        if (is_padding || dataset->starts[t])
            start = t;
        tokens[t] = is_padding ? 0 : (int32_t)(words[t] & WORD_ID);
        targets[t] = is_trained ? (int32_t)(words[t + 1] & WORD_ID) : -1;
        doc_start[t] = start;
    }
    *token_count_out = count < T ? count : T;
    return ZD_OK;
}
