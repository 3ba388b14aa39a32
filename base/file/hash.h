/* hash.h - 128-bit xxh3 digests as 32 hexadecimal characters (the canonical
 * big-endian form that `xxhsum -H2` prints). */
#pragma once

#include "base/status.h"

#include <stdint.h>

enum { HASH_HEX = 33 };

struct hasher; /* streaming */
struct hasher *hasher_create(void);
void hasher_update(struct hasher *hasher, const void *data, size_t bytes);
void hasher_string(struct hasher *hasher, const char *text); /* with its NUL */
/* The digest; the hasher is freed. */
void hasher_finish(struct hasher *hasher, char hex[HASH_HEX]);
void hasher_destroy(struct hasher *hasher);

/* 64-bit xxh3. */
uint64_t hash_64(const void *data, size_t bytes, uint64_t seed);

/* Of a part of an open file; errors name `path`. */
enum zd_status hash_part(
        int fd, const char *path, uint64_t begin, uint64_t bytes,
        char hex[HASH_HEX]);
void hash_bytes(const void *data, size_t bytes, char hex[HASH_HEX]);
enum zd_status hash_file(
        const char *path, char hex[HASH_HEX], uint64_t *bytes_out);
