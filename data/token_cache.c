#include "data/token_cache.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "data/corpus.h"
#include "data/tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10, CHUNK = 1 << 20 };

enum zd_status token_cache_folder(const char *option, char folder[PATH_MAX])
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (option && *option && strcmp(option, "auto") != 0) {
        length = snprintf(folder, PATH_MAX, "%s", option);
    } else if (xdg && xdg[0] == '/') {
        length = snprintf(folder, PATH_MAX, "%s/zerod", xdg);
    } else {
        const struct passwd *user = getpwuid(getuid());
        if (user && (!home || home[0] != '/'))
            home = user->pw_dir;
        length =
                snprintf(folder, PATH_MAX, "%s/.cache/zerod", home ? home : "");
    }
    enum zd_status status =
            length < PATH_MAX
                    ? fs_make_dirs(folder)
                    : ZD_FAIL(ZD_ERR_CREATE, "E0446",
                              "the path of the data cache is too long");
    if (status != ZD_OK)
        zd_fail_help("set data.cache_dir to a folder that can be written");
    return status;
}

void cache_path(char path[PATH_MAX], const char *folder, const char *key)
{
    char name[64];
    ZD_PRINT(name, "%s.tokens", key);
    fs_join(path, PATH_MAX, folder, name);
}

void cache_header_seal(struct cache_header *header)
{
    hash_bytes(
            header, offsetof(struct cache_header, header_digest),
            header->header_digest);
}

/* Of what a stopped writer of this key has left. */
static void cache_part_key(char key[40])
{
    strcpy(key + strlen(key), ".part");
}

/* Does the header belong to this key and describe a file of `bytes` bytes? */
static bool is_sound(
        const struct cache_header *header, const char *key, uint64_t bytes)
{
    struct cache_header copy = *header;
    const uint64_t limit = UINT64_C(1) << 56;
    memset(copy.header_digest, 0, sizeof copy.header_digest);
    cache_header_seal(&copy);
    return memcmp(&copy, header, sizeof copy) == 0 &&
           memcmp(header->magic, CACHE_MAGIC, sizeof header->magic) == 0 &&
           header->version == CACHE_VERSION && strcmp(header->key, key) == 0 &&
           header->word_count < limit && header->doc_count < limit &&
           bytes == cache_docs_offset(header->word_count) +
                            (header->doc_count + 1) * sizeof(uint64_t);
}

/* The words of a file as they are read: are they some that we would have
 * written, and do documents begin where the list says? */
struct check {
    const struct token_cache *cache;
    uint64_t trained, documents; /* so far */
    bool is_sound;
};

static void check_words(
        struct check *check, const uint32_t *words, uint64_t begin,
        size_t count)
{
    const struct token_cache *cache = check->cache;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = begin + i, document = check->documents;
        uint32_t marks = words[i] & (WORD_FIRST | WORD_TRAIN);
        if (at == cache->header.word_count) /* padding */
            check->is_sound &= words[i] == 0;
        else
            check->is_sound &= (words[i] & WORD_ID) < cache->limits.ids &&
                               marks != (WORD_FIRST | WORD_TRAIN);
        check->trained += marks == WORD_TRAIN;
        if (marks != WORD_FIRST)
            continue;
        check->is_sound &= document < cache->header.doc_count &&
                           cache->docs[document] == at;
        check->documents++;
    }
}

/* Read it whole, until *stop, which says nothing against it. */
static enum zd_status check_content(
        const struct token_cache *cache, const atomic_bool *stop,
        bool *sound_out)
{
    struct check check = {.cache = cache, .is_sound = true};
    char digest[HASH_HEX];
    struct hasher *hasher = hasher_create();
    ZD_FREED char *chunk = zd_must(malloc(CHUNK));
    uint64_t words = sizeof(struct cache_header), at = words;
    uint64_t docs = cache_docs_offset(cache->header.word_count);
    enum zd_status status = ZD_OK;
    while (at < cache->map_bytes && !(stop && atomic_load(stop))) {
        uint64_t left = (at < docs ? docs : cache->map_bytes) - at;
        size_t part = left < CHUNK ? (size_t)left : CHUNK;
        status = fs_pread(cache->fd, cache->path, chunk, part, at);
        if (status != ZD_OK)
            break;
        hasher_update(hasher, chunk, part);
        if (at < docs)
            check_words(
                    &check, (const uint32_t *)chunk,
                    (at - words) / sizeof(uint32_t), part / sizeof(uint32_t));
        at += part;
    }
    hasher_finish(hasher, digest);
    *sound_out = at < cache->map_bytes ||
                 (check.is_sound &&
                  memcmp(digest, cache->header.digest, sizeof digest) == 0 &&
                  check.trained == cache->header.trained_count &&
                  (cache->limits.tokens ||
                   check.documents == cache->header.doc_count));
    return status;
}

/* Documents begin in ascending order, and the list ends with the stream. */
static bool has_order(const struct token_cache *cache)
{
    uint64_t tokens = cache->limits.tokens;
    uint64_t end = tokens ? tokens : cache->header.word_count;
    for (uint64_t i = 0; i < cache->header.doc_count; i++)
        if (cache->docs[i] > cache->docs[i + 1])
            return false;
    return cache->docs[cache->header.doc_count] == end;
}

static bool is_foreign(const struct stat *info)
{
    return info->st_uid != geteuid() && info->st_uid != 0;
}

/* Map the file that cache->fd is open for, and whose header was read. */
static enum zd_status map_file(struct token_cache *cache, size_t bytes)
{
    char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, cache->fd, 0);
    if (map == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "cannot map %s: %s", cache->path,
                strerror(errno));
    /* samples are taken in random order: reading ahead would only fill memory
     */
    madvise(map, bytes, MADV_RANDOM);
    cache->map = map;
    cache->map_bytes = bytes;
    cache->words = (const uint32_t *)(map + sizeof cache->header);
    cache->docs =
            (const uint64_t
                     *)(map + cache_docs_offset(cache->header.word_count));
    return ZD_OK;
}

/* *sound_out: it is the file of `key`, and may be used. */
static enum zd_status take_file(
        struct token_cache *cache, const char *key, const struct stat *info,
        bool *sound_out)
{
    struct cache_header *header = &cache->header;
    size_t bytes = (size_t)info->st_size;
    *sound_out = false;
    if (bytes < sizeof *header)
        return ZD_OK;
    ZD_TRY(fs_pread(cache->fd, cache->path, header, sizeof *header, 0));
    if (!is_sound(header, key, bytes))
        return ZD_OK;
    ZD_TRY(map_file(cache, bytes));
    *sound_out = has_order(cache);
    bool has_its_time = header->modified_s != 0 &&
                        info->st_mtim.tv_sec == header->modified_s &&
                        info->st_mtim.tv_nsec == 0;
    if (*sound_out &&
        (is_foreign(info) || (cache->limits.is_by_time && !has_its_time)))
        return check_content(cache, NULL, sound_out);
    return ZD_OK;
}

enum zd_status token_cache_open(
        const char *folder, const char *key, const struct cache_limits *limits,
        struct token_cache *cache_out)
{
    char path[PATH_MAX];
    struct stat info = {.st_size = 0};
    int fd;
    bool is_sound = false;
    *cache_out = (struct token_cache){0};
    cache_path(path, folder, key);
    if (!fs_exists(path))
        return ZD_OK;
    ZD_TRY(fs_open_read(path, &fd, NULL));
    ZD_SCOPED(token_cache_close)
    struct token_cache cache = {
            .limits = *limits, .path = zd_must(strdup(path)), .fd = fd};
    fstat(fd, &info);
    if (is_foreign(&info) && !limits->is_shared) {
        zd_log_warning(
                "%s is not used: it belongs to user %u, who could have put "
                "other tokens there; data.cache_shared = true uses it",
                path, (unsigned)info.st_uid);
        return ZD_OK;
    }
    ZD_TRY(take_file(&cache, key, &info, &is_sound));
    if (is_sound)
        *cache_out = ZD_TAKE(cache);
    else
        zd_log_warning("%s is damaged and is made again", path);
    return ZD_OK;
}

enum zd_status token_cache_check(
        const struct token_cache *cache, const atomic_bool *stop,
        bool *is_sound_out)
{
    ZD_TRY(check_content(cache, stop, is_sound_out));
    if (!*is_sound_out)
        futimens(cache->fd, NULL); /* now */
    return ZD_OK;
}

void token_cache_close(struct token_cache *cache)
{
    if (cache->path)
        close(cache->fd);
    if (cache->map)
        munmap(cache->map, cache->map_bytes);
    free(cache->path);
    memset(cache, 0, sizeof *cache);
}

void token_cache_touch(struct token_cache *cache, size_t bytes)
{
    enum { DROP_BYTES = 4 << 20, FAULT_BYTES = 64 << 10 };
    /* the kernel maps the pages around one that is touched as well */
    cache->touched_bytes += bytes + FAULT_BYTES;
    if (cache->touched_bytes <= DROP_BYTES || !cache->map)
        return;
    madvise(cache->map, cache->map_bytes, MADV_DONTNEED);
    cache->touched_bytes = 0;
}

/* --- the writer ------------------------------------------------------------
 */

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
    const struct fs_path pattern = fs_in(folder, "*.tokens.tmp-*");
    glob_t found = {0};
    if (glob(pattern.text, GLOB_NOSORT, NULL, &found) == 0)
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

static enum zd_status fail_write(const struct cache_writer *w)
{
    return ZD_FAIL(
            ZD_ERR_IO, "E0707", "cannot write %s: %s", w->temporary,
            strerror(errno));
}

static enum zd_status append(
        const struct cache_writer *w, FILE *file, const void *data,
        size_t bytes)
{
    if (bytes && fwrite(data, 1, bytes, file) != bytes)
        return fail_write(w);
    return ZD_OK;
}

enum zd_status cache_writer_create(
        const char *folder, const char *key, const char *name,
        const atomic_bool *stop, struct cache_writer **writer_out)
{
    char docs[PATH_MAX];
    const struct cache_header blank = {.magic = {0}};
    struct cache_writer *w = zd_array(1, sizeof *w);
    ZD_PRINT(w->folder, "%s", folder);
    ZD_PRINT(w->header.key, "%s", key);
    memcpy(w->header.magic, CACHE_MAGIC, sizeof w->header.magic);
    w->header.version = CACHE_VERSION;
    w->stop = stop;
    cache_path(w->path, folder, key);
    remove_leftovers(folder);
    w->hasher = hasher_create();
    enum zd_status status =
            create_temporary(w->path, name, w->temporary, &w->words);
    ZD_THEN(status, create_temporary(w->path, NULL, docs, &w->docs));
    if (status == ZD_OK) {
        unlink(docs);
        /* reserve the header, which is written last */
        status = append(w, w->words, &blank, sizeof blank);
    }
    if (status == ZD_OK)
        *writer_out = w;
    else
        cache_writer_abandon(w);
    return status;
}

enum zd_status cache_writer_document(struct cache_writer *w, uint64_t position)
{
    w->header.doc_count++;
    return append(w, w->docs, &position, sizeof position);
}

enum zd_status cache_writer_words(
        struct cache_writer *w, const uint32_t *words, size_t count)
{
    if (w->stop && atomic_load(w->stop))
        return ZD_FAIL(ZD_ERR_STOPPED, "E0446", "tokenizing was stopped");
    for (size_t i = 0; i < count; i++) {
        w->header.trained_count += (words[i] & WORD_TRAIN) != 0;
        if (words[i] & WORD_FIRST)
            ZD_TRY(cache_writer_document(w, w->header.word_count + i));
    }
    w->header.word_count += count;
    hasher_update(w->hasher, words, count * sizeof *words);
    return append(w, w->words, words, count * sizeof *words);
}

enum zd_status cache_writer_notes(
        struct cache_writer *w, const struct row_notes *notes, bool keeps)
{
    w->header.skipped_count = (uint64_t)notes->of[ROW_BAD].rows;
    return keeps ? row_notes_save(notes, w->path) : ZD_OK;
}

/* Documents after the words. */
static enum zd_status copy_docs(struct cache_writer *w, uint64_t tokens)
{
    ZD_FREED char *chunk = zd_must(malloc(CHUNK));
    size_t bytes;
    ZD_TRY(append(w, w->docs, &tokens, sizeof tokens));
    if (fflush(w->docs) != 0)
        return fail_write(w);
    rewind(w->docs);
    while ((bytes = fread(chunk, 1, CHUNK, w->docs))) {
        hasher_update(w->hasher, chunk, bytes);
        ZD_TRY(append(w, w->words, chunk, bytes));
    }
    return ferror(w->docs) ? fail_write(w) : ZD_OK;
}

static enum zd_status write_header(struct cache_writer *w, time_t now)
{
    w->header.modified_s = now;
    hasher_finish(w->hasher, w->header.digest);
    w->hasher = NULL;
    cache_header_seal(&w->header);
    if (fseeko(w->words, 0, SEEK_SET) != 0)
        return fail_write(w);
    ZD_TRY(append(w, w->words, &w->header, sizeof w->header));
    return fflush(w->words) == 0 ? ZD_OK : fail_write(w);
}

/* The file's time is made that of its header: a later change shows. */
static enum zd_status commit(struct cache_writer *w)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec = 0; /* which every file system can keep */
    ZD_TRY(write_header(w, now.tv_sec));
    const struct timespec times[] = {now, now};
    if (futimens(fileno(w->words), times) != 0 ||
        (w->header.unit_count == 0 && fsync(fileno(w->words)) != 0) ||
        rename(w->temporary, w->path) != 0) {
        ZD_FAIL(ZD_ERR_IO, "E0707", "cannot write %s: %s", w->path,
                strerror(errno));
        return zd_fail_help("set data.cache_dir to a folder of your own");
    }
    w->temporary[0] = '\0';
    return fs_sync_dir(w->folder);
}

/* Tell readers that no words will follow. */
static enum zd_status set_state(struct cache_writer *w, uint32_t state)
{
    const struct cache_header header = {
            .reserved = state, .word_count = w->header.word_count};
    if (fflush(w->words) != 0)
        return fail_write(w);
    return fs_pwrite(fileno(w->words), w->temporary, &header, sizeof header, 0);
}

enum zd_status cache_writer_keep(
        struct cache_writer *w, int64_t units, const struct row_notes *notes)
{
    cache_part_key(w->header.key);
    cache_path(w->path, w->folder, w->header.key);
    w->header.unit_count = (uint64_t)units;
    return row_notes_save(notes, w->path);
}

static enum zd_status copy_words(
        struct cache_writer *w, struct token_cache *part)
{
    enum { WORDS = CHUNK / sizeof(uint32_t) };
    for (uint64_t at = 0; at < part->header.word_count; at += WORDS) {
        uint64_t left = part->header.word_count - at;
        size_t count = left < WORDS ? (size_t)left : WORDS;
        ZD_TRY(cache_writer_words(w, part->words + at, count));
        token_cache_touch(part, CHUNK);
    }
    return ZD_OK;
}

enum zd_status cache_writer_resume(
        struct cache_writer *w, const struct cache_limits *limits,
        int64_t *units_out, struct row_notes *notes)
{
    ZD_SCOPED(token_cache_close) struct token_cache part = {0};
    char key[sizeof w->header.key];
    bool found;
    memcpy(key, w->header.key, sizeof key);
    cache_part_key(key);
    *units_out = 0;
    ZD_TRY(token_cache_open(w->folder, key, limits, &part));
    if (!part.map)
        return ZD_OK;
    ZD_TRY(token_cache_check(&part, w->stop, &found));
    if (found) {
        zd_log_info(
                "%.1f million tokens are there, of a run that was stopped",
                (double)part.header.word_count / 1e6);
        ZD_TRY(copy_words(w, &part));
        *units_out = (int64_t)part.header.unit_count;
        row_notes_load(notes, part.path);
    }
    unlink(part.path);
    return ZD_OK;
}

void cache_writer_fail(struct cache_writer *w, const struct zd_error *error)
{
    const struct zd_error copy = *error;
    if (w->header.unit_count > 0) {
        cache_writer_finish(w, 0);
        zd_error_set(&copy);
        return;
    }
    fflush(w->words);
    if (fs_pwrite(
                fileno(w->words), w->temporary, &copy, sizeof copy,
                sizeof(struct cache_header) +
                        w->header.word_count * sizeof(uint32_t)) == ZD_OK)
        set_state(w, CACHE_FAILED);
    zd_error_set(&copy);
    cache_writer_abandon(w);
}

enum zd_status cache_writer_finish(struct cache_writer *w, uint64_t tokens)
{
    const uint32_t padding = 0;
    enum zd_status status = set_state(
            w, w->header.unit_count > 0 ? CACHE_STOPPED : CACHE_WHOLE);
    if (w->header.word_count > 0)
        tokens = w->header.word_count;
    if (status == ZD_OK && w->header.word_count % 2) {
        hasher_update(w->hasher, &padding, sizeof padding);
        status = append(w, w->words, &padding, sizeof padding);
    }
    ZD_THEN(status, copy_docs(w, tokens));
    ZD_THEN(status, commit(w));
    cache_writer_abandon(w);
    return status;
}

void cache_writer_abandon(struct cache_writer *w)
{
    if (!w)
        return;
    if (w->temporary[0] && w->words)
        unlink(w->temporary);
    if (w->words)
        fclose(w->words);
    if (w->docs)
        fclose(w->docs);
    hasher_destroy(w->hasher);
    free(w);
}

/* --- a file of the cache: found, or made ---------------------------------- */

static enum zd_status make(
        const struct cache_content *content, const char *folder,
        struct token_cache *cache_out)
{
    struct cache_writer *w;
    ZD_TRY(cache_writer_create(folder, content->key, NULL, NULL, &w));
    enum zd_status status = content->write(content->ctx, w);
    if (status != ZD_OK) {
        cache_writer_abandon(w);
        return status;
    }
    ZD_TRY(cache_writer_finish(w, content->limits.tokens));
    ZD_TRY(token_cache_open(folder, content->key, &content->limits, cache_out));
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
    ZD_PRINT(
            folder, "%s/zerod-validate-XXXXXX",
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
    here.limits.is_by_time = request->depth != DATA_TRUST;
    ZD_TRY(token_cache_folder(options->cache_dir, folder));
    ZD_TRY(token_cache_open(folder, here.key, &here.limits, cache_out));
    here.limits.is_by_time = false; /* of what has just been made */
    if (cache_out->map || !here.write)
        return ZD_OK;
    return request->depth == DATA_LOOK ? make_unseen(&here, cache_out)
                                       : make(&here, folder, cache_out);
}
