#include "data/corpus.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- pre-tokenized files -------------------------------------------------- */

static void raw_close(struct raw *raw)
{
    for (int i = 0; i < raw->file_count; i++)
        if (raw->files[i].fd >= 0)
            close(raw->files[i].fd);
    free(raw->files);
    free(raw->scratch);
    memset(raw, 0, sizeof *raw);
}

/* Open and check the files' headers and sizes. A Megatron index is read
 * through, checked, and where its documents begin is written to `documents`
 * (may be NULL). The list must outlive `raw`; raw_close follows. */
static enum zd_status raw_open(
        struct raw *raw, const struct file_list *list,
        struct cache_writer *documents)
{
    memset(raw, 0, sizeof *raw);
    raw->files = zd_array((size_t)list->count, sizeof *raw->files);
    for (int i = 0; i < list->count; i++) {
        struct raw_file *file = &raw->files[raw->file_count++];
        *file = (struct raw_file){
                .path = list->files[i].path, .fd = -1, .begin = raw->count};
        ZD_TRY(fs_open_read(file->path, &file->fd, &file->bytes));
        ZD_TRY(format_of(list->files[i].format)->open(file, documents));
        raw->count += file->count;
    }
    return ZD_OK;
}

/* The file that holds `position`. */
static int find_file(const struct raw *raw, uint64_t position)
{
    int low = 0, high = raw->file_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (raw->files[middle].begin <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static bool raw_begins_file(const struct raw *raw, uint64_t position)
{
    return raw->files[find_file(raw, position)].begin == position;
}

/* Tokens lie at any byte, so they are copied out; numbers are little-endian. */
static int64_t load(const unsigned char *at, const struct raw_file *file)
{
    uint64_t value = 0;
    int unused = 64 - 8 * file->width;
    memcpy(&value, at, (size_t)file->width);
    return file->is_signed ? (int64_t)(value << unused) >> unused
                           : (int64_t)value;
}

static enum zd_status read_part(
        struct corpus *corpus, const struct raw_file *file, uint64_t offset,
        size_t count, uint32_t *ids)
{
    struct raw *raw = &corpus->raw;
    size_t width = (size_t)file->width;
    ZD_GROW(raw->scratch, raw->scratch_bytes, count * width);
    ZD_TRY(fs_pread(file->fd, file->path, raw->scratch, count * width, offset));
    for (size_t i = 0; i < count; i++) {
        int64_t id = load(raw->scratch + i * width, file);
        if (id < 0 || id >= corpus->vocab_size) {
            uint64_t byte = offset + i * width;
            ZD_BAD("E0442",
                   "token %llu of %s is %lld, but the model's "
                   "vocabulary has %d ids",
                   (unsigned long long)((byte - file->data_offset) / width),
                   file->path, (long long)id, corpus->vocab_size);
            return zd_fail_where(
                    "%s: byte %llu", file->path, (unsigned long long)byte);
        }
        ids[i] = (uint32_t)id;
    }
    return ZD_OK;
}

/* Tokens [at, at + count) of the stream. An id that the vocabulary lacks is
 * ZD_ERR_DATA naming file and position. */
static enum zd_status raw_read(
        struct corpus *corpus, uint64_t at, size_t count, uint32_t *ids)
{
    for (int f = find_file(&corpus->raw, at); count > 0; f++) {
        const struct raw_file *file = &corpus->raw.files[f];
        uint64_t skipped = at - file->begin, left = file->count - skipped;
        size_t part = left < count ? (size_t)left : count;
        ZD_TRY(read_part(
                corpus, file,
                file->data_offset + skipped * (uint64_t)file->width, part,
                ids));
        ids += part;
        at += part;
        count -= part;
    }
    return ZD_OK;
}

/* --- the corpus ----------------------------------------------------------- */

enum { CHECK_TOKENS = 256 << 10 };
static const uint64_t check_max_bytes = UINT64_C(4) << 30;

static enum zd_status index_key(const struct corpus *corpus, char key[HASH_HEX])
{
    const int64_t eos = corpus->eos;
    struct hasher *hasher = hasher_create();
    hasher_string(hasher, "index 1");
    hasher_update(hasher, &eos, sizeof eos);
    enum zd_status status = sources_identity(&corpus->list, false, hasher);
    hasher_finish(hasher, key);
    return status;
}

static enum zd_status raw_digest(struct corpus *corpus)
{
    struct hasher *hasher = hasher_create();
    enum zd_status status = ZD_OK;
    for (int i = 0; i < corpus->list.count && status == ZD_OK; i++)
        status = source_identity(&corpus->list.files[i], true, hasher);
    hasher_finish(hasher, corpus->digest);
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
    ZD_FREED uint32_t *ids = zd_array(CHECK_TOKENS, sizeof *ids);
    bool begins = true;
    while (at < end) {
        size_t part =
                end - at < CHECK_TOKENS ? (size_t)(end - at) : CHECK_TOKENS;
        ZD_TRY(raw_read(corpus, at, part, ids));
        for (size_t i = 0; writer && i < part; i++) {
            if (begins || raw_begins_file(&corpus->raw, at + i))
                ZD_TRY(cache_writer_document(writer, at + i));
            begins = (int64_t)ids[i] == corpus->eos;
        }
        at += part;
    }
    return ZD_OK;
}

/* --- what the cache files hold --- */

static enum zd_status write_index(void *ctx, struct cache_writer *writer)
{
    struct corpus *corpus = ctx;
    ZD_SCOPED(raw_close) struct raw again = {0};
    return has_index(corpus) ? raw_open(&again, &corpus->list, writer)
                             : scan_tokens(corpus, 0, corpus->count, writer);
}

/* Check every id of files up to check_max_bytes, or the first ones of each
 * file. */
static enum zd_status check_ids(struct corpus *corpus, enum data_depth depth)
{
    const struct raw *raw = &corpus->raw;
    ZD_EACH(file, raw->files, raw->file_count) {
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
    ZD_TRY(raw_open(&corpus->raw, &corpus->list, NULL));
    content.limits.tokens = corpus->count = corpus->raw.count;
    if (request->depth != DATA_TRUST)
        ZD_TRY(check_ids(corpus, request->depth));
    if (has_index(corpus) || corpus->packing != PACKING_STREAM) {
        ZD_TRY(index_key(corpus, corpus->key));
        /* where the documents of a part begin is not known */
        if (!corpus->is_part)
            content.write = write_index;
        ZD_TRY(cache_obtain(request, &content, &corpus->cache));
    }
    return raw_digest(corpus);
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
    corpus->packing = request->options->packing;
    if (corpus->packing == PACKING_AUTO) /* whole: what has prompts */
        corpus->packing = corpus->list.is_text || corpus->list.is_tokens
                                  ? PACKING_STREAM
                                  : PACKING_DOCUMENTS;
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
    uint64_t low = 0, high = cache->header.doc_count;
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
             d < cache->header.doc_count && cache->docs[d] < at + count; d++)
            if (cache->docs[d] >= at) /* out of order since it was opened */
                words[cache->docs[d] - at] |= WORD_FIRST;
    } else {
        uint32_t before = 0;
        bool begins = at == 0;
        if (!begins) {
            ZD_TRY(raw_read(corpus, at - 1, 1, &before));
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
            return ZD_BAD(
                    "E0442",
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
        ZD_TRY(raw_read(corpus, at, count, words));
        return mark_raw(corpus, at, count, words);
    }
    /* the file's owner may have written to it since it was opened */
    if (at > corpus->count || count > corpus->count - at)
        return ZD_BAD(
                "E0442", "the data cache names tokens beyond its %llu",
                (unsigned long long)corpus->count);
    memcpy(words, corpus->cache.words + at, count * sizeof *words);
    return check_words(corpus, count, words);
}

int64_t corpus_documents(const struct corpus *corpus)
{
    return corpus->cache.map ? (int64_t)corpus->cache.header.doc_count : -1;
}

void corpus_document(
        const struct corpus *corpus, int64_t index, uint64_t *begin_out,
        uint64_t *count_out)
{
    const uint64_t *docs = corpus->cache.docs + index;
    *begin_out = docs[0];
    *count_out = docs[1] - docs[0];
}
