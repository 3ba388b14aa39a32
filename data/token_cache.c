#include "data/token_cache.h"

#include "base/file/fs.h"
#include "base/log.h"
#include "data/token_cache_file.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static enum zd_status check_digest(
        int fd, const char *path, const struct cache_header *header,
        uint64_t bytes, bool *sound_out)
{
    enum { CHUNK = 1 << 20 };
    char hex[HASH_HEX];
    struct hasher *hasher = hasher_create();
    char *chunk = malloc(CHUNK);
    enum zd_status status = hasher && chunk
                                    ? ZD_OK
                                    : ZD_FAIL(ZD_ERR_MEMORY, "E0602",
                                              "out of memory reading %s", path);
    for (uint64_t at = sizeof *header; at < bytes && status == ZD_OK;) {
        size_t part = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        status = fs_pread(fd, path, chunk, part, at);
        if (status == ZD_OK)
            hasher_update(hasher, chunk, part);
        at += part;
    }
    if (status == ZD_OK) {
        hasher_finish(hasher, hex);
        *sound_out = strcmp(hex, header->digest) == 0;
    }
    free(chunk);
    hasher_destroy(hasher);
    return status;
}

static enum zd_status map_file(
        int fd, const char *path, const struct cache_header *header,
        uint64_t bytes, struct token_cache *cache)
{
    char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602", "cannot map %s: %s", path,
                strerror(errno));
    /* samples are taken in random order: reading ahead would only fill memory
     */
    madvise(map, bytes, MADV_RANDOM);
    *cache = (struct token_cache){
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
        const char *folder, const char *key, bool verify,
        struct token_cache *cache_out, bool *found_out)
{
    char path[PATH_MAX];
    struct cache_header header;
    uint64_t bytes;
    bool sound = false;
    int fd;
    *found_out = false;
    cache_path(path, folder, key);
    if (!fs_exists(path))
        return ZD_OK;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    enum zd_status status = ZD_OK;
    if (bytes >= sizeof header) {
        status = fs_pread(fd, path, &header, sizeof header, 0);
        sound = status == ZD_OK && is_sound(&header, key, bytes);
    }
    if (sound && verify)
        status = check_digest(fd, path, &header, bytes, &sound);
    if (status == ZD_OK && sound) {
        status = map_file(fd, path, &header, bytes, cache_out);
        *found_out = status == ZD_OK;
    } else if (status == ZD_OK) {
        zd_log_warning("%s is damaged and is made again", path);
    }
    close(fd);
    return status;
}

void token_cache_close(struct token_cache *cache)
{
    if (cache->map)
        munmap(cache->map, cache->map_bytes);
    memset(cache, 0, sizeof *cache);
}

void token_cache_drop_pages(const struct token_cache *cache)
{
    if (cache->map)
        madvise(cache->map, cache->map_bytes, MADV_DONTNEED);
}
