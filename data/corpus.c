#include "data/corpus.h"

#include "base/log.h"
#include "base/must.h"
#include "data/format.h"
#include "data/growth.h"

#include <stdlib.h>
#include <string.h>

enum { CHECK_TOKENS = 256 << 10 };
static const uint64_t check_max_bytes = UINT64_C(4) << 30;

static enum zd_status index_key(const struct corpus *corpus, char key[HASH_HEX])
{
    const int64_t eos = corpus->eos;
    struct hasher *hasher = zd_must(hasher_create());
    hasher_string(hasher, "index 1");
    hasher_update(hasher, &eos, sizeof eos);
    enum zd_status status = sources_identity(&corpus->list, false, hasher);
    hasher_finish(hasher, key);
    hasher_destroy(hasher);
    return status;
}

static enum zd_status raw_digest(struct corpus *corpus)
{
    struct hasher *hasher = zd_must(hasher_create());
    enum zd_status status = ZD_OK;
    for (int i = 0; i < corpus->list.count && status == ZD_OK; i++)
        status = source_identity(&corpus->list.files[i], true, hasher);
    hasher_finish(hasher, corpus->digest);
    hasher_destroy(hasher);
    return status;
}

static bool has_index(const struct corpus *corpus)
{
    return format_of(corpus->list.files[0].format)->has_index;
}

/* Read tokens [at, end), for their check and, unless `writer` is NULL, for
 * where documents begin, which end with end-of-text. */
static enum zd_status scan_tokens(
        struct corpus *corpus, uint64_t at, uint64_t end,
        struct cache_writer *writer)
{
    uint32_t *ids = zd_array(CHECK_TOKENS, sizeof *ids);
    enum zd_status status = ZD_OK;
    bool begins = true;
    while (at < end && status == ZD_OK) {
        size_t part =
                end - at < CHECK_TOKENS ? (size_t)(end - at) : CHECK_TOKENS;
        status = raw_read(&corpus->raw, at, part, corpus->vocab_size, ids);
        for (size_t i = 0; writer && i < part && status == ZD_OK; i++) {
            if (begins || raw_begins_file(&corpus->raw, at + i))
                status = cache_writer_document(writer, at + i);
            begins = (int64_t)ids[i] == corpus->eos;
        }
        at += part;
    }
    free(ids);
    return status;
}

/* --- what the cache files hold --- */

static enum zd_status write_index(void *ctx, struct cache_writer *writer)
{
    struct corpus *corpus = ctx;
    struct raw again;
    if (!has_index(corpus))
        return scan_tokens(corpus, 0, corpus->count, writer);
    ZD_TRY(raw_open(&again, &corpus->list, writer));
    raw_close(&again);
    return ZD_OK;
}

/* Check every id of files up to check_max_bytes, or the first ones of each
 * file. */
static enum zd_status check_ids(struct corpus *corpus, enum data_depth depth)
{
    const struct raw *raw = &corpus->raw;
    for (int f = 0; f < raw->file_count; f++) {
        const struct raw_file *file = &raw->files[f];
        uint64_t end = file->begin + file->count;
        if (depth == DATA_LOOK && file->count > CHECKED_TOKENS) {
            end = file->begin + CHECKED_TOKENS;
            corpus->is_part = true;
        }
        if (depth == DATA_LOOK || file->bytes <= check_max_bytes)
            ZD_TRY(scan_tokens(corpus, file->begin, end, NULL));
    }
    return ZD_OK;
}

static enum zd_status open_tokens(
        struct corpus *corpus, const struct dataset_request *request)
{
    struct cache_content content = {.key = corpus->key, .ctx = corpus};
    bool is_new;
    ZD_TRY(raw_open(&corpus->raw, &corpus->list, NULL));
    content.limits.tokens = corpus->count = corpus->raw.count;
    if (request->depth != DATA_TRUST)
        ZD_TRY(check_ids(corpus, request->depth));
    if (has_index(corpus) || corpus->packing != PACKING_STREAM) {
        ZD_TRY(index_key(corpus, corpus->key));
        /* where the documents of a part begin is not known */
        if (!corpus->is_part)
            content.write = write_index;
        ZD_TRY(cache_obtain(request, &content, &corpus->cache, &is_new));
    }
    return raw_digest(corpus);
}

/* Whole documents for what has prompts, else one stream. */
static enum data_packing resolve_packing(
        const struct data_options *options, const struct file_list *list)
{
    if (options->packing != PACKING_AUTO)
        return options->packing;
    return sources_are_text(list) || list->is_tokens ? PACKING_STREAM
                                                     : PACKING_DOCUMENTS;
}

enum zd_status corpus_find(
        const struct dataset_request *request, const struct data_entry *entry,
        struct corpus *corpus)
{
    *corpus = (struct corpus){
            .entry = entry,
            .eos = request->eos,
            .vocab_size = request->vocab_size};
    ZD_TRY(sources_find(entry, &corpus->list));
    corpus->packing = resolve_packing(request->options, &corpus->list);
    return ZD_OK;
}

enum zd_status corpus_open(
        struct corpus *corpus, const struct dataset_request *request)
{
    if (corpus->list.which[0] && request->depth == DATA_CHECK)
        zd_log_info("%s: %s", corpus->entry->path, corpus->list.which);
    if (corpus->list.left_out && request->depth != DATA_TRUST)
        zd_log_warning(
                "%s: %d file%s of another kind %s not read (first: %s); of "
                "several kinds in a folder the most common is read: give the "
                "others a source of their own",
                corpus->entry->path, corpus->list.left_out,
                corpus->list.left_out == 1 ? "" : "s",
                corpus->list.left_out == 1 ? "is" : "are",
                corpus->list.first_left_out);
    return corpus->list.is_tokens ? open_tokens(corpus, request)
                                  : corpus_open_text(corpus, request);
}

void corpus_close(struct corpus *corpus)
{
    growth_end(corpus->growth);
    free(corpus->chat_template);
    corpus->chat_template = NULL;
    token_cache_close(&corpus->cache);
    raw_close(&corpus->raw);
    sources_free(&corpus->list);
}

/* Index of the first document that begins at or after `position`. */
static uint64_t find_document(
        const struct token_cache *cache, uint64_t position)
{
    uint64_t low = 0, high = cache->doc_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (cache->docs[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum zd_status mark_raw(
        struct corpus *corpus, uint64_t at, size_t count, uint32_t *words)
{
    const struct token_cache *cache = &corpus->cache;
    if (cache->map) {
        for (uint64_t d = find_document(cache, at);
             d < cache->doc_count && cache->docs[d] < at + count; d++)
            if (cache->docs[d] >= at) /* out of order since it was opened */
                words[cache->docs[d] - at] |= WORD_FIRST;
    } else {
        uint32_t before = 0;
        bool begins = at == 0;
        if (!begins) {
            ZD_TRY(raw_read(
                    &corpus->raw, at - 1, 1, corpus->vocab_size, &before));
            begins = (int64_t)before == corpus->eos;
        }
        for (size_t i = 0; i < count; i++) {
            bool is_end = (int64_t)words[i] == corpus->eos;
            if (begins || raw_begins_file(&corpus->raw, at + i))
                words[i] |= WORD_FIRST;
            begins = is_end;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (!(words[i] & WORD_FIRST))
            words[i] |= WORD_TRAIN;
    return ZD_OK;
}

static enum zd_status check_words(
        const struct corpus *corpus, size_t count, const uint32_t *words)
{
    for (size_t i = 0; i < count; i++)
        if ((int64_t)(words[i] & WORD_ID) >= corpus->vocab_size)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0442",
                    "the data cache holds id %u; the model's vocabulary has %d "
                    "ids",
                    words[i] & WORD_ID, corpus->vocab_size);
    return ZD_OK;
}

enum zd_status corpus_words(
        struct corpus *corpus, uint64_t at, size_t count, uint32_t *words)
{
    token_cache_touch(&corpus->cache, count * sizeof *words);
    if (corpus->growth) {
        ZD_TRY(growth_read(corpus->growth, at, count, words));
        return check_words(corpus, count, words);
    }
    if (corpus->list.is_tokens) {
        ZD_TRY(raw_read(&corpus->raw, at, count, corpus->vocab_size, words));
        return mark_raw(corpus, at, count, words);
    }
    /* the file's owner may have written to it since it was opened */
    if (at > corpus->count || count > corpus->count - at)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0442",
                "the data cache names tokens beyond its %llu",
                (unsigned long long)corpus->count);
    memcpy(words, corpus->cache.words + at, count * sizeof *words);
    return check_words(corpus, count, words);
}

int64_t corpus_documents(const struct corpus *corpus)
{
    return corpus->cache.map ? (int64_t)corpus->cache.doc_count : -1;
}

void corpus_document(
        const struct corpus *corpus, int64_t index, uint64_t *begin_out,
        uint64_t *count_out)
{
    const uint64_t *docs = corpus->cache.docs + index;
    *begin_out = docs[0];
    *count_out = docs[1] - docs[0];
}
