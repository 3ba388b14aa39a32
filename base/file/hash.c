#include "base/file/hash.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static void to_hex(XXH128_hash_t hash, char hex[HASH_HEX])
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[canonical.digest[i] >> 4];
        hex[2 * i + 1] = digits[canonical.digest[i] & 15];
    }
    hex[HASH_HEX - 1] = '\0';
}

struct hasher *hasher_create(void)
{
    /* the library aligns its own state; ours is that state under our name */
    XXH3_state_t *state = zd_must(XXH3_createState());
    XXH3_128bits_reset(state);
    return (struct hasher *)state;
}

void hasher_update(struct hasher *hasher, const void *data, size_t bytes)
{
    XXH3_128bits_update((XXH3_state_t *)hasher, data, bytes);
}

void hasher_string(struct hasher *hasher, const char *text)
{
    hasher_update(hasher, text, strlen(text) + 1);
}

void hasher_finish(struct hasher *hasher, char hex[HASH_HEX])
{
    to_hex(XXH3_128bits_digest((XXH3_state_t *)hasher), hex);
    hasher_destroy(hasher);
}

void hasher_destroy(struct hasher *hasher)
{
    if (hasher)
        XXH3_freeState((XXH3_state_t *)hasher);
}

void hash_bytes(const void *data, size_t bytes, char hex[HASH_HEX])
{
    to_hex(XXH3_128bits(data, bytes), hex);
}

enum zd_status hash_part(
        int fd, const char *path, uint64_t begin, uint64_t bytes,
        char hex[HASH_HEX])
{
    enum { CHUNK = 1 << 20 };
    struct hasher *hasher = hasher_create();
    ZD_FREED char *chunk = zd_must(malloc(CHUNK));
    enum zd_status status = ZD_OK;
    for (uint64_t done = 0; status == ZD_OK && done < bytes; done += CHUNK) {
        size_t part = bytes - done < CHUNK ? (size_t)(bytes - done) : CHUNK;
        status = fs_pread(fd, path, chunk, part, begin + done);
        if (status == ZD_OK)
            hasher_update(hasher, chunk, part);
    }
    hasher_finish(hasher, hex);
    return status;
}

enum zd_status hash_file(
        const char *path, char hex[HASH_HEX], uint64_t *bytes_out)
{
    uint64_t bytes = 0;
    int fd;
    ZD_TRY(fs_open_read(path, &fd, &bytes));
    enum zd_status status = hash_part(fd, path, 0, bytes, hex);
    if (bytes_out)
        *bytes_out = bytes;
    close(fd);
    return status;
}

uint64_t hash_64(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
