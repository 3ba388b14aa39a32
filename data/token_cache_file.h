/* token_cache_file.h - the layout of a cache file, for its reader and writer.
 */
#ifndef ZD_DATA_TOKEN_CACHE_FILE_H
#define ZD_DATA_TOKEN_CACHE_FILE_H

#include "base/file/hash.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_MAGIC "ZDTOKENS"
enum { CACHE_VERSION = 1 };

/* In `reserved` of a header without its magic: growth.h. */
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

static inline uint64_t cache_docs_offset(uint64_t word_count)
{
    return sizeof(struct cache_header) + (word_count + 1) / 2 * 8;
}

void cache_header_seal(struct cache_header *header);
/* Of what a stopped writer of this key has left. */
void cache_part_key(char key[40]);
void cache_path(char path[PATH_MAX], const char *folder, const char *key);

#endif
