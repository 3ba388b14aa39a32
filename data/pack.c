/* pack.c - whole documents in samples of at most T + 1 tokens: T inputs and the
 * target of the last one.
 *
 *   documents   |aaaaa|bb|ccccccccc|d|     T + 1 = 8
 *   samples     |aaaaabbd|cccccccc|
 *
 * Best fit decreasing: documents in the order of (length, the longest first;
 * index) go each into the fullest sample that has room (of several, the one
 * that was filled last), else into a new one.
 * Only the documents' lengths decide. A sample keeps its documents in file
 * order, and samples are numbered in the order of their first document.
 *
 * A document longer than T + 1 tokens is cut there, is left out, or is split:
 * piece c is its tokens cT .. cT + T, so that every token but the first is a
 * target once. Pieces of T + 1 tokens are a sample each.
 *
 * The result is a cache file (token_cache.h). A word is the number of a
 * document; WORD_FIRST begins a sample. A word with WORD_TRAIN is the number
 * c > 0 of a piece of the document before it.
 *
 * Time: documents + tokens / T. Memory: 20 bytes a document.
 * Source: Johnson et al. 1974, Worst-case performance bounds for simple
 *         one-dimensional packing algorithms. */
#include "data/dataset_internal.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* --- the fullest sample with room ---------------------------------------
 *
 * Samples of equal room are a list, the newest first. A bit for each room says
 * whether its list has one. */
struct rooms {
    uint32_t *first; /* sample of a room, or NONE */
    uint32_t *next;  /* of a sample */
    uint64_t *bits;
    uint32_t words; /* of bits */
};

static void rooms_put(struct rooms *rooms, uint32_t room, uint32_t sample)
{
    rooms->next[sample] = rooms->first[room];
    rooms->first[room] = sample;
    rooms->bits[room / 64] |= UINT64_C(1) << room % 64;
}

static uint32_t rooms_take(struct rooms *rooms, uint32_t room)
{
    uint32_t sample = rooms->first[room];
    rooms->first[room] = rooms->next[sample];
    if (rooms->first[room] == NONE)
        rooms->bits[room / 64] &= ~(UINT64_C(1) << room % 64);
    return sample;
}

/* The smallest room of a sample that is at least `room`, or NONE. */
static uint32_t rooms_find(const struct rooms *rooms, uint32_t room)
{
    uint64_t from = ~UINT64_C(0) << room % 64;
    for (uint32_t word = room / 64; word < rooms->words;
         word++, from = ~UINT64_C(0)) {
        uint64_t bits = rooms->bits[word] & from;
        if (bits)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return NONE;
}

/* --- documents into samples --- */

struct packing {
    const struct corpus *corpus; /* with documents */
    enum long_documents long_documents;
    bool joins;         /* false: a piece is a sample */
    uint32_t most;      /* T + 1 */
    uint32_t documents; /* of the corpus */
    uint32_t *sample;   /* of a document; NONE: it is left out */
    struct cache_writer *writer;
};

/* The pieces of T + 1 tokens before the last one of a document. */
static uint64_t full_pieces(const struct packing *packing, uint32_t document)
{
    uint64_t begin, count, most = packing->most;
    corpus_document(packing->corpus, document, &begin, &count);
    bool splits = packing->long_documents == LONG_SPLIT && count > most;
    return splits ? (count - 2) / (most - 1) : 0;
}

/* Tokens of its last piece; 0: it is left out. */
static uint32_t last_piece(const struct packing *packing, uint32_t document)
{
    uint64_t begin, count, most = packing->most;
    corpus_document(packing->corpus, document, &begin, &count);
    if (count > most && packing->long_documents == LONG_DROP)
        return 0;
    count -= full_pieces(packing, document) * (most - 1);
    return (uint32_t)(count < most ? count : most);
}

/* Documents by length, the longest first, then by index; those that are left
 * out are not among the *count_out. The caller frees them. */
static uint32_t *sort_documents(
        const struct packing *packing, uint32_t *count_out)
{
    uint32_t *order = zd_array(packing->documents, sizeof *order);
    uint32_t *begin = zd_array((size_t)packing->most + 2, sizeof *begin);
    for (uint32_t d = 0; d < packing->documents; d++)
        begin[packing->most - last_piece(packing, d) + 1]++;
    *count_out = packing->documents - begin[packing->most + 1];
    for (uint32_t i = 1; i <= packing->most; i++)
        begin[i] += begin[i - 1];
    for (uint32_t d = 0; d < packing->documents; d++) {
        uint32_t length = last_piece(packing, d);
        if (length > 0)
            order[begin[packing->most - length]++] = d;
    }
    free(begin);
    return order;
}

/* Fill packing->sample, with numbers in the order in which samples were begun.
 * Returns how many there are. */
static uint32_t fit(struct packing *packing)
{
    uint32_t samples = 0, count, sizes = packing->most + 1;
    uint32_t *order = sort_documents(packing, &count);
    struct rooms rooms = {
            .words = (sizes + 63) / 64,
            .first = zd_array(sizes, sizeof *rooms.first),
            .next = zd_array(count, sizeof *rooms.next),
            .bits = zd_array((sizes + 63) / 64, sizeof *rooms.bits)};
    memset(rooms.first, 0xff, sizes * sizeof *rooms.first);
    memset(packing->sample, 0xff, packing->documents * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = last_piece(packing, order[i]);
        uint32_t room = packing->joins ? rooms_find(&rooms, length) : NONE;
        uint32_t sample = room == NONE ? samples++ : rooms_take(&rooms, room);
        packing->sample[order[i]] = sample;
        rooms_put(
                &rooms, (room == NONE ? packing->most : room) - length, sample);
    }
    free(rooms.bits);
    free(rooms.first);
    free(rooms.next);
    free(order);
    return samples;
}

static enum zd_status write_piece(
        const struct packing *packing, uint32_t document, uint64_t piece,
        bool is_first)
{
    uint32_t words[] = {
            document | (is_first ? WORD_FIRST : 0),
            (uint32_t)piece | WORD_TRAIN};
    return cache_writer_words(packing->writer, words, piece > 0 ? 2 : 1);
}

/* All samples, in the order of their first documents. */
static enum zd_status write_samples(
        const struct packing *packing, uint32_t *next, uint32_t *last)
{
    /* documents of a sample as a list, in their order */
    for (uint32_t d = 0; d < packing->documents; d++) {
        uint32_t sample = packing->sample[d];
        next[d] = NONE;
        if (sample == NONE)
            continue;
        if (last[sample] != NONE) {
            next[last[sample]] = d;
            packing->sample[d] = NONE; /* it is not the first one */
        }
        last[sample] = d;
    }
    for (uint32_t d = 0; d < packing->documents; d++) {
        uint64_t full = full_pieces(packing, d);
        for (uint64_t piece = 0; piece < full; piece++)
            ZD_TRY(write_piece(packing, d, piece, true));
        if (packing->sample[d] == NONE)
            continue;
        for (uint32_t in = d; in != NONE; in = next[in])
            ZD_TRY(write_piece(packing, in, full_pieces(packing, in), in == d));
    }
    return ZD_OK;
}

static enum zd_status write_index(void *ctx, struct cache_writer *writer)
{
    struct packing *packing = ctx;
    size_t documents = packing->documents;
    ZD_FREED uint32_t *sample = zd_array(documents, sizeof *sample);
    ZD_FREED uint32_t *next = zd_array(documents, sizeof *next);
    packing->sample = sample;
    packing->writer = writer;
    size_t samples = fit(packing);
    ZD_FREED uint32_t *last = zd_array(samples, sizeof *last);
    memset(last, 0xff, samples * sizeof *last);
    return write_samples(packing, next, last);
}

enum zd_status pack_obtain(
        struct dataset_part *part, const struct dataset_request *request)
{
    const struct corpus *corpus = &part->corpus;
    const struct data_options *options = request->options;
    struct packing packing = {
            .corpus = corpus,
            .long_documents = options->long_documents,
            .joins = corpus->packing == PACKING_DOCUMENTS,
            .most = (uint32_t)options->cutoff_len + 1,
            .documents = (uint32_t)corpus->cache.header.doc_count};
    const int64_t settings[] = {
            options->cutoff_len, packing.long_documents, packing.joins,
            corpus->is_part};
    uint64_t documents = corpus->cache.header.doc_count;
    uint64_t pieces = corpus->count / (uint64_t)options->cutoff_len + 1;
    char key[HASH_HEX];
    const struct cache_content content = {
            .key = key,
            .limits.ids = documents > pieces ? documents : pieces,
            .write = write_index,
            .ctx = &packing};
    if (content.limits.ids > WORD_ID)
        return ZD_BAD(
                "E0458",
                "whole documents cannot be packed from %llu of them, or from "
                "%llu tokens at data.cutoff_len = %d: at most 2^30",
                (unsigned long long)documents,
                (unsigned long long)corpus->count, options->cutoff_len);
    struct hasher *hasher = hasher_create();
    hasher_update(hasher, "samples 1", sizeof "samples 1");
    hasher_update(hasher, corpus->key, sizeof corpus->key);
    hasher_update(hasher, settings, sizeof settings);
    hasher_finish(hasher, key);
    return cache_obtain(request, &content, &part->index);
}

/* --- which words a sample of an entry has --------------------------------- */

/* Append words [begin, begin + count) to the *filled ones of the sample. */
static enum zd_status append_words(
        struct dataset *dataset, struct dataset_part *part, uint64_t begin,
        uint64_t count, int *filled)
{
    uint32_t *words = dataset->words + *filled;
    bool *starts = dataset->starts + *filled;
    ZD_TRY(corpus_words(&part->corpus, begin, (size_t)count, words));
    for (size_t i = 0; i < count; i++)
        starts[i] = i == 0 || words[i] & WORD_FIRST;
    *filled += (int)count;
    return ZD_OK;
}

/* The piece of a document at words[*at] of the index, whose sample ends before
 * `end`; *at is moved on. The file's owner may have written to it since it was
 * opened. */
static enum zd_status append_piece(
        struct dataset *dataset, struct dataset_part *part, uint64_t *at,
        uint64_t end, int *filled)
{
    const struct corpus *corpus = &part->corpus;
    uint64_t T = (uint64_t)dataset->T, piece = 0, begin = 0, count = 0;
    uint32_t *words = dataset->words + *filled;
    uint32_t document = part->index.words[(*at)++] & WORD_ID;
    if (*at < end && (part->index.words[*at] & WORD_TRAIN))
        piece = part->index.words[(*at)++] & WORD_ID;
    if (document < corpus->cache.header.doc_count)
        corpus_document(corpus, document, &begin, &count);
    bool is_there = piece * T < count;
    count -= piece * T;
    count = count < T + 1 ? count : T + 1;
    if (!is_there || count > T + 1 - (uint64_t)*filled) {
        ZD_BAD("E0450",
               "%s is damaged: it names piece %llu of document %u, or its "
               "sample is too long",
               part->index.path, (unsigned long long)piece, document);
        return zd_fail_help("start again: it will be rebuilt");
    }
    ZD_TRY(append_words(dataset, part, begin + piece * T, count, filled));
    if (piece > 0) /* not a target of the document before it */
        words[0] &= ~WORD_TRAIN;
    return ZD_OK;
}

enum zd_status dataset_read(
        struct dataset *dataset, struct dataset_part *part, int64_t sample,
        int *count_out)
{
    struct token_cache *index = &part->index;
    uint64_t T = (uint64_t)dataset->T;
    *count_out = 0;
    if (part->corpus.packing == PACKING_STREAM)
        return append_words(
                dataset, part, (uint64_t)sample * T, T + 1, count_out);
    uint64_t at = index->docs[sample], end = index->docs[sample + 1];
    if (at > end || end > index->header.word_count)
        return ZD_BAD(
                "E0450", "%s is damaged: sample %lld lies beyond its end",
                index->path, (long long)sample);
    token_cache_touch(index, (size_t)(end - at) * sizeof(uint32_t));
    while (at < end)
        ZD_TRY(append_piece(dataset, part, &at, end, count_out));
    return ZD_OK;
}
