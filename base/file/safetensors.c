#include "base/file/safetensors.h"

#include "base/file/fs.h"
#include "base/must.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert(
        __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "tensor files are little-endian and are read as they are");

enum { LENGTH_BYTES = 8, NAME_MAX_BYTES = 1024 };
enum { VALUES_MAX = 4000000 }; /* of a header: about ten for each tensor */
static const uint64_t HEADER_MAX = 100000000; /* the reference's limit */

static enum zd_status fail_file(
        const struct st_file *file, const char *code, const char *what)
{
    return ZD_BAD(
            code, "%s is not a valid safetensors file: %s", file->path, what);
}

static enum zd_status fail_tensor(
        const struct st_file *file, const char *name, const char *code,
        const char *what)
{
    return ZD_BAD(
            code, "%s: tensor \"%.*s\" %s", file->path, NAME_MAX_BYTES / 4,
            name, what);
}

/* --- element types -------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned bits;
} types[] = {
        {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
        {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8},
        {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
        {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},
        {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},
        {"I64", 64},    {"U64", 64},
};

int st_dtype_rank(const char *dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, dtype) == 0)
            return (int)i;
    return -1;
}

enum zd_status st_dtype_extent(
        const char *path, const char *name, const char *dtype, int dims,
        const int64_t *shape, uint64_t *count_out, uint64_t *bytes_out)
{
    uint64_t count = 1, bits = types[st_dtype_rank(dtype)].bits;
    bool is_beyond = false;
    for (int i = 0; i < dims; i++)
        is_beyond |= __builtin_mul_overflow(count, (uint64_t)shape[i], &count);
    is_beyond |= __builtin_mul_overflow(count, bits, &bits);
    if (is_beyond)
        return ZD_BAD(
                "E0725", "%s: the shape of tensor \"%s\" is beyond 64 bits",
                path, name);
    if (bits % 8)
        return ZD_BAD(
                "E0725", "%s: tensor \"%s\" does not fill whole bytes", path,
                name);
    *count_out = count;
    *bytes_out = bits / 8;
    return ZD_OK;
}

/* --- reading the header --------------------------------------------------- */

/* Checks 1 to 3: the header's length, before its content is trusted. The caller
 * frees *text_out, also on failure. */
static enum zd_status read_header(
        const struct st_file *file, char **text_out, size_t *bytes_out)
{
    uint64_t bytes;
    if (file->file_bytes < LENGTH_BYTES)
        return fail_file(file, "E0721", "it is shorter than 8 bytes");
    ZD_TRY(fs_pread(file->fd, file->path, &bytes, LENGTH_BYTES, 0));
    if (memcmp(&bytes, "version ", LENGTH_BYTES) == 0) {
        fail_file(file, "E0721", "it is a Git LFS pointer");
        return zd_fail_help("fetch the real file: git lfs pull");
    }
    if (bytes > HEADER_MAX)
        return fail_file(file, "E0721", "its header is above 100000000 bytes");
    if (bytes + LENGTH_BYTES > file->file_bytes)
        return fail_file(file, "E0721", "its header goes beyond its end");
    *text_out = zd_must(malloc((size_t)bytes + 1));
    (*text_out)[bytes] = '\0';
    *bytes_out = (size_t)bytes;
    return fs_pread(
            file->fd, file->path, *text_out, (size_t)bytes, LENGTH_BYTES);
}

/* A non-negative integer of 63 bits; false for reals and negative numbers. */
static bool get_count(const json_t *json, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static enum zd_status parse_shape(
        const struct st_file *file, struct st_tensor *tensor,
        const json_t *shape)
{
    if (!json_is_array(shape))
        return fail_tensor(file, tensor->name, "E0723", "has no shape");
    if (json_array_size(shape) > ST_DIMS_MAX)
        return fail_tensor(
                file, tensor->name, "E0723", "has more than 8 dimensions");
    tensor->dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->dims; i++) {
        uint64_t extent;
        if (!get_count(json_array_get(shape, (size_t)i), &extent))
            return fail_tensor(
                    file, tensor->name, "E0723",
                    "has a shape that is not of whole numbers");
        tensor->shape[i] = (int64_t)extent;
    }
    return ZD_OK;
}

/* Offsets are still relative to the byte buffer, and `bytes` is END - BEGIN as
 * written, until check_layout has seen them. */
static enum zd_status parse_tensor(
        const struct st_file *file, const char *name, const json_t *json,
        struct st_tensor *tensor)
{
    uint64_t end;
    if (strlen(name) > NAME_MAX_BYTES)
        return fail_tensor(
                file, name, "E0723", "has a name longer than 1024 bytes");
    tensor->name = zd_must(strdup(name));
    const json_t *dtype = json_object_get(json, "dtype");
    /* the length too: a string may hold a NUL */
    if (!json_is_string(dtype) ||
        json_string_length(dtype) >= sizeof tensor->dtype ||
        json_string_length(dtype) != strlen(json_string_value(dtype)) ||
        st_dtype_rank(json_string_value(dtype)) < 0)
        return fail_tensor(file, name, "E0723", "has an unknown dtype");
    strcpy(tensor->dtype, json_string_value(dtype));
    ZD_TRY(parse_shape(file, tensor, json_object_get(json, "shape")));
    const json_t *offsets = json_object_get(json, "data_offsets");
    if (json_array_size(offsets) != 2 ||
        !get_count(json_array_get(offsets, 0), &tensor->begin) ||
        !get_count(json_array_get(offsets, 1), &end))
        return fail_tensor(
                file, name, "E0723",
                "has data_offsets that are not two whole numbers");
    if (end < tensor->begin)
        return fail_tensor(file, name, "E0724", "ends before it begins");
    tensor->bytes = end - tensor->begin;
    return ZD_OK;
}

static enum zd_status check_metadata(
        const struct st_file *file, json_t *metadata)
{
    if (!json_is_object(metadata))
        return fail_file(file, "E0722", "__metadata__ is not an object");
    JSON_MEMBERS(key, value, metadata)
        if (!json_is_string(value))
            return fail_file(
                    file, "E0722", "__metadata__ holds more than strings");
    return ZD_OK;
}

/* Checks 4 and 5: the header is JSON of the right form. */
static enum zd_status parse_header(
        struct st_file *file, const char *text, size_t bytes)
{
    json_auto_t *root = NULL;
    if (bytes == 0 || text[0] != '{')
        return fail_file(file, "E0722", "its header does not begin with {");
    ZD_TRY(json_parse_upto(
            text, bytes, VALUES_MAX, file->path, ZD_ERR_DATA, &root));
    file->tensors =
            zd_must(calloc(json_object_size(root) + 1, sizeof *file->tensors));
    JSON_MEMBERS(key, value, root) {
        if (strcmp(key, "__metadata__") == 0) {
            ZD_TRY(check_metadata(file, value));
            file->metadata = json_incref(value);
        } else {
            /* counted first: st_close frees the name even of a bad one */
            struct st_tensor *tensor = &file->tensors[file->tensor_count++];
            ZD_TRY(parse_tensor(file, key, value, tensor));
        }
    }
    return ZD_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void sort_tensors(
        struct st_file *file, int (*order)(const void *, const void *))
{
    qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors,
          order);
}

/* Checks 6 to 8: tensors lie one after the other without overlap or hole, each
 * is as long as its shape says, and the last ends with the file. */
static enum zd_status check_layout(struct st_file *file, uint64_t data_begin)
{
    uint64_t at = 0;
    sort_tensors(file, by_offset);
    ZD_EACH(tensor, file->tensors, file->tensor_count) {
        if (tensor->begin != at)
            return fail_tensor(
                    file, tensor->name, "E0724",
                    tensor->begin < at ? "overlaps the one before it"
                                       : "leaves a hole in front of it");
        at += tensor->bytes;
    }
    ZD_EACH(tensor, file->tensors, file->tensor_count) {
        uint64_t bytes;
        ZD_TRY(st_dtype_extent(
                file->path, tensor->name, tensor->dtype, tensor->dims,
                tensor->shape, &tensor->count, &bytes));
        if (bytes != tensor->bytes)
            return fail_tensor(
                    file, tensor->name, "E0725",
                    "has data of another length than its shape and dtype say");
        tensor->begin += data_begin;
    }
    if (at != file->file_bytes - data_begin) {
        ZD_BAD("E0726",
               "%s has %llu bytes of data, but its header describes %llu",
               file->path, (unsigned long long)(file->file_bytes - data_begin),
               (unsigned long long)at);
        return zd_fail_help("copy or download the file again");
    }
    sort_tensors(file, by_name);
    return ZD_OK;
}

enum zd_status st_open(const char *path, struct st_file **file_out)
{
    ZD_FREED char *text = NULL;
    size_t bytes = 0;
    struct st_file *file = zd_must(calloc(1, sizeof *file));
    file->path = zd_must(strdup(path));
    file->fd = -1;
    enum zd_status status = fs_open_read(path, &file->fd, &file->file_bytes);
    ZD_THEN(status, read_header(file, &text, &bytes));
    ZD_THEN(status, parse_header(file, text, bytes));
    ZD_THEN(status, check_layout(file, LENGTH_BYTES + bytes));
    if (status == ZD_OK)
        *file_out = file;
    else
        st_close(file);
    return status;
}

void st_close(struct st_file *file)
{
    if (!file)
        return;
    for (int i = 0; i < file->tensor_count; i++)
        free(file->tensors[i].name);
    free(file->tensors);
    json_decref(file->metadata);
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}

void st_rest(struct st_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

enum zd_status st_wake(struct st_file *file)
{
    uint64_t bytes;
    if (file->fd >= 0)
        return ZD_OK;
    ZD_TRY(fs_open_read(file->path, &file->fd, &bytes));
    if (bytes == file->file_bytes)
        return ZD_OK;
    st_rest(file);
    return fail_file(file, "E0726", "its length changed while it was read");
}

/* --- reading tensors ------------------------------------------------------ */

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
    struct st_tensor key = {.name = (char *)name};
    return bsearch(
            &key, file->tensors, (size_t)file->tensor_count,
            sizeof *file->tensors, by_name);
}

enum zd_status st_read_bytes(
        const struct st_file *file, const struct st_tensor *tensor,
        uint64_t first, size_t bytes, void *out)
{
    assert(first <= tensor->bytes && bytes <= tensor->bytes - first);
    return fs_pread(file->fd, file->path, out, bytes, tensor->begin + first);
}

enum zd_status st_read_float(
        const struct st_file *file, const struct st_tensor *tensor,
        uint64_t first, size_t count, float *out)
{
    enum { CHUNK = 16384 };
    uint16_t chunk[CHUNK];
    enum dtype type;
    assert(first <= tensor->count && count <= tensor->count - first);
    if (strcmp(tensor->dtype, "F32") == 0)
        return st_read_bytes(file, tensor, 4 * first, 4 * count, out);
    if (strcmp(tensor->dtype, "BF16") == 0)
        type = DTYPE_BF16;
    else if (strcmp(tensor->dtype, "F16") == 0)
        type = DTYPE_FP16;
    else
        return ZD_BAD(
                "E0727",
                "%s: tensor \"%s\" is of type %s; F32, BF16 or F16 is needed",
                file->path, tensor->name, tensor->dtype);
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t part = count - done < CHUNK ? count - done : CHUNK;
        ZD_TRY(st_read_bytes(
                file, tensor, 2 * (first + done), 2 * part, chunk));
        dtype_convert(out + done, DTYPE_FP32, chunk, type, part);
    }
    return ZD_OK;
}

/* --- digests -------------------------------------------------------------- */

enum zd_status st_tensor_digest(
        const struct st_file *file, const struct st_tensor *tensor,
        char hex[HASH_HEX])
{
    return hash_part(file->fd, file->path, tensor->begin, tensor->bytes, hex);
}

enum zd_status st_digest(const char *path, char hex[HASH_HEX])
{
    struct st_file *file;
    ZD_TRY(st_open(path, &file));
    struct hasher *all = hasher_create();
    uint64_t header = file->file_bytes;
    sort_tensors(file, by_offset);
    for (int i = 0; i < file->tensor_count; i++)
        header -= file->tensors[i].bytes;
    enum zd_status status = hash_part(file->fd, path, 0, header, hex);
    for (int i = 0; i < file->tensor_count && status == ZD_OK; i++) {
        hasher_update(all, hex, HASH_HEX - 1);
        status = st_tensor_digest(file, &file->tensors[i], hex);
    }
    hasher_update(all, hex, HASH_HEX - 1);
    hasher_finish(all, hex);
    st_close(file);
    return status;
}
