/* Compressed files: the same documents as their text, and one error for files
 * that are damaged. */
#include "base/must.h"
#include "tests/data/data_expect.h"

#include <zlib.h>
#include <zstd.h>

static const char *const names[] = {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst"};

/* One member, or frame. */
static size_t pack(
        enum data_container container, const void *text, size_t bytes,
        unsigned char *out, size_t room)
{
    z_stream z = {
            .next_in = (Bytef *)text,
            .avail_in = (unsigned)bytes,
            .next_out = out,
            .avail_out = (unsigned)room};
    if (container == CONTAINER_ZSTD)
        return ZSTD_compress(out, room, text, bytes, 1);
    if (container == CONTAINER_PLAIN) {
        memcpy(out, text, bytes);
        return bytes;
    }
    deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return (size_t)z.total_out;
}

/* Records of all lengths, some longer than a unit, blank lines at the end. */
static size_t write_records(char *text)
{
    size_t used = 0;
    unsigned seed = 1;
    for (int i = 0; used < 5u << 20; i++) {
        size_t bytes =
                i == 40 ? 3 << 20 : (seed = seed * 48271 % 2147483647) % 9000;
        used += (size_t)sprintf(text + used, "{\"text\":\"%d ", i);
        for (size_t k = 0; k < bytes; k++)
            text[used++] = (char)('a' + (k * seed >> 7) % 26);
        used += (size_t)sprintf(text + used, "\"}\n");
    }
    memset(text + used, '\n', 3 << 20);
    return used + (3 << 20);
}

static void expect_same(const char *text, size_t bytes, size_t members)
{
    char *words[3];
    size_t room = 2 * bytes + (1 << 16);
    ZD_FREED unsigned char *packed = malloc(room);
    for (int i = 0; i < 3; i++) {
        struct data_case test;
        size_t used = 0, step = bytes / members + 1;
        data_case_init(&test, NULL);
        test.options.preprocessing_threads = 3;
        for (size_t at = 0; at < bytes; at += step)
            used +=
                    pack((enum data_container)i, text + at,
                         bytes - at < step ? bytes - at : step, packed + used,
                         room - used);
        data_case_file(&test, names[i], packed, used);
        words[i] = data_case_words(&test);
        cr_assert_not_null(words[i], "%s", zd_error_get()->what);
        cr_expect(strcmp(words[i], words[0]) == 0, "%s", names[i]);
        data_case_fini(&test);
    }
    for (int i = 0; i < 3; i++)
        free(words[i]);
}

Test(data_streams, compressed_files_give_the_documents_of_their_text)
{
    ZD_FREED char *text = malloc(12 << 20);
    size_t bytes = write_records(text);
    expect_same(text, bytes, 1);
    expect_same(text, bytes, 7);
}

/* As pzstd writes them: the size of each frame in one that is skipped. */
Test(data_streams, a_zstd_file_may_begin_with_a_frame_to_skip)
{
    static const unsigned char skipped[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0,
                                            0,    0,    9,    9,    9, 9};
    static const char text[] = "{\"text\":\"abcdefghijklm\"}\n";
    unsigned char packed[512];
    struct data_case test;
    data_case_init(&test, NULL);
    memcpy(packed, skipped, sizeof skipped);
    size_t bytes =
            pack(CONTAINER_ZSTD, text, strlen(text), packed + sizeof skipped,
                 sizeof packed - sizeof skipped);
    data_case_file(&test, names[2], packed, sizeof skipped + bytes);
    expect_words(&test, "|[a]bcdefghijklm$");
    data_case_fini(&test);
}

static void expect_damaged(
        struct data_case *test, const char *name, const void *data,
        size_t bytes, const char *what)
{
    data_case_file(test, name, data, bytes);
    cr_expect_null(data_case_open(test));
    const struct zd_error *error = zd_error_get();
    cr_expect_eq(error->status, ZD_ERR_DATA);
    cr_expect(
            strstr(error->what, name) && strstr(error->what, what), "%zu: %s",
            bytes, error->what);
    zd_error_clear();
}

Test(data_streams, files_that_end_early_or_go_on_are_refused)
{
    static const char text[] = "{\"text\":\"abcdefghijklmnopqrstuvwxyz\"}\n";
    unsigned char packed[512];
    for (int i = 1; i < 3; i++) {
        struct data_case test;
        data_case_init(&test, NULL);
        size_t bytes =
                pack((enum data_container)i, text, strlen(text), packed,
                     sizeof packed);
        for (size_t cut = 1; cut < bytes; cut++)
            expect_damaged(&test, names[i], packed, cut, "");
        expect_damaged(&test, names[i], packed, bytes - 1, "ends inside a");
        memcpy(packed + bytes, "garbage", 7);
        expect_damaged(
                &test, names[i], packed, bytes + 7, "what follows its last");
        expect_damaged(&test, names[i], packed, bytes + 1, "");
        data_case_fini(&test);
    }
}

/* 320 MiB of a text, of blanks and of blank lines; and a window of 2^31 bytes:
 * magic, frame, a raw block that is the last. */
Test(data_streams, a_bomb_takes_no_memory_and_names_the_record)
{
    static const unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8,
                                          0x11, 0x00, 0x00, '{',  '}'};
    struct data_case test;
    ZD_FREED unsigned char *packed = malloc(1 << 20);
    ZD_FREED char *zeros = calloc(1, 64 << 20);
    size_t used;
    data_case_init(&test, NULL);
    for (const char *fill = "a \n"; *fill; fill++) {
        const char *begin = *fill == 'a' ? "{\"text\":\"" : " ";
        memset(zeros, *fill, 64 << 20);
        used = pack(CONTAINER_ZSTD, begin, strlen(begin), packed, 1 << 20);
        for (int i = 0; i < 5; i++)
            used +=
                    pack(CONTAINER_ZSTD, zeros, 64 << 20, packed + used,
                         (1 << 20) - used);
        expect_damaged(
                &test, "a.jsonl.zst", packed, used,
                *fill == '\n' ? "holds no document in its first 256 MiB"
                              : "has more than 268435456 bytes");
    }
    expect_damaged(
            &test, "a.jsonl.zst", frame, sizeof frame, "window above 128 MiB");
    data_case_fini(&test);
}
