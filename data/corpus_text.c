/* corpus_text.c - text becomes words, in the cache or on their way into it. */
#include "data/corpus.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Words of text, on their way into the cache. */
struct text_words {
    struct corpus *corpus; /* of a thread's only list, key and left_out */
    struct tokenize_run run;
    bool is_look, is_part; /* the first records are enough, and were */
    const char *waits;     /* of the request */
    int bad_told;
    struct cache_writer *writer;
    int64_t records, words; /* so far */
};

/* --- growth: the writer's thread, and readers ----------------------------- */

struct growth {
    char path[PATH_MAX]; /* temporary, until it is whole */
    int fd;              /* to read */
    atomic_bool stop;    /* set by the owner, read by the thread and waits */

    /* of the rank that writes; the thread's until it is joined */
    pthread_t thread;
    bool has_thread;
    struct cache_writer *writer; /* the thread frees it */
    struct text_words text;
};

/* --- readers of text that grows ------------------------------------------- */

static enum zd_status read_error(
        const struct growth *growth, uint64_t word_count)
{
    struct zd_error error;
    ZD_TRY(fs_pread(
            growth->fd, growth->path, &error, sizeof error,
            sizeof(struct cache_header) + word_count * sizeof(uint32_t)));
    zd_error_set(&error);
    return error.status;
}

static enum zd_status look(
        const struct growth *growth, uint64_t *count_out,
        struct cache_header *header)
{
    struct stat info;
    /* the size first: what follows the words comes after the state */
    if (fstat(growth->fd, &info) != 0)
        return ZD_FAIL(
                ZD_ERR_IO, "E0707", "cannot read %s: %s", growth->path,
                strerror(errno));
    *count_out = 0;
    memset(header, 0, sizeof *header);
    if ((size_t)info.st_size < sizeof *header)
        return ZD_OK;
    ZD_TRY(fs_pread(growth->fd, growth->path, header, sizeof *header, 0));
    *count_out = header->magic[0] || header->reserved
                         ? header->word_count
                         : ((uint64_t)info.st_size - sizeof *header) /
                                   sizeof(uint32_t);
    return ZD_OK;
}

enum zd_status growth_wait(
        struct growth *growth, uint64_t words, const atomic_bool *stop,
        struct progress *progress, uint64_t *count_out, bool *is_whole_out)
{
    enum { TELL_MS = 10000, NAP_MS = 5 };
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000};
    struct cache_header header;
    uint64_t before = 0;
    for (int waited = 0;; waited += NAP_MS) {
        ZD_TRY(look(growth, count_out, &header));
        if (*count_out > before)
            atomic_fetch_add(&progress->completed, 1);
        before = *count_out;
        bool is_stopped =
                header.unit_count > 0 || header.reserved == CACHE_STOPPED;
        *is_whole_out = !is_stopped &&
                        (header.magic[0] || header.reserved == CACHE_WHOLE);
        if (*is_whole_out || *count_out >= words)
            return ZD_OK;
        if (header.reserved == CACHE_FAILED)
            return read_error(growth, header.word_count);
        if (atomic_load(stop) || atomic_load(&growth->stop) || is_stopped)
            return ZD_FAIL(ZD_ERR_STOPPED, "E0446", "tokenizing was stopped");
        if (waited > 0 && waited % TELL_MS == 0)
            zd_log_info(
                    "waiting for data: %.1f of %.1f million tokens",
                    (double)*count_out / 1e6, (double)words / 1e6);
        nanosleep(&nap, NULL);
    }
}

enum zd_status growth_read(
        struct growth *growth, uint64_t at, size_t count, uint32_t *words)
{
    return fs_pread(
            growth->fd, growth->path, words, count * sizeof *words,
            sizeof(struct cache_header) + at * sizeof *words);
}

void growth_end(struct growth *growth)
{
    if (!growth)
        return;
    atomic_store(&growth->stop, true);
    if (growth->has_thread)
        pthread_join(growth->thread, NULL);
    else
        cache_writer_abandon(growth->writer);
    recipe_fini(&growth->text.run.recipe);
    if (growth->fd >= 0)
        close(growth->fd);
    free(growth);
}

/* --- text ----------------------------------------------------------------- */

/* Everything that decides what the cache file holds, and nothing else.
 * `portable`: the same on every host (source_identity). */
static enum zd_status text_key(
        const struct text_words *text, bool portable, char key[HASH_HEX])
{
    const struct recipe *recipe = &text->run.recipe;
    const struct data_entry *entry = recipe->entry;
    const struct file_list *list = &text->corpus->list;
    const char *const fields[] = {
            entry->field, entry->messages_field, entry->role_field,
            entry->content_field};
    const int64_t eos = recipe->eos, train_on = recipe->train_on;
    struct hasher *hasher = hasher_create();
    hasher_string(hasher, "words 3");
    hasher_string(hasher, tokenizer_facts(recipe->tokenizer)->digest);
    hasher_update(hasher, &eos, sizeof eos);
    if (recipe->chat)
        hasher_string(hasher, recipe->chat->digest);
    if (!list->is_text)
        hasher_update(hasher, &train_on, sizeof train_on);
    if (recipe->skips_bad_rows)
        hasher_string(hasher, "skips");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        hasher_string(hasher, fields[i]);
    for (int i = 0; i < entry->column_count; i++)
        hasher_string(hasher, entry->columns[i]);
    for (int i = 0; i < entry->role_count; i++)
        hasher_string(hasher, entry->roles[i]);
    enum zd_status status = sources_identity(list, portable, hasher);
    hasher_finish(hasher, key);
    return status;
}

static int thread_count(int wanted)
{
    cpu_set_t set;
    if (wanted > 0)
        return wanted;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* --- the recipe ----------------------------------------------------------- */

static enum zd_status resolve_recipe(
        const struct dataset_request *request, const struct data_entry *entry,
        const struct file_list *list, struct recipe *recipe)
{
    const struct data_options *options = request->options;
    if (!request->tokenizer)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0433", "%s is text, but there is no tokenizer",
                entry->path);
    if (request->eos >= request->vocab_size)
        return ZD_BAD(
                "E0442",
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
    bool has_chat = list->has_chat, may_talk = has_chat;
    for (int i = 0; i < list->count; i++)
        may_talk |= format_of(list->files[i].format)->talk &&
                    (entry->format == DATA_AUTO ||
                     entry->format == DATA_COMPLETION);
    if (!may_talk)
        return ZD_OK;
    const struct chat_choice choice = {
            options->chat_template, options->chat_file, request->template_date};
    return chat_create(&choice, request->tokenizer, has_chat, &recipe->chat);
}

/* --- the words ------------------------------------------------------------ */

static enum zd_status take_words(void *ctx, const uint32_t *words, size_t count)
{
    struct text_words *text = ctx;
    ZD_TRY(cache_writer_words(text->writer, words, count));
    text->run.units++;
    const struct noted *bad = &text->run.notes.of[ROW_BAD];
    atomic_store(&text->corpus->left_out, bad->rows);
    for (; text->run.long_record && text->bad_told < bad->kept;
         text->bad_told++)
        zd_log_warning(
                "a bad row is left out (data.on_bad_row = \"skip\"): %s",
                bad->first[text->bad_told]);
    text->words += (int64_t)count;
    for (size_t i = 0; text->is_look && i < count; i++)
        text->records += (words[i] & WORD_FIRST) != 0;
    bool is_enough =
            text->records >= CHECKED_RECORDS || text->words >= CHECKED_TOKENS;
    text->is_part = text->is_look && is_enough;
    return text->is_part ? ZD_ERR_STOPPED : ZD_OK;
}

static enum zd_status write_text(void *ctx, struct cache_writer *writer)
{
    struct text_words *text = ctx;
    const struct corpus *corpus = text->corpus;
    char key_now[HASH_HEX];
    text->writer = writer;
    if (text->waits)
        zd_log_info(
                "%s is tokenized before step 1: %s",
                source_label(text->run.recipe.entry).text, text->waits);
    text->run.ctx = text;
    enum zd_status status = tokenize_files(&text->run);
    if (!text->is_part)
        ZD_TRY(status);
    ZD_TRY(text_key(text, false, key_now));
    /* a changed file must not get this key */
    if (strcmp(corpus->key, key_now) != 0)
        return ZD_BAD(
                "E0441", "%s changed while it was read",
                text->run.recipe.entry->path);
    return cache_writer_notes(writer, &text->run.notes, !text->is_look);
}

static void tell_notes(
        const struct text_words *text, const struct row_notes *notes)
{
    row_notes_tell(
            notes, source_label(text->run.recipe.entry).text,
            text->corpus->chat_template);
}

/* --- text that grows: the writer's thread --------------------------------- */

static enum zd_status open_to_read(struct growth *growth)
{
    growth->fd = open(growth->path, O_RDONLY | O_CLOEXEC);
    return growth->fd >= 0 ? ZD_OK
                           : ZD_FAIL(ZD_ERR_IO, "E0446", "cannot read %s: %s",
                                     growth->path, strerror(errno));
}

static struct cache_limits limits_of(const struct corpus *corpus)
{
    return (struct cache_limits){.ids = (uint64_t)corpus->vocab_size};
}

static enum zd_status write_growing(
        struct text_words *text, struct cache_writer *writer)
{
    const struct cache_limits limits = limits_of(text->corpus);
    ZD_TRY(cache_writer_resume(
            writer, &limits, &text->run.units, &text->run.notes));
    enum zd_status status = write_text(text, writer);
    if (status == ZD_ERR_STOPPED && text->run.units > 0)
        ZD_TRY(cache_writer_keep(writer, text->run.units, &text->run.notes));
    if (status == ZD_OK)
        tell_notes(text, &text->run.notes);
    return status;
}

static void *grow(void *argument)
{
    struct growth *growth = argument;
    enum zd_status status = write_growing(&growth->text, growth->writer);
    if (status == ZD_OK)
        status = cache_writer_finish(growth->writer, 0);
    else
        cache_writer_fail(growth->writer, zd_error_get());
    if (status != ZD_OK && status != ZD_ERR_STOPPED) {
        zd_log_warning(
                "tokenizing has failed; training ends where it needs more: %s%s"
                "%s",
                zd_error_get()->where, zd_error_get()->where[0] ? ": " : "",
                zd_error_get()->what);
        if (status == ZD_ERR_IO)
            atomic_store(&growth->stop, true); /* no one will write a state */
    }
    zd_error_clear();
    return NULL;
}

/* The thread has the text then. */
static enum zd_status start_growth(
        struct growth *growth, struct text_words *text, const char *folder,
        const char *name)
{
    enum { LARGE = 2 << 20 };
    const struct corpus *corpus = text->corpus;
    /* What a thread frees of a long record goes back at once: glibc would keep
     * it for that thread, while the plan counts one such record of all. */
    mallopt(M_MMAP_THRESHOLD, LARGE);
    ZD_TRY(cache_writer_create(
            folder, corpus->key, name, &growth->stop, &growth->writer));
    ZD_TRY(open_to_read(growth));
    text->run.long_record = corpus->long_record;
    if (text->run.threads > corpus->growth_threads)
        text->run.threads = corpus->growth_threads;
    growth->text = ZD_TAKE(*text);
    growth->has_thread =
            thread_start(&growth->thread, "zerod-grow", grow, growth) == 0;
    return growth->has_thread ? ZD_OK
                              : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                        "cannot start a thread to tokenize");
}

/* Begin it, or read what another rank of this host has begun: then
 * corpus->growth stays NULL where it is not there, as it may be whole. */
static enum zd_status begin_growth(
        struct text_words *text, const struct dataset_request *request)
{
    struct corpus *corpus = text->corpus;
    char folder[PATH_MAX], path[PATH_MAX], name[NAME_MAX];
    struct growth *growth = corpus->growth = zd_array(1, sizeof *growth);
    growth->fd = -1;
    ZD_PRINT(name, "%s-%d", request->growth, corpus->number);
    if (request->begins_growth)
        zd_log_info(
                "%s is tokenized while it is trained on",
                source_label(text->run.recipe.entry).text);
    ZD_TRY(token_cache_folder(request->options->cache_dir, folder));
    cache_path(path, folder, corpus->key);
    ZD_TRY(cache_temporary_path(growth->path, path, name));
    if (request->begins_growth)
        return start_growth(growth, text, folder, name);
    if (fs_exists(growth->path))
        return open_to_read(growth);
    growth_end(growth);
    corpus->growth = NULL;
    return ZD_OK;
}

/* --- opened --------------------------------------------------------------- */

static enum zd_status open_words(
        struct text_words *text, const struct dataset_request *request)
{
    struct corpus *corpus = text->corpus;
    const struct token_cache *cache = &corpus->cache;
    struct cache_content content = {
            .key = corpus->key, .limits = limits_of(corpus), .ctx = text};
    bool grows = request->growth && corpus->in_windows;
    ZD_TRY(text_key(text, false, corpus->key));
    content.write = grows ? NULL : write_text;
    ZD_TRY(cache_obtain(request, &content, &corpus->cache));
    if (corpus->in_windows)
        ZD_TRY(text_key(text, true, corpus->digest));
    if (!cache->map) {
        ZD_TRY(begin_growth(text, request));
        if (corpus->growth)
            return ZD_OK;
        /* another rank has just made it whole */
        ZD_TRY(cache_obtain(request, &content, &corpus->cache));
    }
    if (!cache->map)
        return ZD_FAIL(
                ZD_ERR_IO, "E0446", "the data cache of %s is gone",
                text->run.recipe.entry->path);
    bool is_new = text->run.units > 0;
    if (is_new && !text->is_look)
        zd_log_info(
                "tokenized %s: %llu tokens in %llu document%s",
                source_label(text->run.recipe.entry).text,
                (unsigned long long)cache->header.word_count,
                (unsigned long long)cache->header.doc_count,
                cache->header.doc_count == 1 ? "" : "s");
    corpus->is_part = text->is_part;
    corpus->notes = text->run.notes;
    if (!is_new)
        row_notes_load(&corpus->notes, cache->path);
    corpus->left_out = (int64_t)cache->header.skipped_count;
    corpus->notes.of[ROW_BAD].rows = corpus->left_out;
    if (request->depth != DATA_TRUST)
        tell_notes(text, &corpus->notes);
    corpus->count = cache->header.word_count;
    if (!corpus->in_windows)
        memcpy(corpus->digest, cache->header.digest, sizeof corpus->digest);
    return ZD_OK;
}

enum zd_status corpus_open_text(
        struct corpus *corpus, const struct dataset_request *request)
{
    struct text_words text = {
            .corpus = corpus,
            .run = {.list = &corpus->list,
                    .threads = thread_count(
                            request->options->preprocessing_threads),
                    .sink = take_words},
            .is_look = request->depth == DATA_LOOK,
            .waits = request->waits};
    ZD_TRY(resolve_recipe(
            request, corpus->entry, &corpus->list, &text.run.recipe));
    const struct chat *chat = text.run.recipe.chat;
    if (chat && (corpus->list.has_chat || !chat->is_layout))
        corpus->chat_template = zd_must(strdup(chat->name));
    enum zd_status status = open_words(&text, request);
    recipe_fini(&text.run.recipe);
    return status;
}
