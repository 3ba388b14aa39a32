#include "data/corpus.h"

#include "base/log.h"
#include "base/must.h"
#include "data/chat.h"
#include "data/format.h"
#include "data/growth.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_TOKENS = 256 << 10 };
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
        struct hasher *hasher, const struct file_list *list, bool portable,
        char key[HASH_HEX])
{
    enum zd_status status = ZD_OK;
    for (int i = 0; i < list->count && status == ZD_OK; i++) {
        key_number(hasher, list->files[i].format);
        key_number(hasher, list->files[i].has_lines);
        status = source_identity(&list->files[i], portable, hasher);
    }
    hasher_finish(hasher, key);
    hasher_destroy(hasher);
    return status;
}

/* `portable`: the same on every host (source_identity). */
static enum zd_status text_key(
        const struct file_list *list, const struct recipe *recipe,
        bool portable, char key[HASH_HEX])
{
    struct hasher *hasher = zd_must(hasher_create());
    bool is_text = true;
    for (int i = 0; i < list->count; i++)
        is_text &= list->files[i].format == DATA_TEXT;
    key_string(hasher, "words 3");
    key_string(hasher, tokenizer_digest(recipe->tokenizer));
    key_number(hasher, recipe->eos);
    if (recipe->chat)
        key_string(hasher, recipe->chat->digest);
    if (!is_text)
        key_number(hasher, recipe->train_on);
    if (recipe->skips_bad_rows)
        key_string(hasher, "skips");
    key_string(hasher, recipe->entry->field);
    key_string(hasher, recipe->entry->messages_field);
    key_string(hasher, recipe->entry->role_field);
    key_string(hasher, recipe->entry->content_field);
    for (int i = 0; i < recipe->entry->column_count; i++)
        key_string(hasher, recipe->entry->columns[i]);
    for (int i = 0; i < recipe->entry->role_count; i++)
        key_string(hasher, recipe->entry->roles[i]);
    return key_finish(hasher, list, portable, key);
}

static enum zd_status index_key(const struct corpus *corpus, char key[HASH_HEX])
{
    struct hasher *hasher = zd_must(hasher_create());
    key_string(hasher, "index 1");
    key_number(hasher, corpus->eos);
    return key_finish(hasher, &corpus->list, false, key);
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

static int thread_count(int wanted)
{
    cpu_set_t set;
    if (wanted > 0)
        return wanted;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* May a record be rendered by a chat template? */
static bool may_talk(
        const struct file_list *list, const struct data_entry *entry)
{
    bool may = sources_have_chat(list);
    for (int i = 0; i < list->count; i++)
        may |= format_of(list->files[i].format)->talk &&
               (entry->format == DATA_AUTO || entry->format == DATA_COMPLETION);
    return may;
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
            .entry = &list->entry,
            .train_on = options->train_on,
            .eos = options->add_eos ? request->eos : -1,
            .skips_bad_rows = options->on_bad_row == BAD_ROW_SKIP,
    };
    if (!may_talk(list, entry))
        return ZD_OK;
    const struct chat_choice choice = {
            options->chat_template, options->chat_file, request->template_date};
    return chat_create(
            &choice, request->tokenizer, sources_have_chat(list),
            &recipe->chat);
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

/* Words of text, on their way into the cache. */
struct text_words {
    struct corpus *corpus;
    const struct recipe *recipe;
    int threads;
    bool is_look; /* the first records are enough, as corpus->is_part says */
    const char *key;
    struct cache_writer *writer;
    int64_t records, words; /* so far */
};

static enum zd_status take_words(void *ctx, const uint32_t *words, size_t count)
{
    struct text_words *text = ctx;
    ZD_TRY(cache_writer_words(text->writer, words, count));
    text->words += (int64_t)count;
    for (size_t i = 0; i < count; i++)
        text->records += (words[i] & WORD_FIRST) != 0;
    bool is_enough =
            text->records >= CHECKED_RECORDS || text->words >= CHECKED_TOKENS;
    text->corpus->is_part = text->is_look && is_enough;
    return text->corpus->is_part ? ZD_ERR_STOPPED : ZD_OK;
}

static enum zd_status write_text(void *ctx, struct cache_writer *writer)
{
    struct text_words *text = ctx;
    char key_now[HASH_HEX];
    text->writer = writer;
    enum zd_status status = tokenize_files(
            &text->corpus->list, text->recipe, text->threads, take_words, text,
            &text->corpus->notes);
    cache_writer_skipped(
            writer, (uint64_t)text->corpus->notes.of[ROW_BAD].rows);
    if (!text->corpus->is_part)
        ZD_TRY(status);
    ZD_TRY(text_key(&text->corpus->list, text->recipe, false, key_now));
    /* a changed file must not get this key */
    if (strcmp(text->key, key_now) != 0)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0441", "%s changed while it was read",
                text->recipe->entry->path);
    return ZD_OK;
}

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

/* --- text, and tokens --------------------------------------------------- */

/* What is told of rows, now or when the cache was made. */
static enum zd_status take_notes(
        struct corpus *corpus, const struct data_entry *entry, bool is_new,
        enum corpus_depth depth)
{
    struct row_notes *notes = &corpus->notes;
    if (!is_new)
        row_notes_load(notes, corpus->cache.path);
    else if (depth != CORPUS_LOOK)
        ZD_TRY(row_notes_save(notes, corpus->cache.path));
    notes->of[ROW_BAD].rows = (int64_t)corpus->cache.skipped_count;
    if (depth != CORPUS_OPEN)
        row_notes_tell(notes, source_label(entry).text, corpus->chat_template);
    return ZD_OK;
}

/* One source of plain text in a stream. */
static bool is_plain(
        const struct dataset_request *request, const struct corpus *corpus)
{
    bool is_plain = request->entry_count == 1 &&
                    corpus->list.entry.max_samples == 0 && request->from == 0 &&
                    request->to == 1 && corpus->packing == PACKING_STREAM;
    for (int i = 0; i < corpus->list.count; i++)
        is_plain &= corpus->list.files[i].format == DATA_TEXT;
    return is_plain;
}

/* Of the files and the job alone: it decides the order of samples. */
static bool is_large(
        const struct dataset_request *request, const struct corpus *corpus)
{
    enum data_shuffle shuffle = request->options->shuffle;
    uint64_t bytes = 0;
    for (int i = 0; i < corpus->list.count; i++)
        bytes += corpus->list.files[i].bytes;
    return request->shuffle && is_plain(request, corpus) &&
           (shuffle == SHUFFLE_WINDOWS ||
            (shuffle == SHUFFLE_AUTO && bytes >= DATA_LARGE));
}

static bool may_grow(
        const struct dataset_request *request, const struct corpus *corpus,
        enum corpus_depth depth)
{
    return request->may_grow && corpus->is_large && depth != CORPUS_LOOK;
}

/* What the thread needs of a corpus, whose list it borrows. */
struct growing {
    struct corpus corpus;
    struct recipe recipe;
    struct text_words text;
};

static enum zd_status write_growing(void *ctx, struct cache_writer *writer)
{
    struct growing *growing = ctx;
    ZD_TRY(write_text(&growing->text, writer));
    row_notes_tell(
            &growing->corpus.notes, source_label(growing->recipe.entry).text,
            NULL);
    return ZD_OK;
}

static enum zd_status begin_growth(
        struct corpus *corpus, const struct dataset_request *request,
        const struct recipe *recipe, int threads)
{
    enum { THREADS = 16 }; /* bounds memory: 8 MiB each at most */
    if (request->growth && *request->growth)
        return growth_attach(
                request->options, corpus->key, request->growth,
                &corpus->growth);
    struct growing *growing = zd_array(1, sizeof *growing);
    growing->corpus = *corpus;
    growing->recipe = *recipe;
    growing->recipe.entry = &growing->corpus.list.entry;
    growing->text = (struct text_words){
            .corpus = &growing->corpus,
            .recipe = &growing->recipe,
            .threads = threads < THREADS ? threads : THREADS,
            .key = growing->corpus.key};
    const struct cache_content content = {
            .key = growing->corpus.key, .write = write_growing, .ctx = growing};
    zd_log_info("%s is tokenized while it is trained on", recipe->entry->path);
    return growth_begin(request->options, &content, free, &corpus->growth);
}

static enum zd_status open_words(
        struct corpus *corpus, const struct dataset_request *request,
        const struct recipe *recipe, enum corpus_depth depth)
{
    const struct data_options *options = request->options;
    struct text_words text = {
            .corpus = corpus,
            .recipe = recipe,
            .threads = thread_count(options->preprocessing_threads),
            .is_look = depth == CORPUS_LOOK,
            .key = corpus->key};
    struct cache_content content = {
            .key = corpus->key,
            .limits = {.ids = (uint64_t)corpus->vocab_size},
            .ctx = &text};
    const struct token_cache *cache = &corpus->cache;
    bool is_new;
    ZD_TRY(text_key(&corpus->list, recipe, false, corpus->key));
    corpus->is_large = !recipe->chat && is_large(request, corpus);
    content.write = may_grow(request, corpus, depth) ? NULL : write_text;
    ZD_TRY(cache_obtain(options, &content, depth, &corpus->cache, &is_new));
    if (corpus->is_large)
        ZD_TRY(text_key(&corpus->list, recipe, true, corpus->digest));
    if (!corpus->cache.map)
        return depth == CORPUS_OPEN
                       ? begin_growth(corpus, request, recipe, text.threads)
                       : ZD_OK;
    if (is_new && depth != CORPUS_LOOK)
        zd_log_info(
                "tokenized %s: %llu tokens in %llu documents",
                source_label(recipe->entry).text,
                (unsigned long long)cache->word_count,
                (unsigned long long)cache->doc_count);
    ZD_TRY(take_notes(corpus, recipe->entry, is_new, depth));
    corpus->count = cache->word_count;
    if (!corpus->is_large)
        memcpy(corpus->digest, cache->digest, sizeof corpus->digest);
    return ZD_OK;
}

static enum zd_status open_text(
        struct corpus *corpus, const struct dataset_request *request,
        const struct data_entry *entry, enum corpus_depth depth)
{
    struct recipe recipe = {0};
    enum zd_status status =
            resolve_recipe(request, entry, &corpus->list, &recipe);
    const struct chat *chat = recipe.chat;
    if (status == ZD_OK && chat &&
        (sources_have_chat(&corpus->list) || !chat->is_layout))
        corpus->chat_template = zd_must(strdup(chat->name));
    if (status == ZD_OK)
        status = open_words(corpus, request, &recipe, depth);
    chat_destroy(recipe.chat);
    return status;
}

/* Check every id of files up to check_max_bytes, or the first ones of each
 * file. */
static enum zd_status check_ids(struct corpus *corpus, enum corpus_depth depth)
{
    const struct raw *raw = &corpus->raw;
    for (size_t r = 0; r < raw->run_count; r++) {
        const struct raw_run *run = &raw->runs[r];
        uint64_t end = r + 1 < raw->run_count ? run[1].begin : corpus->count;
        if (depth == CORPUS_LOOK && end - run->begin > CHECKED_TOKENS) {
            end = run->begin + CHECKED_TOKENS;
            corpus->is_part = true;
        }
        if (depth == CORPUS_LOOK ||
            raw->files[run->file].bytes <= check_max_bytes)
            ZD_TRY(scan_tokens(corpus, run->begin, end, NULL));
    }
    return ZD_OK;
}

static enum zd_status open_tokens(
        struct corpus *corpus, const struct dataset_request *request,
        enum corpus_depth depth)
{
    struct cache_content content = {.key = corpus->key, .ctx = corpus};
    bool is_new;
    ZD_TRY(raw_open(&corpus->raw, &corpus->list, NULL));
    content.limits.tokens = corpus->count = corpus->raw.count;
    if (depth != CORPUS_OPEN)
        ZD_TRY(check_ids(corpus, depth));
    if (has_index(corpus) || corpus->packing != PACKING_STREAM) {
        ZD_TRY(index_key(corpus, corpus->key));
        /* where the documents of a part begin is not known */
        if (!corpus->is_part)
            content.write = write_index;
        ZD_TRY(cache_obtain(
                request->options, &content, depth, &corpus->cache, &is_new));
    }
    return raw_digest(corpus);
}

/* Whole documents for what has prompts, else one stream. */
static enum data_packing resolve_packing(
        const struct data_options *options, const struct file_list *list)
{
    bool is_text = true;
    for (int i = 0; i < list->count; i++)
        is_text &= list->files[i].format == DATA_TEXT;
    if (options->packing != PACKING_AUTO)
        return options->packing;
    return is_text || list->is_tokens ? PACKING_STREAM : PACKING_DOCUMENTS;
}

enum zd_status corpus_open(
        const struct dataset_request *request, const struct data_entry *entry,
        enum corpus_depth depth, struct corpus *corpus_out)
{
    struct corpus corpus = {
            .eos = request->eos, .vocab_size = request->vocab_size};
    ZD_TRY(sources_find(entry, &corpus.list));
    if (corpus.list.which[0] && depth == CORPUS_CHECK)
        zd_log_info("%s: %s", entry->path, corpus.list.which);
    corpus.packing = resolve_packing(request->options, &corpus.list);
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
