#include "data/token_cache.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "data/tokenize.h"

#include <errno.h>
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

void cache_part_key(char key[40])
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
    uint64_t ids;                /* of the vocabulary */
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
            check->is_sound &= (words[i] & WORD_ID) < check->ids &&
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
    enum { CHUNK = 1 << 20 };
    struct check check = {
            .cache = cache, .ids = cache->limits.ids, .is_sound = true};
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
