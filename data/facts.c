/* facts.c - what an epoch holds, and what no sample of it has. */
#include "data/dataset_internal.h"

#include "base/log.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

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

enum zd_status facts_check_trained(
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
enum zd_status facts_tell(struct dataset *dataset, struct dataset_part *part)
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
