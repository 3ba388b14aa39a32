#include "base/file/safetensors.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

#include <unistd.h>

TestSuite(safetensors, IN_SCRATCH);

static struct st_file *file; /* the last one that was opened */

/* Write length, header, data; open. `length` 0: the header's own. */
static enum zd_status open_made(
        const char *header, size_t header_bytes, uint64_t length,
        size_t data_bytes)
{
    char *bytes = calloc(8 + header_bytes + data_bytes, 1);
    if (!length)
        length = header_bytes;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + header_bytes + i] = (char)i;
    scratch_file(
            &scratch, "t.safetensors", bytes, 8 + header_bytes + data_bytes);
    free(bytes);
    zd_error_clear();
    file = NULL;
    return st_open(scratch.path, &file);
}

#define T(name, dtype, shape, from, to)                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                  \
    "],\"data_offsets\":[" from "," to "]}"

struct bad_case {
    const char *why;
    const char *header;
    size_t data_bytes;
    const char *code; /* of the check that must find it */
    uint64_t length;  /* 0: the header's own */
};

static const struct bad_case bad_cases[] = {
        {"header longer than the file", "{}", 0, "E0721", 3},
        {"header far longer than the file", "{}", 0, "E0721", 99999999},
        {"header above the limit", "{}", 0, "E0721", 100000001},
        {"length that overflows", "{}", 0, "E0721", UINT64_MAX},
        {"length that wraps to 7", "{}", 0, "E0721", UINT64_MAX - 8},
        {"no object", "[]", 0, "E0722"},
        {"space before the object", " {}", 0, "E0722"},
        {"not UTF-8", "{\"\xff\":1}", 0, "E0711"},
        {"not JSON", "{\"a\":", 0, "E0711"},
        {"something behind the object", "{}{}", 0, "E0711"},
        {"duplicate tensor",
         "{" T("a", "F32", "1", "0", "4") "," T("a", "F32", "1", "4", "8") "}",
         8, "E0711"},
        {"duplicate key in a tensor",
         "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         4, "E0711"},
        {"tensor that is no object", "{\"a\":[]}", 0, "E0723"},
        {"tensor without dtype",
         "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "E0723"},
        {"tensor without shape",
         "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "E0723"},
        {"tensor without offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",
         4, "E0723"},
        {"three offsets", "{" T("a", "F32", "1", "0", "4,4") "}", 4, "E0723"},
        {"unknown dtype", "{" T("a", "F33", "1", "0", "4") "}", 4, "E0723"},
        {"dtype in lower case", "{" T("a", "f32", "1", "0", "4") "}", 4,
         "E0723"},
        {"dtype with a NUL", "{" T("a", "F32\\u0000", "1", "0", "4") "}", 4,
         "E0711"},
        {"very long dtype",
         "{" T("a", "F3222222222222222222", "1", "0", "4") "}", 4, "E0723"},
        {"negative extent", "{" T("a", "F32", "-1", "0", "4") "}", 4, "E0723"},
        {"two negative extents", "{" T("a", "F32", "-1,-1", "0", "4") "}", 4,
         "E0723"},
        {"real extent", "{" T("a", "F32", "1.0", "0", "4") "}", 4, "E0723"},
        {"extent as text", "{" T("a", "F32", "\"1\"", "0", "4") "}", 4,
         "E0723"},
        {"extent beyond 63 bits",
         "{" T("a", "F32", "9223372036854775808", "0", "4") "}", 4, "E0723"},
        {"negative begin", "{" T("a", "F32", "1", "-4", "0") "}", 4, "E0723"},
        {"real end", "{" T("a", "F32", "1", "0", "4e0") "}", 4, "E0723"},
        {"end beyond 64 bits",
         "{" T("a", "F32", "1", "0", "18446744073709551620") "}", 4, "E0723"},
        {"nine dimensions",
         "{" T("a", "F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "E0723"},
        {"end before begin",
         "{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "1", "8", "4") "}",
         8, "E0724"},
        {"hole at the start", "{" T("a", "F32", "1", "4", "8") "}", 8, "E0724"},
        {"hole between",
         "{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "8", "12") "}",
         12, "E0724"},
        {"overlap",
         "{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "4", "12") "}",
         12, "E0724"},
        {"two tensors on the same bytes",
         "{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "0", "4") "}",
         4, "E0724"},
        {"shape larger than the bytes", "{" T("a", "F32", "2", "0", "4") "}", 4,
         "E0725"},
        {"shape smaller than the bytes", "{" T("a", "BF16", "1", "0", "4") "}",
         4, "E0725"},
        {"shape that overflows to the right size",
         "{" T("a", "U8", "4294967296,4294967296", "0", "0") "}", 0, "E0725"},
        {"bits that overflow",
         "{" T("a", "F64", "576460752303423488", "0", "0") "}", 0, "E0725"},
        {"overflow before a zero",
         "{" T("a", "U8", "4294967296,4294967296,4294967296,0", "0", "0") "}",
         0, "E0725"},
        {"half a byte", "{" T("a", "F4", "3", "0", "1") "}", 1, "E0725"},
        {"trailing byte", "{" T("a", "F32", "1", "0", "4") "}", 5, "E0726"},
        {"trailing byte and no tensor", "{}", 1, "E0726"},
        {"one byte short", "{" T("a", "F32", "1", "0", "4") "}", 3, "E0726"},
        {"data beyond any file",
         "{" T("a", "U8", "1099511627776", "0", "1099511627776") "}", 4,
         "E0726"},
        {"metadata that is no object", "{\"__metadata__\":[]}", 0, "E0722"},
        {"metadata with a number", "{\"__metadata__\":{\"format\":1}}", 0,
         "E0722"},
        {"metadata with an object", "{\"__metadata__\":{\"a\":{}}}", 0,
         "E0722"},
        {"duplicate metadata", "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
         "E0711"},
};

Test(safetensors, hostile_files_are_refused_by_the_right_check)
{
    ZD_EACH(c, bad_cases, sizeof bad_cases / sizeof bad_cases[0]) {
        enum zd_status status = open_made(
                c->header, strlen(c->header), c->length, c->data_bytes);
        cr_expect_eq(status, ZD_ERR_DATA, "%s: status %d", c->why, status);
        cr_expect_str_eq(
                zd_error_get()->code, c->code, "%s: %s", c->why,
                zd_error_get()->what);
        cr_expect_not_null(strstr(zd_error_get()->what, "t.safetensors"));
        st_close(file);
    }
}

Test(safetensors, every_truncation_is_refused)
{
    static const char header[] = "{" T("a", "F32", "2", "0", "8") "}";
    MUST(open_made(header, sizeof header - 1, 0, 8));
    uint64_t whole = file->file_bytes;
    st_close(file);
    for (uint64_t bytes = whole; bytes-- > 0;) {
        cr_assert_eq(truncate(scratch.path, (off_t)bytes), 0);
        zd_error_clear();
        cr_expect_eq(
                st_open(scratch.path, &file), ZD_ERR_DATA, "%lu bytes", bytes);
        if (bytes < 8)
            cr_expect_str_eq(zd_error_get()->code, "E0721");
    }
}

Test(safetensors, too_many_tensors_are_refused_before_they_cost_memory)
{
    enum { COUNT = 2000001 };
    static const char one[] = "\"a\":{},";
    size_t bytes = COUNT * (sizeof one - 1) + 1;
    ZD_FREED char *header = malloc(bytes);
    cr_assert_not_null(header);
    header[0] = '{';
    for (size_t i = 0; i < COUNT; i++)
        memcpy(header + 1 + i * (sizeof one - 1), one, sizeof one - 1);
    cr_expect_eq(open_made(header, bytes, 0, 0), ZD_ERR_DATA);
    cr_expect_not_null(strstr(zd_error_get()->what, "4000000 JSON values"));
}

Test(safetensors, many_tensors_on_the_same_bytes_are_refused)
{
    enum { COUNT = 20000, ROW = 100 };
    static char header[COUNT * ROW];
    size_t used = 0;
    for (int i = 0; i < COUNT; i++)
        used += (size_t)snprintf(
                header + used, sizeof header - used,
                "%c" T("%d", "U8", "1000", "0", "1000"), i ? ',' : '{', i);
    header[used++] = '}';
    cr_expect_eq(open_made(header, used, 0, 1000), ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->code, "E0724");
}

Test(safetensors, long_names_are_refused)
{
    char header[2000];
    int bytes =
            sprintf(header,
                    "{\"%01025d\":{\"dtype\":\"U8\",\"shape\":[0],"
                    "\"data_offsets\":[0,0]}}",
                    0);
    cr_expect_eq(open_made(header, (size_t)bytes, 0, 0), ZD_ERR_DATA);
    bytes =
            sprintf(header,
                    "{\"%01024d\":{\"dtype\":\"U8\",\"shape\":[0],"
                    "\"data_offsets\":[0,0]}}",
                    0);
    MUST(open_made(header, (size_t)bytes, 0, 0));
    st_close(file);
}

Test(safetensors, a_pointer_in_place_of_the_file_is_told)
{
    static const char pointer[] =
            "version https://git-lfs.github.com/spec/v1\n";
    scratch_file(&scratch, "pointer", pointer, sizeof pointer - 1);
    cr_expect_eq(st_open(scratch.path, &file), ZD_ERR_DATA);
    cr_expect_not_null(strstr(zd_error_get()->help, "git lfs"));
}

Test(safetensors, the_golden_file_opens)
{
    static const char header[] = "{" T("test", "I32", "2,2", "0", "16") "}";
    cr_assert_eq(sizeof header - 1, 0x3c);
    MUST(open_made(header, sizeof header - 1, 0, 16));
    const struct st_tensor *tensor = st_find(file, "test");
    cr_assert_not_null(tensor);
    cr_expect_eq(tensor->count, 4);
    cr_expect_eq(tensor->bytes, 16);
    cr_expect_eq(tensor->begin, 8 + 0x3c);
    cr_expect_eq(tensor->dims, 2);
    cr_expect_null(file->metadata);
    cr_expect_null(st_find(file, "tes"));
    float out[4];
    cr_expect_eq(
            st_read_float(file, tensor, 0, 4, out), ZD_ERR_DATA,
            "integers are no weights");
    st_close(file);
}

Test(safetensors, legal_oddities_open)
{
    static const char header[] =
            "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"y\"},"
            /* out of order, unaligned, empty in the middle, 0 dimensions, an
               unknown key, spaces behind */
            T("c", "F32", "", "7", "11") "," T("a", "U8", "3", "0", "3") "," T(
                    "e", "F64", "5,0,9", "3",
                    "3") "," T("b", "BF16", "2,1", "3", "7") ",\"z\":{"
                                                             "\"dtype\":\"F4\","
                                                             "\"shape\":[4],"
                                                             "\"data_offsets\":"
                                                             "[11,13],"
                                                             "\"extra\":null}} "
                                                             "    ";
    MUST(open_made(header, sizeof header - 1, 0, 13));
    cr_expect_eq(file->tensor_count, 5);
    for (int i = 1; i < file->tensor_count; i++)
        cr_expect_lt(
                strcmp(file->tensors[i - 1].name, file->tensors[i].name), 0);
    cr_expect_eq(st_find(file, "c")->count, 1);
    cr_expect_eq(st_find(file, "e")->count, 0);
    cr_expect_str_eq(json_string_at(file->metadata, "x"), "y");
    unsigned char raw[2];
    MUST(st_read_bytes(file, st_find(file, "b"), 1, 2, raw));
    cr_expect_eq(raw[0], 4);
    cr_expect_eq(raw[1], 5);
    st_close(file);
    cr_assert_eq(open_made("{}", 2, 0, 0), ZD_OK, "no tensor at all");
    st_close(file);
}

Test(safetensors, a_file_cut_after_it_was_opened_is_an_error)
{
    static const char header[] = "{" T("a", "F32", "2", "0", "8") "}";
    float out[2];
    MUST(open_made(header, sizeof header - 1, 0, 8));
    cr_assert_eq(truncate(scratch.path, (off_t)file->file_bytes - 1), 0);
    cr_expect_eq(
            st_read_float(file, st_find(file, "a"), 0, 2, out), ZD_ERR_DATA);
    st_close(file);
}
