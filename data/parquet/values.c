#include "data/parquet/values.h"

#include <string.h>

static enum zd_status fail_short(
        const struct parquet_file *file, const struct parquet_leaf *leaf)
{
    return parquet_damaged(
            file, leaf->path, "a page has fewer values than it says");
}

/* --- plain ---------------------------------------------------------------- */

static bool plain_next(struct values *values, struct parquet_value *value)
{
    size_t left = (size_t)(values->end - values->at), bytes = 0;
    int32_t int32;
    uint32_t uint32;
    float real;
    switch (values->leaf->type) {
    case PARQUET_BOOLEAN:
        if (left == 0)
            return false;
        value->integer = *values->at >> values->bit & 1;
        values->bit = (values->bit + 1) % 8;
        bytes = values->bit == 0;
        break;
    case PARQUET_INT32:
        if ((bytes = sizeof int32) > left)
            return false;
        memcpy(&int32, values->at, bytes);
        value->integer = int32;
        break;
    case PARQUET_INT64:
        if ((bytes = sizeof value->integer) > left)
            return false;
        memcpy(&value->integer, values->at, bytes);
        break;
    case PARQUET_FLOAT:
        if ((bytes = sizeof real) > left)
            return false;
        memcpy(&real, values->at, bytes);
        value->real = real;
        break;
    case PARQUET_DOUBLE:
        if ((bytes = sizeof value->real) > left)
            return false;
        memcpy(&value->real, values->at, bytes);
        break;
    default: /* PARQUET_BYTE_ARRAY; the schema has no others */
        if (left < sizeof uint32)
            return false;
        memcpy(&uint32, values->at, sizeof uint32);
        if (uint32 > left - sizeof uint32)
            return false;
        value->bytes = values->at + sizeof uint32;
        value->count = uint32;
        bytes = sizeof uint32 + uint32;
    }
    values->at += bytes;
    return true;
}

enum zd_status dictionary_read(
        struct dictionary *dictionary, struct parquet_file *file,
        const struct parquet_leaf *leaf, int64_t count, const unsigned char *at,
        const unsigned char *end)
{
    struct values plain = {.leaf = leaf, .at = at, .end = end};
    /* a value takes at least one bit */
    if (count < 0 || (uint64_t)count > 8 * (uint64_t)(end - at))
        return fail_short(file, leaf);
    ZD_TRY(parquet_reserve(
            file, &dictionary->memory,
            (uint64_t)count * sizeof *dictionary->values));
    dictionary->values = (struct parquet_value *)dictionary->memory.bytes;
    dictionary->count = (size_t)count;
    for (int64_t i = 0; i < count; i++)
        if (!plain_next(&plain, &dictionary->values[i]))
            return fail_short(file, leaf);
    return ZD_OK;
}

/* --- the other encodings -------------------------------------------------- */

static bool suits(int encoding, enum parquet_type type)
{
    switch (encoding) {
    case PARQUET_PLAIN:
        return true;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return true;
    case PARQUET_RLE:
        return type == PARQUET_BOOLEAN;
    case PARQUET_DELTA_BINARY_PACKED:
        return type == PARQUET_INT32 || type == PARQUET_INT64;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case PARQUET_DELTA_BYTE_ARRAY:
        return type == PARQUET_BYTE_ARRAY;
    default:
        return false;
    }
}

static enum zd_status check_encoding(
        const struct parquet_file *file, const struct parquet_leaf *leaf,
        int encoding)
{
    static const char *const names[] = {
            "PLAIN",
            "GROUP_VAR_INT",
            "PLAIN_DICTIONARY",
            "RLE",
            "BIT_PACKED",
            "DELTA_BINARY_PACKED",
            "DELTA_LENGTH_BYTE_ARRAY",
            "DELTA_BYTE_ARRAY",
            "RLE_DICTIONARY",
            "BYTE_STREAM_SPLIT"};
    if (suits(encoding, leaf->type))
        return ZD_OK;
    if (encoding < 0 || encoding >= (int)(sizeof names / sizeof names[0]))
        return parquet_unsupported(
                file, leaf->path, "encoding number %d", encoding);
    return parquet_unsupported(
            file, leaf->path, "the encoding %s for its type", names[encoding]);
}

/* Run through the lengths at `at`; *end_out: after them. */
static bool skip_lengths(
        const unsigned char *at, const unsigned char *end,
        const unsigned char **end_out)
{
    struct delta delta;
    int64_t length;
    if (!delta_begin(&delta, at, end))
        return false;
    while (delta.left > 0)
        if (!delta_next(&delta, &length))
            return false;
    *end_out = delta_end(&delta);
    return true;
}

/* DELTA_LENGTH_BYTE_ARRAY is lengths, then bytes. DELTA_BYTE_ARRAY is how much
 * of the value before each begins with, then the rest of each in that
 * encoding. */
static bool begin_strings(
        struct values *values, const unsigned char *at,
        const unsigned char *end)
{
    const unsigned char *after;
    values->last_bytes = 0;
    if (!delta_begin(&values->delta, at, end))
        return false;
    if (values->encoding == PARQUET_DELTA_BYTE_ARRAY) {
        if (!skip_lengths(at, end, &after) ||
            !delta_begin(&values->suffixes, after, end))
            return false;
        at = after;
    }
    return skip_lengths(at, end, &values->at);
}

enum zd_status values_begin(
        struct values *values, struct parquet_file *file,
        const struct parquet_leaf *leaf, const struct dictionary *dictionary,
        int encoding, const unsigned char *at, const unsigned char *end)
{
    struct parquet_buffer last = values->last;
    bool is_good = true;
    uint32_t length;
    *values = (struct values){
            .leaf = leaf,
            .dictionary = dictionary,
            .encoding = (enum parquet_encoding)encoding,
            .at = at,
            .end = end,
            .last = last};
    ZD_TRY(check_encoding(file, leaf, encoding));
    if (at == end)
        return ZD_OK; /* every entry is null */
    switch (encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        if (*at > 32)
            return parquet_damaged(file, leaf->path, "indexes of %d bits", *at);
        hybrid_begin(&values->hybrid, at + 1, end, *at);
        break;
    case PARQUET_RLE:
        is_good = end - at >= (ptrdiff_t)sizeof length;
        if (is_good)
            memcpy(&length, at, sizeof length);
        is_good = is_good && length <= (size_t)(end - at) - sizeof length;
        if (is_good)
            hybrid_begin(
                    &values->hybrid, at + sizeof length,
                    at + sizeof length + length, 1);
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        is_good = delta_begin(&values->delta, at, end);
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case PARQUET_DELTA_BYTE_ARRAY:
        is_good = begin_strings(values, at, end);
        break;
    default:
        break;
    }
    return is_good ? ZD_OK
                   : parquet_damaged(
                             file, leaf->path,
                             "the lengths or counts of a page cannot be");
}

/* --- one value ------------------------------------------------------------ */

static bool string_next(struct values *values, struct parquet_value *value)
{
    int64_t bytes;
    if (!delta_next(&values->delta, &bytes) || bytes < 0 ||
        bytes > values->end - values->at)
        return false;
    value->bytes = values->at;
    value->count = (size_t)bytes;
    values->at += bytes;
    return true;
}

/* The value before keeps its beginning in `last`, where the rest is put. */
static enum zd_status front_coded_next(
        struct values *values, struct parquet_file *file,
        struct parquet_value *value)
{
    int64_t same, rest;
    if (!delta_next(&values->delta, &same) || same < 0 ||
        (uint64_t)same > values->last_bytes ||
        !delta_next(&values->suffixes, &rest) || rest < 0 ||
        rest > values->end - values->at)
        return fail_short(file, values->leaf);
    size_t bytes = (size_t)same + (size_t)rest;
    if (bytes > values->last.capacity) {
        struct parquet_buffer larger = {0};
        ZD_TRY(parquet_reserve(file, &larger, 2 * bytes));
        if (same > 0)
            memcpy(larger.bytes, values->last.bytes, (size_t)same);
        parquet_release(file, &values->last);
        values->last = larger;
    }
    if (rest > 0)
        memcpy(values->last.bytes + same, values->at, (size_t)rest);
    values->at += rest;
    values->last_bytes = bytes;
    value->bytes = values->last.bytes;
    value->count = bytes;
    return ZD_OK;
}

enum zd_status values_next(
        struct values *values, struct parquet_file *file,
        struct parquet_value *value_out)
{
    const struct dictionary *dictionary = values->dictionary;
    uint32_t index = 0;
    bool is_good = false;
    switch (values->encoding) {
    case PARQUET_PLAIN:
        is_good = plain_next(values, value_out);
        break;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        is_good = hybrid_next(&values->hybrid, &index) &&
                  index < dictionary->count;
        if (is_good)
            *value_out = dictionary->values[index];
        break;
    case PARQUET_RLE:
        is_good = hybrid_next(&values->hybrid, &index);
        value_out->integer = index;
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        is_good = delta_next(&values->delta, &value_out->integer);
        if (values->leaf->type == PARQUET_INT32)
            value_out->integer = (int32_t)value_out->integer;
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        is_good = string_next(values, value_out);
        break;
    case PARQUET_DELTA_BYTE_ARRAY:
        return front_coded_next(values, file, value_out);
    }
    return is_good ? ZD_OK : fail_short(file, values->leaf);
}
