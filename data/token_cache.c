#include "data/token_cache.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "data/token_cache_file.h"
#include "data/tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum zd_status token_cache_folder(const char *option, char folder[PATH_MAX])
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (option && *option && strcmp(option, "auto") != 0) {
        length = snprintf(folder, PATH_MAX, "%s", option);
    } else if (xdg && xdg[0] == '/') {
        length = snprintf(folder, PATH_MAX, "%s/zerod", xdg);
    } else {
        const struct passwd *user = NULL;
        if (!home || home[0] != '/')
            user = getpwuid(getuid());
        length = snprintf(
                folder, PATH_MAX, "%s/.cache/zerod",
                user   ? user->pw_dir
                : home ? home
                       : "");
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
    snprintf(name, sizeof name, "%s.tokens", key);
    fs_join(path, PATH_MAX, folder, name);
}

void cache_header_seal(struct cache_header *header)
{
    hash_bytes(
            header, offsetof(struct cache_header, header_digest),
            header->header_digest);
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

/* Everything in a file, as it is read: its digest, and whether the words are
 * some that we would have written. */
struct check {
    const struct cache_header *header;
    const struct cache_limits *limits;
    struct hasher *all;
    struct hasher *firsts,
            *docs; /* where documents begin, by the words and by the list */
    uint64_t trained;
    bool is_sound;
    const atomic_bool *stop; /* NULL: never */
};

static void check_words(
        struct check *check, const uint32_t *words, uint64_t begin,
        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t at = begin + i;
        uint32_t marks = words[i] & (WORD_FIRST | WORD_TRAIN);
        if (at == check->header->word_count) { /* padding */
            check->is_sound = check->is_sound && words[i] == 0;
            continue;
        }
        check->is_sound = check->is_sound &&
                          (words[i] & WORD_ID) < check->limits->ids &&
                          marks != (WORD_FIRST | WORD_TRAIN);
        check->trained += marks == WORD_TRAIN;
        if (marks == WORD_FIRST)
            hasher_update(check->firsts, &at, sizeof at);
    }
}

/* `bytes` of the file from `at` on, words or documents. */
static void check_piece(
        struct check *check, const void *piece, uint64_t at, size_t bytes)
{
    const struct cache_header *header = check->header;
    uint64_t docs = cache_docs_offset(header->word_count);
    uint64_t end = docs + header->doc_count * sizeof(uint64_t);
    hasher_update(check->all, piece, bytes);
    if (at < docs)
        check_words(
                check, piece, (at - sizeof *header) / sizeof(uint32_t),
                bytes / sizeof(uint32_t));
    else if (at < end)
        hasher_update(
                check->docs, piece,
                end - at < bytes ? (size_t)(end - at) : bytes);
}

static enum zd_status read_all(
        struct check *check, int fd, const char *path, uint64_t bytes)
{
    enum { CHUNK = 1 << 20 };
    enum zd_status status = ZD_OK;
    uint64_t docs = cache_docs_offset(check->header->word_count);
    void *chunk = zd_must(malloc(CHUNK));
    for (uint64_t at = sizeof *check->header; at < bytes && status == ZD_OK;) {
        if (check->stop && atomic_load(check->stop))
            break;
        uint64_t end = at < docs ? docs : bytes;
        size_t part = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        status = fs_pread(fd, path, chunk, part, at);
        if (status == ZD_OK)
            check_piece(check, chunk, at, part);
        at += part;
    }
    free(chunk);
    return status;
}

static enum zd_status check_content(
        int fd, const char *path, const struct cache_header *header,
        const struct cache_limits *limits, uint64_t bytes,
        const atomic_bool *stop, bool *sound_out)
{
    char all[HASH_HEX], firsts[HASH_HEX], docs[HASH_HEX];
    struct check check = {
            .header = header,
            .limits = limits,
            .all = zd_must(hasher_create()),
            .firsts = zd_must(hasher_create()),
            .docs = zd_must(hasher_create()),
            .is_sound = true,
            .stop = stop};
    enum zd_status status = read_all(&check, fd, path, bytes);
    hasher_finish(check.all, all);
    hasher_finish(check.firsts, firsts);
    hasher_finish(check.docs, docs);
    *sound_out = check.is_sound && strcmp(all, header->digest) == 0 &&
                 check.trained == header->trained_count &&
                 (limits->tokens || strcmp(firsts, docs) == 0);
    hasher_destroy(check.all);
    hasher_destroy(check.firsts);
    hasher_destroy(check.docs);
    return status;
}

/* Documents begin in ascending order, and the list ends with the stream. */
static bool has_order(
        const struct token_cache *cache, const struct cache_limits *limits)
{
    uint64_t end = limits->tokens ? limits->tokens : cache->word_count;
    for (uint64_t i = 0; i < cache->doc_count; i++)
        if (cache->docs[i] > cache->docs[i + 1])
            return false;
    return cache->docs[cache->doc_count] == end;
}

static bool is_foreign(const struct stat *info)
{
    return info->st_uid != geteuid() && info->st_uid != 0;
}

static bool has_its_time(
        const struct cache_header *header, const struct stat *info)
{
    return header->modified_s != 0 &&
           info->st_mtim.tv_sec == header->modified_s &&
           info->st_mtim.tv_nsec == 0;
}

static enum zd_status map_file(
        int fd, const char *path, const struct cache_header *header,
        const struct stat *info, struct token_cache *cache)
{
    size_t bytes = (size_t)info->st_size;
    char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "cannot map %s: %s", path,
                strerror(errno));
    /* samples are taken in random order: reading ahead would only fill memory
     */
    madvise(map, bytes, MADV_RANDOM);
    *cache = (struct token_cache){
            .path = zd_must(strdup(path)),
            .device = info->st_dev,
            .inode = info->st_ino,
            .map = map,
            .map_bytes = bytes,
            .words = (const uint32_t *)(map + sizeof *header),
            .docs = (const uint64_t
                             *)(map + cache_docs_offset(header->word_count)),
            .word_count = header->word_count,
            .doc_count = header->doc_count,
            .trained_count = header->trained_count,
    };
    memcpy(cache->digest, header->digest, sizeof cache->digest);
    return ZD_OK;
}

enum zd_status token_cache_open(
        const char *folder, const char *key, enum cache_check check,
        const struct cache_limits *limits, struct token_cache *cache_out,
        bool *found_out)
{
    char path[PATH_MAX];
    struct cache_header header;
    struct stat info = {.st_size = 0};
    uint64_t bytes;
    bool sound = false;
    int fd;
    *found_out = false;
    cache_path(path, folder, key);
    if (!fs_exists(path))
        return ZD_OK;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    enum zd_status status = ZD_OK;
    if (fstat(fd, &info) == 0 && bytes >= sizeof header) {
        status = fs_pread(fd, path, &header, sizeof header, 0);
        sound = status == ZD_OK && is_sound(&header, key, bytes);
    }
    if (status == ZD_OK && is_foreign(&info) && !limits->is_shared) {
        zd_log_warning(
                "%s is not used: it belongs to user %u, who could have put "
                "other tokens there; data.cache_shared = true uses it",
                path, (unsigned)info.st_uid);
        close(fd);
        return ZD_OK;
    }
    bool whole =
            check == CACHE_WHOLE || is_foreign(&info) ||
            (check == CACHE_TIMES && sound && !has_its_time(&header, &info));
    if (sound && whole)
        status = check_content(fd, path, &header, limits, bytes, NULL, &sound);
    if (status == ZD_OK && sound)
        status = map_file(fd, path, &header, &info, cache_out);
    if (status == ZD_OK && sound && !has_order(cache_out, limits)) {
        token_cache_close(cache_out);
        sound = false;
    }
    *found_out = status == ZD_OK && sound;
    if (status == ZD_OK && !sound)
        zd_log_warning("%s is damaged and is made again", path);
    close(fd);
    return status;
}

enum zd_status token_cache_check(
        const struct token_cache *cache, const struct cache_limits *limits,
        const atomic_bool *stop, bool *is_sound_out)
{
    struct cache_header header;
    struct stat info;
    bool sound = true;
    int fd;
    *is_sound_out = true;
    ZD_TRY(fs_open_read(cache->path, &fd, NULL));
    bool is_it = fstat(fd, &info) == 0 && info.st_dev == cache->device &&
                 info.st_ino == cache->inode &&
                 (size_t)info.st_size == cache->map_bytes;
    enum zd_status status = ZD_OK;
    if (is_it)
        status = fs_pread(fd, cache->path, &header, sizeof header, 0);
    if (is_it && status == ZD_OK)
        status = check_content(
                fd, cache->path, &header, limits, cache->map_bytes, stop,
                &sound);
    if (atomic_load(stop))
        sound = true; /* it was not read to its end */
    if (status == ZD_OK && !sound) {
        utimensat(AT_FDCWD, cache->path, NULL, 0); /* now */
        *is_sound_out = false;
    }
    close(fd);
    return status;
}

void token_cache_close(struct token_cache *cache)
{
    free(cache->path);
    if (cache->map)
        munmap(cache->map, cache->map_bytes);
    memset(cache, 0, sizeof *cache);
}

void token_cache_drop_pages(const struct token_cache *cache)
{
    if (cache->map)
        madvise(cache->map, cache->map_bytes, MADV_DONTNEED);
}
