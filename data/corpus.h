/* corpus.h - the tokens of one entry as a stream of words, from a cache or from
 * token files.
 *
 *   text             in a cache file, mapped
 *   pre-tokenized    in the files themselves; a cache file holds the places of
 *                    their documents where they are not found on the way */
#pragma once

#include "base/progress.h"
#include "data/format.h"
#include "data/token_cache.h"
#include "data/tokenize.h"

struct corpus {
    const struct data_entry *entry; /* borrowed */
    struct file_list list;
    struct token_cache cache; /* words and documents, or documents only */
    struct raw raw;           /* when list.is_tokens */
    int eos;                  /* ends documents of raw tokens; -1: unknown */
    int vocab_size;
    char *chat_template;       /* owned; NULL: no conversations */
    bool is_part;              /* DATA_LOOK has not read all of it */
    enum data_packing packing; /* never PACKING_AUTO */
    uint64_t count;            /* tokens */
    char key[HASH_HEX];        /* of the cache file */
    bool in_windows; /* its samples are taken so; its digest is that of the
                        files. Set before it is opened, as are */
    int growth_threads;
    pthread_mutex_t *long_record; /* one for all that grow; as in tokenize.h */
    int number;                   /* of its entry */
    struct growth *growth;        /* NULL: it is whole */
    struct row_notes notes;       /* of a whole one */
    _Atomic int64_t left_out;     /* bad rows so far */
    char digest[HASH_HEX];        /* of the content, the same on every host */
};

/* A cache file: its key, and how it is made. */
struct cache_content {
    const char *key;
    struct cache_limits limits;
    /* NULL: it is only looked for, and cache_out->map stays NULL without it */
    enum zd_status (*write)(void *ctx, struct cache_writer *writer);
    void *ctx;
};
/* Open the file, or make it first; with DATA_LOOK in a temporary folder. */
enum zd_status cache_obtain(
        const struct dataset_request *request,
        const struct cache_content *content, struct token_cache *cache_out);

/* Finds the files of `entry` and their packing. Call corpus_close even after a
 * failure. */
enum zd_status corpus_find(
        const struct dataset_request *request, const struct data_entry *entry,
        struct corpus *corpus);
/* Then tokenizes what is not in the cache. The corpus must not move
 * afterwards. */
enum zd_status corpus_open(
        struct corpus *corpus, const struct dataset_request *request);
/* corpus_text.c: of text */
enum zd_status corpus_open_text(
        struct corpus *corpus, const struct dataset_request *request);
void corpus_close(struct corpus *corpus);

/* Words [at, at + count). WORD_FIRST of word `at` is set when a document begins
 * there. ZD_ERR_DATA for an id beyond the vocabulary. */
enum zd_status corpus_words(
        struct corpus *corpus, uint64_t at, size_t count, uint32_t *words);
/* Documents, or -1 when they were not counted. */
int64_t corpus_documents(const struct corpus *corpus);
/* Where document `index` begins and how many tokens it has. */
void corpus_document(
        const struct corpus *corpus, int64_t index, uint64_t *begin_out,
        uint64_t *count_out);

/* --- growth: a cache file of text, read while it is being written.
 *
 * One rank of a host writes it on its own thread, under its temporary
 * name; all ranks of the host read it by that name. Its header says how far it
 * is (words are appended only, and by write, so that readers see them):
 *
 *   state              the header                       readers may take
 *   GROWING            blank                            what the file holds
 *   WHOLE              reserved = WHOLE, word_count     word_count words
 *   (finished)         that of a cache file             the same
 *   FAILED             reserved = FAILED, word_count    word_count words; the
 *                                                       error follows them
 *   STOPPED            reserved = STOPPED, word_count   the same, no error
 *
 * States only move down this table. Only the writer's thread changes them,
 * after it has written what the new state promises. A STOPPED file becomes
 * KEY.part, and the next one begins with its words (cache_writer_resume). */
struct growth;
/* Waits until the file has `words` words (*count_out: its words) or is complete
 * (*is_whole_out). `progress` advances as words arrive. Returns the writer's
 * error if it failed before that, ZD_ERR_STOPPED once *stop is set. */
enum zd_status growth_wait(
        struct growth *growth, uint64_t words, const atomic_bool *stop,
        struct progress *progress, uint64_t *count_out, bool *is_whole_out);
enum zd_status growth_read(
        struct growth *growth, uint64_t at, size_t count, uint32_t *words);
void growth_end(struct growth *growth);
