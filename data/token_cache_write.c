#include "base/file/fs.h"

#include "base/log.h"
#include "base/must.h"
#include "data/corpus.h"
#include "data/row_notes.h"
#include "data/token_cache.h"
#include "data/tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10, CHUNK = 1 << 20 };

struct cache_writer {
    char folder[PATH_MAX], path[PATH_MAX], temporary[PATH_MAX];
    struct cache_header header; /* but for its digests and its time */
    struct hasher *hasher;
    FILE *words;             /* the file that is renamed in the end */
    const atomic_bool *stop; /* NULL: nothing does */
    FILE *docs;              /* without a name; copied after the words */
};

/* A temporary file is locked while its writer lives. */
static void remove_leftovers(const char *folder)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    fs_join(pattern, sizeof pattern, folder, "*.tokens.tmp-*");
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            int fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
            if (fd < 0)
                continue;
            if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                unlink(found.gl_pathv[i]);
            close(fd);
        }
    globfree(&found);
}

enum zd_status cache_temporary_path(
        char temporary[PATH_MAX], const char *path, const char *name)
{
    return snprintf(temporary, PATH_MAX, "%s.tmp-%s", path, name) < PATH_MAX
                   ? ZD_OK
                   : ZD_FAIL(ZD_ERR_CREATE, "E0446",
                             "the path of the data cache is too long");
}

/* A new file, locked for as long as it is open. */
static enum zd_status create_temporary(
        const char *path, const char *name, char temporary[PATH_MAX],
        FILE **file_out)
{
    for (;;) {
        struct stat info;
        ZD_TRY(cache_temporary_path(temporary, path, name ? name : "XXXXXX"));
        int fd = name ? open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                             0600)
                      : mkostemp(temporary, O_CLOEXEC);
        if (fd < 0)
            return ZD_FAIL(
                    ZD_ERR_CREATE, "E0446", "cannot create %s: %s", temporary,
                    strerror(errno));
        /* another process may have taken it for a leftover until now */
        if (flock(fd, LOCK_EX) != 0 ||
            (fstat(fd, &info) == 0 && info.st_nlink > 0)) {
            *file_out = zd_must(fdopen(fd, "w+"));
            setvbuf(*file_out, NULL, _IOFBF, BUFFER_BYTES);
            return ZD_OK;
        }
        close(fd);
    }
}

static enum zd_status fail_write(const struct cache_writer *writer)
{
    return ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", writer->temporary,
            strerror(errno));
}

static enum zd_status append(
        const struct cache_writer *writer, FILE *file, const void *data,
        size_t bytes)
{
    if (bytes && fwrite(data, 1, bytes, file) != bytes)
        return fail_write(writer);
    return ZD_OK;
}

enum zd_status cache_writer_create(
        const char *folder, const char *key, const char *name,
        const atomic_bool *stop, struct cache_writer **writer_out)
{
    char docs[PATH_MAX];
    const struct cache_header blank = {.magic = {0}};
    struct cache_writer *writer = zd_array(1, sizeof *writer);
    snprintf(writer->folder, sizeof writer->folder, "%s", folder);
    snprintf(writer->header.key, sizeof writer->header.key, "%s", key);
    memcpy(writer->header.magic, CACHE_MAGIC, sizeof writer->header.magic);
    writer->header.version = CACHE_VERSION;
    writer->stop = stop;
    cache_path(writer->path, folder, key);
    remove_leftovers(folder);
    writer->hasher = zd_must(hasher_create());
    enum zd_status status = create_temporary(
            writer->path, name, writer->temporary, &writer->words);
    if (status == ZD_OK)
        status = create_temporary(writer->path, NULL, docs, &writer->docs);
    if (status == ZD_OK) {
        unlink(docs);
        /* reserve the header, which is written last */
        status = append(writer, writer->words, &blank, sizeof blank);
    }
    if (status != ZD_OK) {
        cache_writer_abandon(writer);
        return status;
    }
    *writer_out = writer;
    return ZD_OK;
}

enum zd_status cache_writer_document(
        struct cache_writer *writer, uint64_t position)
{
    writer->header.doc_count++;
    return append(writer, writer->docs, &position, sizeof position);
}

enum zd_status cache_writer_words(
        struct cache_writer *writer, const uint32_t *words, size_t count)
{
    if (writer->stop && atomic_load(writer->stop))
        return ZD_FAIL(ZD_ERR_STOPPED, "E0446", "tokenizing was stopped");
    for (size_t i = 0; i < count; i++) {
        writer->header.trained_count += (words[i] & WORD_TRAIN) != 0;
        if (words[i] & WORD_FIRST)
            ZD_TRY(cache_writer_document(
                    writer, writer->header.word_count + i));
    }
    writer->header.word_count += count;
    hasher_update(writer->hasher, words, count * sizeof *words);
    return append(writer, writer->words, words, count * sizeof *words);
}

enum zd_status cache_writer_notes(
        struct cache_writer *writer, const struct row_notes *notes, bool keeps)
{
    writer->header.skipped_count = (uint64_t)notes->of[ROW_BAD].rows;
    return keeps ? row_notes_save(notes, writer->path) : ZD_OK;
}

/* Documents after the words. */
static enum zd_status copy_docs(struct cache_writer *writer, uint64_t tokens)
{
    char *chunk = zd_must(malloc(CHUNK));
    size_t bytes = 0;
    enum zd_status status =
            append(writer, writer->docs, &tokens, sizeof tokens);
    if (status == ZD_OK && fflush(writer->docs) != 0)
        status = fail_write(writer);
    rewind(writer->docs);
    while (status == ZD_OK && (bytes = fread(chunk, 1, CHUNK, writer->docs))) {
        hasher_update(writer->hasher, chunk, bytes);
        status = append(writer, writer->words, chunk, bytes);
    }
    if (status == ZD_OK && ferror(writer->docs))
        status = fail_write(writer);
    free(chunk);
    return status;
}

static enum zd_status write_header(struct cache_writer *writer, time_t now)
{
    writer->header.modified_s = now;
    hasher_finish(writer->hasher, writer->header.digest);
    cache_header_seal(&writer->header);
    if (fseeko(writer->words, 0, SEEK_SET) != 0)
        return fail_write(writer);
    ZD_TRY(append(
            writer, writer->words, &writer->header, sizeof writer->header));
    return fflush(writer->words) == 0 ? ZD_OK : fail_write(writer);
}

/* The file's time is made that of its header: a later change shows. */
static enum zd_status commit(struct cache_writer *writer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec = 0; /* which every file system can keep */
    ZD_TRY(write_header(writer, now.tv_sec));
    const struct timespec times[] = {now, now};
    if (futimens(fileno(writer->words), times) != 0 ||
        (writer->header.unit_count == 0 && fsync(fileno(writer->words)) != 0) ||
        rename(writer->temporary, writer->path) != 0) {
        ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write %s: %s", writer->path,
                strerror(errno));
        return zd_fail_help("set data.cache_dir to a folder of your own");
    }
    writer->temporary[0] = '\0';
    return fs_sync_dir(writer->folder);
}

/* Tell readers that no words will follow. */
static enum zd_status set_state(struct cache_writer *writer, uint32_t state)
{
    const struct cache_header header = {
            .reserved = state, .word_count = writer->header.word_count};
    if (fflush(writer->words) != 0)
        return fail_write(writer);
    return fs_pwrite(
            fileno(writer->words), writer->temporary, &header, sizeof header,
            0);
}

enum zd_status cache_writer_keep(
        struct cache_writer *writer, int64_t units,
        const struct row_notes *notes)
{
    cache_part_key(writer->header.key);
    cache_path(writer->path, writer->folder, writer->header.key);
    writer->header.unit_count = (uint64_t)units;
    return row_notes_save(notes, writer->path);
}

static enum zd_status copy_words(
        struct cache_writer *writer, struct token_cache *part)
{
    enum { WORDS = CHUNK / sizeof(uint32_t) };
    for (uint64_t at = 0; at < part->word_count; at += WORDS) {
        uint64_t left = part->word_count - at;
        size_t count = left < WORDS ? (size_t)left : WORDS;
        ZD_TRY(cache_writer_words(writer, part->words + at, count));
        token_cache_touch(part, CHUNK);
    }
    return ZD_OK;
}

enum zd_status cache_writer_resume(
        struct cache_writer *writer, const struct cache_limits *limits,
        int64_t *units_out, struct row_notes *notes)
{
    struct token_cache part;
    char key[sizeof writer->header.key];
    bool found;
    memcpy(key, writer->header.key, sizeof key);
    cache_part_key(key);
    *units_out = 0;
    ZD_TRY(token_cache_open(writer->folder, key, CACHE_TRUSTED, limits, &part));
    if (!part.map)
        return ZD_OK;
    enum zd_status status =
            token_cache_check(&part, limits, writer->stop, &found);
    if (status == ZD_OK && found) {
        zd_log_info(
                "%.1f million tokens are there, of a run that was stopped",
                (double)part.word_count / 1e6);
        status = copy_words(writer, &part);
    }
    if (status == ZD_OK && found) {
        *units_out = (int64_t)part.unit_count;
        row_notes_load(notes, part.path);
    }
    if (status == ZD_OK)
        unlink(part.path);
    token_cache_close(&part);
    return status;
}

void cache_writer_fail(
        struct cache_writer *writer, const struct zd_error *error)
{
    const struct zd_error copy = *error;
    if (writer->header.unit_count > 0) {
        cache_writer_finish(writer, 0);
        zd_error_set(&copy);
        return;
    }
    fflush(writer->words);
    if (fs_pwrite(
                fileno(writer->words), writer->temporary, &copy, sizeof copy,
                sizeof(struct cache_header) +
                        writer->header.word_count * sizeof(uint32_t)) == ZD_OK)
        set_state(writer, CACHE_FAILED);
    zd_error_set(&copy);
    cache_writer_abandon(writer);
}

enum zd_status cache_writer_finish(struct cache_writer *writer, uint64_t tokens)
{
    const uint32_t padding = 0;
    enum zd_status status = set_state(
            writer,
            writer->header.unit_count > 0 ? CACHE_STOPPED : CACHE_WHOLE);
    if (writer->header.word_count > 0)
        tokens = writer->header.word_count;
    if (status == ZD_OK && writer->header.word_count % 2) {
        hasher_update(writer->hasher, &padding, sizeof padding);
        status = append(writer, writer->words, &padding, sizeof padding);
    }
    if (status == ZD_OK)
        status = copy_docs(writer, tokens);
    if (status == ZD_OK)
        status = commit(writer);
    cache_writer_abandon(writer);
    return status;
}

void cache_writer_abandon(struct cache_writer *writer)
{
    if (!writer)
        return;
    if (writer->temporary[0] && writer->words)
        unlink(writer->temporary);
    if (writer->words)
        fclose(writer->words);
    if (writer->docs)
        fclose(writer->docs);
    hasher_destroy(writer->hasher);
    free(writer);
}

/* --- a file of the cache: found, or made ---------------------------------- */

static enum zd_status make(
        const struct cache_content *content, const char *folder,
        struct token_cache *cache_out)
{
    struct cache_writer *writer;
    ZD_TRY(cache_writer_create(folder, content->key, NULL, NULL, &writer));
    enum zd_status status = content->write(content->ctx, writer);
    if (status != ZD_OK) {
        cache_writer_abandon(writer);
        return status;
    }
    ZD_TRY(cache_writer_finish(writer, content->limits.tokens));
    ZD_TRY(token_cache_open(
            folder, content->key, CACHE_TRUSTED, &content->limits, cache_out));
    if (cache_out->map)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_IO, "E0446",
            "the data cache that was just made in %s is gone", folder);
    return zd_fail_help("where the file system gives files to another user: "
                        "data.cache_shared = true");
}

/* In a temporary folder, which is removed once the file is open. */
static enum zd_status make_unseen(
        const struct cache_content *content, struct token_cache *cache_out)
{
    char folder[PATH_MAX];
    const char *parent = getenv("TMPDIR");
    snprintf(
            folder, sizeof folder, "%s/zerod-validate-XXXXXX",
            parent && parent[0] == '/' ? parent : "/tmp");
    if (!mkdtemp(folder))
        return ZD_FAIL(
                ZD_ERR_CREATE, "E0446", "cannot create %s: %s", folder,
                strerror(errno));
    enum zd_status status = make(content, folder, cache_out);
    if (cache_out->path)
        unlink(cache_out->path);
    rmdir(folder);
    return status;
}

enum zd_status cache_obtain(
        const struct dataset_request *request,
        const struct cache_content *content, struct token_cache *cache_out)
{
    char folder[PATH_MAX];
    const struct data_options *options = request->options;
    struct cache_content here = *content;
    here.limits.is_shared = options->cache_shared;
    ZD_TRY(token_cache_folder(options->cache_dir, folder));
    ZD_TRY(token_cache_open(
            folder, here.key,
            request->depth == DATA_TRUST ? CACHE_TRUSTED : CACHE_TIMES,
            &here.limits, cache_out));
    if (cache_out->map || !here.write)
        return ZD_OK;
    return request->depth == DATA_LOOK ? make_unseen(&here, cache_out)
                                       : make(&here, folder, cache_out);
}
