#include "base/file/hash.h"
#include "tests/support/scratch_suite.h"

/* What `xxhsum -H2` prints for these. */
static const char empty_digest[] = "99aa06d3014798d86001c324468d497f";
static const char abc_digest[] = "06b05ab6733a618578af5f94892f3950";

Test(hash, known_answers)
{
    char hex[HASH_HEX];
    hash_bytes("", 0, hex);
    cr_expect_str_eq(hex, empty_digest);
    hash_bytes("abc", 3, hex);
    cr_expect_str_eq(hex, abc_digest);
}

Test(hash, streaming_equals_whole)
{
    char data[5000], whole[HASH_HEX], parts[HASH_HEX];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    hash_bytes(data, sizeof data, whole);
    struct hasher *hasher = hasher_create();
    cr_assert_not_null(hasher);
    for (size_t at = 0, part = 1; at < sizeof data;
         at += part, part = part * 2 + 1) {
        if (part > sizeof data - at)
            part = sizeof data - at;
        hasher_update(hasher, data + at, part);
    }
    hasher_finish(hasher, parts);
    hasher_destroy(NULL);
    cr_expect_str_eq(parts, whole);
}

Test(hash, digest_of_a_file, IN_SCRATCH)
{
    char hex[HASH_HEX], want[HASH_HEX];
    enum { BYTES = 3000001 }; /* several chunks and a bit */
    char *data = calloc(BYTES, 1);
    data[BYTES - 1] = 'x';
    const char *path = scratch_file(&scratch, "f", data, BYTES);
    uint64_t bytes = 0;
    hash_bytes(data, BYTES, want);
    free(data);
    MUST(hash_file(path, hex, &bytes));
    cr_expect_str_eq(hex, want);
    cr_expect_eq(bytes, BYTES);
    cr_expect_eq(hash_file("/nowhere/at/all", hex, NULL), ZD_ERR_NO_INPUT);
}
