#include "base/file/hash.h"
#include "base/file/safetensors.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

TestSuite(safetensors_write, IN_SCRATCH);

static const struct st_entry entries[] = {
        {"b.half", "F16", 1, {2}},     {"z", "F32", 2, {2, 2}},
        {"a.empty", "F32", 2, {0, 3}}, {"long", "I64", 0, {0}},
        {"half", "BF16", 2, {1, 3}},   {"byte", "U8", 1, {1}},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* The bytes the reference's writer makes of these. */
static const char want_header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"us\"},"
        "\"long\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a.empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]}"
        ","
        "\"z\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
        "\"half\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[24,30]}"
        ","
        "\"b.half\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[30,34]},"
        "\"byte\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[34,35]}}";

static const int64_t long_data[] = {-7};
static const float z_data[] = {1, -2, 3.5f, 1e-30f};
static const uint16_t half_data[] = {0x3f80, 0xc000, 0x0001};
static const uint16_t b_half_data[] = {0x3c00, 0xfbff};
static const char byte_data[] = {'x'};
static const void *const data_of[ENTRIES] = {b_half_data, z_data,    NULL,
                                             long_data,   half_data, byte_data};
static const size_t bytes_of[ENTRIES] = {4, 16, 0, 8, 6, 1};

/* Its digest of each is that of the data. */
static void check_digests(const struct st_writer *writer)
{
    for (int entry = 0; entry < ENTRIES; entry++) {
        char digest[HASH_HEX];
        hash_bytes(data_of[entry], bytes_of[entry], digest);
        cr_expect_str_eq(st_writer_digest(writer, entry), digest);
    }
}

static struct st_writer *create(
        const char *path, const struct st_entry *list, int count)
{
    struct st_writer *writer;
    json_auto_t *metadata = json_pack("{s:s}", "who", "us");
    MUST(st_writer_create(path, list, count, metadata, &writer));
    return writer;
}

static void write_all(
        const char *path, size_t piece, char hex[HASH_HEX], uint64_t *bytes)
{
    struct st_writer *writer = create(path, entries, ENTRIES);
    for (int entry = 0; entry < ENTRIES; entry++) {
        const char *data = data_of[entry];
        for (size_t at = 0; at < bytes_of[entry]; at += piece) {
            size_t part = bytes_of[entry] - at;
            MUST(st_writer_add(
                    writer, entry, data + at, part < piece ? part : piece));
        }
    }
    check_digests(writer);
    MUST(st_writer_finish(writer, hex, bytes));
}

static struct st_writer *writer;
static struct st_file *file;

Test(safetensors_write, gives_the_bytes_of_the_reference)
{
    char hex[HASH_HEX], want_hex[HASH_HEX], *text;
    uint64_t bytes;
    size_t read_bytes;
    write_all(scratch_path(&scratch, "f"), 100, hex, &bytes);
    MUST(fs_read_file(scratch.path, 10000, &text, &read_bytes));
    cr_expect_eq(read_bytes, bytes);
    uint64_t length;
    memcpy(&length, text, 8);
    cr_expect_eq(length % 8, 0);
    cr_expect_eq(length, (sizeof want_header - 1 + 7) / 8 * 8);
    cr_expect_arr_eq(text + 8, want_header, sizeof want_header - 1);
    for (size_t i = sizeof want_header - 1; i < length; i++)
        cr_expect_eq(text[8 + i], ' ');
    const char *data = text + 8 + length;
    cr_expect_arr_eq(data, long_data, 8);
    cr_expect_arr_eq(data + 8, z_data, 16);
    cr_expect_arr_eq(data + 24, half_data, 6);
    cr_expect_arr_eq(data + 30, b_half_data, 4);
    cr_expect_eq(data[34], 'x');
    cr_expect_eq(read_bytes, 8 + length + 35);
    free(text);
    MUST(st_digest(scratch.path, want_hex));
    cr_expect_str_eq(hex, want_hex);
}

/* By their definition: of the header's and of each tensor's, as they lie. */
Test(safetensors_write, the_digest_is_that_of_the_parts)
{
    static const int order[ENTRIES] = {3, 2, 1, 4, 0, 5};
    char hex[HASH_HEX], want[HASH_HEX], parts[(ENTRIES + 1) * HASH_HEX], *text;
    size_t bytes, data = 35;
    write_all(scratch_path(&scratch, "f"), 100, hex, NULL);
    MUST(fs_read_file(scratch.path, 10000, &text, &bytes));
    hash_bytes(text, bytes - data, parts);
    free(text);
    for (int i = 0; i < ENTRIES; i++)
        hash_bytes(
                data_of[order[i]], bytes_of[order[i]],
                parts + (size_t)(i + 1) * (HASH_HEX - 1));
    hash_bytes(parts, (ENTRIES + 1) * (HASH_HEX - 1), want);
    cr_expect_str_eq(hex, want);
}

/* Byte by byte, of each tensor in turn. */
Test(safetensors_write, the_order_of_tensors_does_not_matter)
{
    char whole[HASH_HEX], mixed[HASH_HEX], read[HASH_HEX];
    write_all(scratch_path(&scratch, "whole"), 100, whole, NULL);
    writer = create(scratch_path(&scratch, "mixed"), entries, ENTRIES);
    for (size_t at = 0; at < 16; at++)
        for (int entry = ENTRIES - 1; entry >= 0; entry--)
            if (at < bytes_of[entry])
                MUST(st_writer_add(
                        writer, entry, (const char *)data_of[entry] + at, 1));
    check_digests(writer);
    MUST(st_writer_finish(writer, mixed, NULL));
    cr_expect_str_eq(whole, mixed);
    MUST(st_digest(scratch.path, read));
    cr_expect_str_eq(whole, read);
}

/* More than is under way at a time, from both ends. */
Test(safetensors_write, a_long_file_comes_back)
{
    enum { COUNT = 5 << 20, PIECE = 1 << 18 };
    static const struct st_entry two[] = {
            {"a", "F32", 1, {COUNT}}, {"b", "F32", 1, {COUNT}}};
    ZD_FREED float *data = malloc(PIECE * sizeof *data);
    char mixed[HASH_HEX], read[HASH_HEX];
    MUST(st_writer_create(scratch_path(&scratch, "f"), two, 2, NULL, &writer));
    for (int at = 0; at < COUNT; at += PIECE)
        for (int entry = 1; entry >= 0; entry--) {
            for (int i = 0; i < PIECE; i++)
                data[i] = (float)(at + i) * (entry ? 1 : -1);
            MUST(st_writer_add(writer, entry, data, PIECE * sizeof *data));
        }
    MUST(st_writer_finish(writer, mixed, NULL));
    MUST(st_digest(scratch.path, read));
    cr_expect_str_eq(mixed, read);
}

Test(safetensors_write, pieces_do_not_matter)
{
    char whole[HASH_HEX], pieces[HASH_HEX];
    write_all(scratch_path(&scratch, "whole"), 100, whole, NULL);
    write_all(scratch_path(&scratch, "pieces"), 1, pieces, NULL);
    cr_expect_str_eq(whole, pieces);
}

Test(safetensors_write, comes_back_through_the_reader)
{
    float out[4];
    write_all(scratch_path(&scratch, "f"), 100, NULL, NULL);
    MUST(st_open(scratch.path, &file));
    cr_expect_eq(file->tensor_count, ENTRIES);
    MUST(st_read_float(file, st_find(file, "z"), 1, 3, out));
    cr_expect_arr_eq(out, z_data + 1, 12);
    MUST(st_read_float(file, st_find(file, "half"), 0, 3, out));
    cr_expect_eq(out[0], 1);
    cr_expect_eq(out[1], -2);
    MUST(st_read_float(file, st_find(file, "b.half"), 0, 2, out));
    cr_expect_eq(out[0], 1);
    cr_expect_eq(out[1], -65504);
    MUST(st_read_float(file, st_find(file, "a.empty"), 0, 0, out));
    cr_expect_str_eq(json_string_at(file->metadata, "format"), "pt");
    st_close(file);
}

Test(safetensors_write, long_halves_are_read_in_pieces)
{
    enum { COUNT = 50001 };
    static const struct st_entry entry = {"h", "F16", 1, {COUNT}};
    ZD_FREED uint16_t *data = malloc(COUNT * sizeof *data);
    ZD_FREED float *out = malloc(COUNT * sizeof *out);
    for (int i = 0; i < COUNT; i++)
        data[i] = float_to_fp16((float)(i % 2048));
    MUST(st_writer_create(
            scratch_path(&scratch, "f"), &entry, 1, NULL, &writer));
    MUST(st_writer_add(writer, 0, data, COUNT * 2));
    MUST(st_writer_finish(writer, NULL, NULL));
    MUST(st_open(scratch.path, &file));
    MUST(st_read_float(file, st_find(file, "h"), 5, COUNT - 5, out));
    for (int i = 5; i < COUNT; i++)
        cr_assert_eq(out[i - 5], (float)(i % 2048));
    st_close(file);
}

Test(safetensors_write, existing_files_are_not_overwritten)
{
    ZD_FREED char *text = NULL;
    scratch_file(&scratch, "f", "precious", 8);
    cr_expect_eq(
            st_writer_create(scratch.path, entries, ENTRIES, NULL, &writer),
            ZD_ERR_CREATE);
    MUST(fs_read_file(scratch.path, 100, &text, NULL));
    cr_expect_str_eq(text, "precious");
}

Test(safetensors_write, an_unfinished_file_does_not_stay)
{
    scratch_path(&scratch, "f");
    MUST(st_writer_create(scratch.path, entries, ENTRIES, NULL, &writer));
    MUST(st_writer_add(writer, 3, long_data, 8));
    cr_expect_eq(st_writer_finish(writer, NULL, NULL), ZD_ERR_BUG);
    cr_expect_not(fs_exists(scratch.path));
    MUST(st_writer_create(scratch.path, entries, ENTRIES, NULL, &writer));
    st_writer_abandon(writer);
    cr_expect_not(fs_exists(scratch.path));
    st_writer_abandon(NULL);
}

Test(safetensors_write, a_file_may_hold_no_bytes)
{
    static const struct st_entry entry = {"e", "F32", 1, {0}};
    MUST(st_writer_create(
            scratch_path(&scratch, "f"), &entry, 1, NULL, &writer));
    MUST(st_writer_finish(writer, NULL, NULL));
    MUST(st_open(scratch.path, &file));
    st_close(file);
    MUST(st_writer_create(
            scratch_path(&scratch, "none"), NULL, 0, NULL, &writer));
    MUST(st_writer_finish(writer, NULL, NULL));
    MUST(st_open(scratch.path, &file));
    st_close(file);
}
