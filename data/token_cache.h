/* token_cache.h - tokenized data in a memory-mapped file.
 *
 *   header   256 bytes: magic, version, key, counts, digests
 *   words    word_count x uint32 (tokenize.h), padded to 8 bytes
 *   docs     (doc_count + 1) x uint64: where documents begin in the stream of
 *            tokens, then where it ends
 *
 * The key names the content: it is made of everything that decides the words,
 * so a file is never out of date. An index of pre-tokenized data is such a file
 * with documents and no words. Files are written under a temporary name,
 * synced, and renamed, so processes may build the same one at once; the next
 * writer removes what an interrupted one left. Numbers are little-endian.
 *
 * The folder may be shared and contain other users' files. A file's owner
 * decides what is trained on, so such files are used only if the job allows
 * it. */
#pragma once

#include "base/file/hash.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct cache_limits { /* of what it is the cache of */
    uint64_t ids;     /* the vocabulary: of words */
    uint64_t tokens;  /* of an index: where the stream ends; else 0 */
    bool is_shared;   /* a file of another user may be used */
    bool is_by_time;  /* checked are header, size, and the documents' order and
                         range; with this, unless the file's time is that of its
                         header, all of it: its digest, the order of its words */
};

/* --- the layout of a file, for its reader and writer --- */

#define CACHE_MAGIC "ZDTOKENS"
enum { CACHE_VERSION = 1 };

/* In `reserved` of a header without its magic: corpus.h. */
enum { CACHE_WHOLE = 1, CACHE_FAILED = 2, CACHE_STOPPED = 3 };

struct cache_header {
    char magic[8];
    uint32_t version, reserved; /* reserved: 0 in a file that is finished */
    uint64_t word_count, doc_count, trained_count;
    char key[40], digest[40];
    int64_t modified_s; /* when the file was written, as its time says; 0: of
                           an older program */
    uint64_t skipped_count;
    uint64_t
            unit_count; /* of text, in what a stopped writer has left; else 0 */
    char unused[72];
    char header_digest[32 + 8]; /* of all before it */
};
_Static_assert(sizeof(struct cache_header) == 256, "the header is 256 bytes");

struct token_cache { /* open; all zero: none */
    struct cache_limits limits;
    char *path; /* owned; NULL: none */
    int fd;     /* of the file, which keeps it where another replaces it */
    void *map;
    size_t map_bytes;
    const uint32_t *words;
    const uint64_t *docs;
    struct cache_header header; /* as it was: the file may change */
    size_t touched_bytes;       /* since its pages were let go */
};

/* `option` or, for "auto", $XDG_CACHE_HOME/zerod or ~/.cache/zerod; made when
 * it does not exist. */
enum zd_status token_cache_folder(const char *option, char folder[PATH_MAX]);

/* Map the file of `key`. cache_out->map is NULL when there is none, or one that
 * is damaged or was not written by this program; then a warning says so.
 * A file that neither this user nor root owns is none either, with a warning,
 * unless limits->is_shared; then it is read whole whatever is asked, because
 * anyone can compute the digest. */
enum zd_status token_cache_open(
        const char *folder, const char *key, const struct cache_limits *limits,
        struct token_cache *cache_out);
/* Reads an open file whole, until *stop. Changes the time of a damaged file, so
 * that the next start notices. */
enum zd_status token_cache_check(
        const struct token_cache *cache, const atomic_bool *stop,
        bool *is_sound_out);
void token_cache_close(struct token_cache *cache);
/* Call before reading `bytes` at one place. Mapped pages count as this
 * process's memory, so this releases them from time to time. */
void token_cache_touch(struct token_cache *cache, size_t bytes);

struct cache_writer;
/* Words are refused with ZD_ERR_STOPPED from when *stop (may be NULL) is set.
 * The file is KEY.tokens.tmp-NAME until it is finished; NULL: any. */
enum zd_status cache_writer_create(
        const char *folder, const char *key, const char *name,
        const atomic_bool *stop, struct cache_writer **writer_out);
/* Append words; those with WORD_FIRST begin documents. */
enum zd_status cache_writer_words(
        struct cache_writer *writer, const uint32_t *words, size_t count);
/* What is told of the text's rows; `keeps`: it is kept beside the file. */
struct row_notes;
enum zd_status cache_writer_notes(
        struct cache_writer *writer, const struct row_notes *notes, bool keeps);
/* For an index: a document begins at `position`. */
enum zd_status cache_writer_document(
        struct cache_writer *writer, uint64_t position);
/* Put it in place; `tokens`: where the stream of an index ends. Frees the
 * writer whatever happens. */
enum zd_status cache_writer_finish(
        struct cache_writer *writer, uint64_t tokens);
/* As abandon, and tell those who read it (corpus.h). After cache_writer_keep
 * the words become a file of KEY.part. */
void cache_writer_fail(
        struct cache_writer *writer, const struct zd_error *error);
/* The words are those of the first `units` units; the next writer of this key
 * may start with them. */
enum zd_status cache_writer_keep(
        struct cache_writer *writer, int64_t units,
        const struct row_notes *notes);
/* Call before the first word: takes the words of KEY.part, if it is sound, and
 * removes the file. *units_out: their units; 0: no such file. */
enum zd_status cache_writer_resume(
        struct cache_writer *writer, const struct cache_limits *limits,
        int64_t *units_out, struct row_notes *notes);
void cache_writer_abandon(struct cache_writer *writer);

/* --- for the reader and writer of a file --- */

static inline uint64_t cache_docs_offset(uint64_t word_count)
{
    return sizeof(struct cache_header) + (word_count + 1) / 2 * 8;
}

void cache_header_seal(struct cache_header *header);
void cache_path(char path[PATH_MAX], const char *folder, const char *key);
/* While it is written. */
enum zd_status cache_temporary_path(
        char temporary[PATH_MAX], const char *path, const char *name);
