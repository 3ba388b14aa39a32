#include "data/corpus.h"

#include "base/log.h"
#include "base/must.h"
#include "data/format.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_TOKENS = 256 << 10, DROP_BYTES = 4 << 20, FAULT_BYTES = 64 << 10 };
static const uint64_t check_max_bytes = UINT64_C(4) << 30;

/* Keys: everything that decides what a cache file holds, and nothing else. */

static void key_string(struct hasher *hasher, const char *text)
{
    hasher_update(hasher, text, strlen(text) + 1);
}

static void key_number(struct hasher *hasher, int64_t value)
{
    hasher_update(hasher, &value, sizeof value);
}

static enum zd_status key_finish(
        struct hasher *hasher, const struct file_list *list, char key[HASH_HEX])
{
    enum zd_status status = ZD_OK;
    for (int i = 0; i < list->count && status == ZD_OK; i++) {
        key_number(hasher, list->files[i].format);
        key_number(hasher, list->files[i].has_lines);
        status = source_identity(&list->files[i], false, hasher);
    }
    hasher_finish(hasher, key);
    hasher_destroy(hasher);
    return status;
}

static enum zd_status text_key(
        const struct file_list *list, const struct recipe *recipe,
        char key[HASH_HEX])
{
    struct hasher *hasher = zd_must(hasher_create());
    bool is_text = true;
    for (int i = 0; i < list->count; i++)
        is_text &= list->files[i].format == DATA_TEXT;
    key_string(hasher, "words 2");
    key_string(hasher, tokenizer_digest(recipe->tokenizer));
    key_number(hasher, recipe->eos);
    if (sources_have_chat(list))
        key_number(hasher, recipe->chat_template);
    if (!is_text)
        key_number(hasher, recipe->train_on);
    key_string(hasher, recipe->entry->field);
    key_string(hasher, recipe->entry->messages_field);
    key_string(hasher, recipe->entry->role_field);
    key_string(hasher, recipe->entry->content_field);
    return key_finish(hasher, list, key);
}

static enum zd_status index_key(const struct corpus *corpus, char key[HASH_HEX])
{
    struct hasher *hasher = zd_must(hasher_create());
    key_string(hasher, "index 1");
    key_number(hasher, corpus->eos);
    return key_finish(hasher, &corpus->list, key);
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

/* Text. */

static int thread_count(int wanted)
{
    cpu_set_t set;
    if (wanted > 0)
        return wanted;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static enum zd_status resolve_recipe(
        const struct dataset_request *request, const struct data_entry *entry,
        const struct file_list *list, struct recipe *recipe)
{
    const struct data_options *options = request->options;
    if (!request->tokenizer)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0433", "%s is text, but there is no tokenizer",
                entry->path);
    int ids = tokenizer_vocab_size(request->tokenizer);
    if (ids > request->vocab_size)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0447",
                "the tokenizer (%s) has %d ids, but the model's vocabulary has "
                "%d",
                tokenizer_describe(request->tokenizer), ids,
                request->vocab_size);
    if (request->eos >= request->vocab_size)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0442",
                "the end-of-text id is %d, but the model's vocabulary has %d "
                "ids",
                request->eos, request->vocab_size);
    *recipe = (struct recipe){
            .tokenizer = request->tokenizer,
            .entry = entry,
            .train_on = options->train_on,
            .eos = options->add_eos ? request->eos : -1,
    };
    if (!sources_have_chat(list))
        return ZD_OK;
    return chat_recipe_resolve(options->chat_template, recipe);
}

/* The words of the first records, until there are enough of them. */
struct beginning {
    struct cache_writer *writer;
    int64_t records, words;
    bool is_enough;
};

static enum zd_status take_beginning(
        void *ctx, const uint32_t *words, size_t count)
{
    struct beginning *beginning = ctx;
    ZD_TRY(cache_writer_words(beginning->writer, words, count));
    beginning->words += (int64_t)count;
    for (size_t i = 0; i < count; i++)
        beginning->records += (words[i] & WORD_FIRST) != 0;
    beginning->is_enough = beginning->records >= CHECKED_RECORDS ||
                           beginning->words >= CHECKED_TOKENS;
    return beginning->is_enough ? ZD_ERR_STOPPED : ZD_OK;
}

/* `is_part_out` NULL: all of it. */
static enum zd_status build_text(
        const struct corpus *corpus, const struct recipe *recipe, int threads,
        const char *folder, const char *key, bool *is_part_out)
{
    struct beginning beginning = {0};
    char key_now[HASH_HEX];
    ZD_TRY(cache_writer_create(folder, key, &beginning.writer));
    struct cache_writer *writer = beginning.writer;
    enum zd_status status = is_part_out
                                    ? tokenize_files(
                                              &corpus->list, recipe, threads,
                                              take_beginning, &beginning)
                                    : tokenize_files(
                                              &corpus->list, recipe, threads,
                                              cache_writer_words, writer);
    if (is_part_out)
        *is_part_out = beginning.is_enough;
    if (beginning.is_enough)
        status = ZD_OK;
    if (status == ZD_OK)
        status = text_key(&corpus->list, recipe, key_now);
    /* the words of other content must never get this name */
    if (status == ZD_OK && strcmp(key, key_now) != 0)
        status =
                ZD_FAIL(ZD_ERR_DATA, "E0441", "%s changed while it was read",
                        recipe->entry->path);
    if (status != ZD_OK) {
        cache_writer_abandon(writer);
        return status;
    }
    return cache_writer_finish(writer, 0);
}

/* Its beginning by a file that is gone when it is open. */
static enum zd_status look_at_text(
        struct corpus *corpus, const struct recipe *recipe, int threads,
        const struct cache_limits *limits, const char *key)
{
    char folder[PATH_MAX];
    const char *parent = getenv("TMPDIR");
    bool found = false;
    snprintf(
            folder, sizeof folder, "%s/zerod-validate-XXXXXX",
            parent && parent[0] == '/' ? parent : "/tmp");
    if (!mkdtemp(folder))
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0446", "cannot create %s: %s", folder,
                strerror(errno));
    enum zd_status status =
            build_text(corpus, recipe, threads, folder, key, &corpus->is_part);
    if (status == ZD_OK)
        status = token_cache_open(
                folder, key, CACHE_TRUSTED, limits, &corpus->cache, &found);
    if (found)
        unlink(corpus->cache.path);
    rmdir(folder);
    if (status == ZD_OK && !found)
        status = ZD_FAIL(
                ZD_ERR_IO, "E0446",
                "the words that were just written to %s are gone", folder);
    return status;
}

static enum zd_status fail_gone(const char *folder)
{
    ZD_FAIL(ZD_ERR_IO, "E0446",
            "the data cache that was just made in %s is gone", folder);
    zd_fail_help("where the file system gives files to another user: "
                 "data.cache_shared = true");
    return ZD_ERR_IO;
}

static enum zd_status open_text(
        struct corpus *corpus, const struct dataset_request *request,
        const struct data_entry *entry, enum corpus_depth depth)
{
    struct recipe recipe;
    char folder[PATH_MAX], key[HASH_HEX];
    const struct cache_limits limits = {
            .ids = (uint64_t)corpus->vocab_size,
            .is_shared = request->options->cache_shared};
    bool found;
    ZD_TRY(resolve_recipe(request, entry, &corpus->list, &recipe));
    if (sources_have_chat(&corpus->list))
        corpus->chat_template = chat_template_name(recipe.chat_template);
    ZD_TRY(token_cache_folder(request->options->cache_dir, folder));
    ZD_TRY(text_key(&corpus->list, &recipe, key));
    ZD_TRY(token_cache_open(
            folder, key, depth == CORPUS_OPEN ? CACHE_TRUSTED : CACHE_TIMES,
            &limits, &corpus->cache, &found));
    int threads = thread_count(request->options->preprocessing_threads);
    if (!found && depth == CORPUS_LOOK) {
        ZD_TRY(look_at_text(corpus, &recipe, threads, &limits, key));
    } else if (!found) {
        ZD_TRY(build_text(corpus, &recipe, threads, folder, key, NULL));
        ZD_TRY(token_cache_open(
                folder, key, CACHE_TRUSTED, &limits, &corpus->cache, &found));
        if (!found)
            return fail_gone(folder);
        zd_log_info(
                "tokenized %s: %llu tokens in %llu documents", entry->path,
                (unsigned long long)corpus->cache.word_count,
                (unsigned long long)corpus->cache.doc_count);
    }
    corpus->count = corpus->cache.word_count;
    memcpy(corpus->digest, corpus->cache.digest, sizeof corpus->digest);
    return ZD_OK;
}

/* Pre-tokenized data. */

static bool has_index(const struct corpus *corpus)
{
    return format_of(corpus->list.files[0].format)->has_index;
}

/* Places where documents begin in tokens that are cut behind end-of-text. */
static enum zd_status scan_documents(
        struct corpus *corpus, struct cache_writer *writer)
{
    uint32_t *ids = zd_array(CHECK_TOKENS, sizeof *ids);
    enum zd_status status = ZD_OK;
    bool begins = true;
    for (uint64_t at = 0; at < corpus->count && status == ZD_OK;) {
        size_t part = corpus->count - at < CHECK_TOKENS
                              ? (size_t)(corpus->count - at)
                              : CHECK_TOKENS;
        status = raw_read(&corpus->raw, at, part, corpus->vocab_size, ids);
        for (size_t i = 0; i < part && status == ZD_OK; i++) {
            if (begins || raw_begins_file(&corpus->raw, at + i))
                status = cache_writer_document(writer, at + i);
            begins = (int64_t)ids[i] == corpus->eos;
        }
        at += part;
    }
    free(ids);
    return status;
}

static enum zd_status build_index(
        struct corpus *corpus, const char *folder, const char *key)
{
    struct cache_writer *writer;
    struct raw again;
    ZD_TRY(cache_writer_create(folder, key, &writer));
    enum zd_status status;
    if (has_index(corpus)) {
        struct raw_documents documents = {cache_writer_document, writer};
        status = raw_open(&again, &corpus->list, &documents);
        if (status == ZD_OK)
            raw_close(&again);
    } else {
        status = scan_documents(corpus, writer);
    }
    if (status != ZD_OK) {
        cache_writer_abandon(writer);
        return status;
    }
    return cache_writer_finish(writer, corpus->count);
}

/* Every id of the files that are not too large for it, or the first of each. */
static enum zd_status check_ids(struct corpus *corpus, enum corpus_depth depth)
{
    uint32_t *ids = zd_array(CHECK_TOKENS, sizeof *ids);
    enum zd_status status = ZD_OK;
    for (size_t r = 0; r < corpus->raw.run_count && status == ZD_OK; r++) {
        const struct raw_run *run = &corpus->raw.runs[r];
        uint64_t end =
                r + 1 < corpus->raw.run_count ? run[1].begin : corpus->count;
        if (depth == CORPUS_LOOK && end - run->begin > CHECKED_TOKENS) {
            end = run->begin + CHECKED_TOKENS;
            corpus->is_part = true;
        }
        if (depth != CORPUS_LOOK &&
            corpus->raw.files[run->file].bytes > check_max_bytes)
            continue;
        for (uint64_t at = run->begin; at < end && status == ZD_OK;) {
            size_t part =
                    end - at < CHECK_TOKENS ? (size_t)(end - at) : CHECK_TOKENS;
            status = raw_read(&corpus->raw, at, part, corpus->vocab_size, ids);
            at += part;
        }
    }
    free(ids);
    return status;
}

static enum zd_status open_tokens(
        struct corpus *corpus, const struct dataset_request *request,
        enum corpus_depth depth)
{
    char folder[PATH_MAX], key[HASH_HEX];
    bool found;
    ZD_TRY(raw_open(&corpus->raw, &corpus->list, NULL));
    corpus->count = corpus->raw.count;
    const struct cache_limits limits = {
            .tokens = corpus->count,
            .is_shared = request->options->cache_shared};
    if (depth != CORPUS_OPEN)
        ZD_TRY(check_ids(corpus, depth));
    if (has_index(corpus) || !request->options->packing) {
        ZD_TRY(token_cache_folder(request->options->cache_dir, folder));
        ZD_TRY(index_key(corpus, key));
        ZD_TRY(token_cache_open(
                folder, key, depth == CORPUS_OPEN ? CACHE_TRUSTED : CACHE_TIMES,
                &limits, &corpus->cache, &found));
        if (!found && depth == CORPUS_LOOK && corpus->is_part)
            return raw_digest(corpus); /* where documents begin is not known */
        if (!found) {
            ZD_TRY(build_index(corpus, folder, key));
            ZD_TRY(token_cache_open(
                    folder, key, CACHE_TRUSTED, &limits, &corpus->cache,
                    &found));
        }
        if (!found)
            return fail_gone(folder);
    }
    return raw_digest(corpus);
}

enum zd_status corpus_open(
        const struct dataset_request *request, const struct data_entry *entry,
        enum corpus_depth depth, struct corpus *corpus_out)
{
    struct corpus corpus = {
            .eos = request->eos, .vocab_size = request->vocab_size};
    ZD_TRY(sources_find(entry, &corpus.list));
    enum zd_status status = corpus.list.is_tokens
                                    ? open_tokens(&corpus, request, depth)
                                    : open_text(&corpus, request, entry, depth);
    if (status != ZD_OK) {
        corpus_close(&corpus);
        return status;
    }
    *corpus_out = corpus;
    return ZD_OK;
}

enum zd_status corpus_check(
        const struct corpus *corpus, const atomic_bool *stop,
        bool *is_sound_out)
{
    struct cache_limits limits = {.ids = (uint64_t)corpus->vocab_size};
    *is_sound_out = true;
    if (corpus->list.is_tokens)
        limits = (struct cache_limits){.tokens = corpus->count};
    return corpus->cache.map
                   ? token_cache_check(
                             &corpus->cache, &limits, stop, is_sound_out)
                   : ZD_OK;
}

void corpus_close(struct corpus *corpus)
{
    token_cache_close(&corpus->cache);
    raw_close(&corpus->raw);
    sources_free(&corpus->list);
}

/* Index of the first document that begins at `position` or behind it. */
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

enum zd_status corpus_words(
        struct corpus *corpus, uint64_t at, size_t count, uint32_t *words)
{
    /* the kernel maps the pages around one that is touched as well */
    corpus->touched_bytes += count * sizeof *words + FAULT_BYTES;
    if (corpus->touched_bytes > DROP_BYTES) {
        token_cache_drop_pages(&corpus->cache);
        corpus->touched_bytes = 0;
    }
    if (corpus->list.is_tokens) {
        ZD_TRY(raw_read(&corpus->raw, at, count, corpus->vocab_size, words));
        return mark_raw(corpus, at, count, words);
    }
    /* whoever owns the file may have written to it since it was opened */
    if (at > corpus->count || count > corpus->count - at)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0442",
                "the data cache names tokens behind its %llu",
                (unsigned long long)corpus->count);
    memcpy(words, corpus->cache.words + at, count * sizeof *words);
    for (size_t i = 0; i < count; i++)
        if ((int64_t)(words[i] & WORD_ID) >= corpus->vocab_size)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0442",
                    "the data cache holds id %u; the model's vocabulary has %d "
                    "ids",
                    words[i] & WORD_ID, corpus->vocab_size);
    return ZD_OK;
}

bool corpus_has_masks(const struct corpus *corpus)
{
    const struct token_cache *cache = &corpus->cache;
    return !corpus->list.is_tokens &&
           cache->trained_count + cache->doc_count < cache->word_count;
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
