#include "data/parquet/internal.h"

#include <string.h>

/* --- runs of integers: levels, indexes, deltas ------------------------------
 *
 * false where the bytes end, or say what cannot be. */

/* `width` bits from bit `bit` of `at`, lowest first; the caller has checked
 * that they are there. */
static uint64_t read_bits(const unsigned char *at, uint64_t bit, unsigned width)
{
    uint64_t value = 0;
    at += bit / 8;
    unsigned shift = bit % 8, got = 0;
    while (got < width) {
        value |= (uint64_t)(*at++ >> shift) << got;
        got += 8 - shift;
        shift = 0;
    }
    return width < 64 ? value & ((UINT64_C(1) << width) - 1) : value;
}

void hybrid_begin(
        struct hybrid *hybrid, const unsigned char *at,
        const unsigned char *end, int width)
{
    *hybrid = (struct hybrid){.at = at, .end = end, .width = width};
}

bool hybrid_begin_sized(
        struct hybrid *hybrid, const unsigned char **at,
        const unsigned char *end, int width)
{
    uint32_t length;
    size_t left = (size_t)(end - *at);
    if (left < sizeof length)
        return false;
    memcpy(&length, *at, sizeof length);
    if (length > left - sizeof length)
        return false;
    *at += sizeof length + length;
    hybrid_begin(hybrid, *at - length, *at, width);
    return true;
}

static bool begin_run(struct hybrid *hybrid)
{
    unsigned bytes = (unsigned)(hybrid->width + 7) / 8;
    while (hybrid->left == 0) {
        struct thrift thrift = {.at = hybrid->at, .end = hybrid->end};
        uint64_t header = thrift_varint(&thrift);
        if (thrift.is_bad || header >> 1 > UINT32_MAX)
            return false;
        hybrid->at = thrift.at;
        hybrid->is_packed = header & 1;
        hybrid->left = hybrid->is_packed ? (header >> 1) * 8 : header >> 1;
        hybrid->bit = 0;
        if (hybrid->is_packed)
            continue;
        if ((size_t)(hybrid->end - hybrid->at) < bytes)
            return false;
        hybrid->value = (uint32_t)read_bits(hybrid->at, 0, bytes * 8);
        hybrid->at += bytes;
    }
    return true;
}

bool hybrid_next(struct hybrid *hybrid, uint32_t *value_out)
{
    if (hybrid->left == 0 && !begin_run(hybrid))
        return false;
    hybrid->left--;
    if (hybrid->is_packed) {
        unsigned end = hybrid->bit + (unsigned)hybrid->width;
        if ((size_t)(hybrid->end - hybrid->at) < (end + 7) / 8)
            return false;
        hybrid->value = (uint32_t)read_bits(
                hybrid->at, hybrid->bit, (unsigned)hybrid->width);
        hybrid->at += end / 8;
        hybrid->bit = end % 8;
    }
    *value_out = hybrid->value;
    return true;
}

static bool delta_begin(
        struct delta *delta, const unsigned char *at, const unsigned char *end)
{
    enum { BLOCK_MAX = 1 << 20 };
    struct thrift thrift = {.at = at, .end = end};
    uint64_t block = thrift_varint(&thrift);
    uint64_t minis = thrift_varint(&thrift);
    uint64_t total = thrift_varint(&thrift);
    uint64_t first = thrift_varint(&thrift);
    if (thrift.is_bad || block == 0 || block > BLOCK_MAX || minis == 0 ||
        minis > block || block % minis != 0 || block / minis % 8 != 0)
        return false;
    *delta = (struct delta){
            .at = thrift.at,
            .end = end,
            .left = total,
            .minis = minis,
            .mini_size = block / minis,
            .value = first >> 1 ^ -(first & 1)};
    return true;
}

static bool begin_mini(struct delta *delta)
{
    if (delta->minis_left == 0) {
        struct thrift thrift = {.at = delta->at, .end = delta->end};
        uint64_t least = thrift_varint(&thrift);
        delta->least = least >> 1 ^ -(least & 1);
        if (thrift.is_bad || (uint64_t)(delta->end - thrift.at) < delta->minis)
            return false;
        delta->widths = thrift.at;
        delta->at = thrift.at + delta->minis;
        delta->minis_left = delta->minis;
    }
    delta->minis_left--;
    delta->width = *delta->widths++;
    delta->mini_left = delta->mini_size;
    delta->mini = delta->at;
    uint64_t bytes = delta->mini_size * delta->width / 8;
    if (delta->width > 64 || bytes > (uint64_t)(delta->end - delta->at))
        return false;
    delta->at += bytes;
    return true;
}

static bool delta_next(struct delta *delta, int64_t *value_out)
{
    if (delta->left == 0)
        return false;
    delta->left--;
    if (delta->has_begun) {
        if (delta->mini_left == 0 && !begin_mini(delta))
            return false;
        uint64_t index = delta->mini_size - delta->mini_left--;
        delta->value +=
                delta->least +
                read_bits(delta->mini, index * delta->width, delta->width);
    }
    delta->has_begun = true;
    *value_out = (int64_t)delta->value;
    return true;
}

static enum zd_status fail_short(const struct parquet_column *c)
{
    return column_damaged(c, "a page has fewer values than it says");
}

/* --- plain ---------------------------------------------------------------- */

static bool plain_next(
        struct values *v, enum parquet_type type, struct parquet_value *value)
{
    static const size_t widths[] = {
            [PARQUET_INT32] = 4,
            [PARQUET_INT64] = 8,
            [PARQUET_FLOAT] = 4,
            [PARQUET_DOUBLE] = 8,
            [PARQUET_BYTE_ARRAY] = 4 /* the length */};
    size_t left = (size_t)(v->end - v->at), width = widths[type];
    uint64_t raw = 0;
    if (left == 0 || width > left)
        return false;
    memcpy(&raw, v->at, width);
    v->at += width;
    if (type == PARQUET_BOOLEAN) {
        value->integer = *v->at >> v->bit & 1;
        v->bit = (v->bit + 1) % 8;
        v->at += v->bit == 0;
    } else if (type == PARQUET_BYTE_ARRAY) {
        if (raw > left - width)
            return false;
        value->bytes = v->at;
        value->count = (size_t)raw;
        v->at += raw;
    } else {
        value->integer = width == 4 ? (int32_t)raw : (int64_t)raw;
    }
    return true;
}

enum zd_status dictionary_read(
        struct parquet_column *c, int64_t count, size_t bytes)
{
    const unsigned char *at = c->dictionary_page.bytes;
    struct values plain = {.at = at, .end = at + bytes};
    struct parquet_value *value;
    /* a value takes at least one bit */
    if (count < 0 || (uint64_t)count > 8 * (uint64_t)bytes)
        return fail_short(c);
    ZD_TRY(parquet_reserve(
            c->file, &c->dictionary, (uint64_t)count * sizeof *value));
    value = (struct parquet_value *)c->dictionary.bytes;
    c->dictionary_count = (size_t)count;
    for (int64_t i = 0; i < count; i++)
        if (!plain_next(&plain, c->leaf->type, value++))
            return fail_short(c);
    return ZD_OK;
}

/* --- the other encodings -------------------------------------------------- */

/* By number, with the types that take them. */
enum {
    INTS = 1 << PARQUET_INT32 | 1 << PARQUET_INT64,
    STRINGS = 1 << PARQUET_BYTE_ARRAY,
    EVERY = ~0
};
static const struct {
    const char *name;
    int types;
} encodings[] = {
        {"PLAIN", EVERY},
        {"GROUP_VAR_INT", 0},
        {"PLAIN_DICTIONARY", EVERY},
        {"RLE", 1 << PARQUET_BOOLEAN},
        {"BIT_PACKED", 0},
        {"DELTA_BINARY_PACKED", INTS},
        {"DELTA_LENGTH_BYTE_ARRAY", STRINGS},
        {"DELTA_BYTE_ARRAY", STRINGS},
        {"RLE_DICTIONARY", EVERY},
        {"BYTE_STREAM_SPLIT", 0},
};

static enum zd_status check_encoding(
        const struct parquet_column *c, int encoding)
{
    if (encoding < 0 ||
        encoding >= (int)(sizeof encodings / sizeof encodings[0]))
        return column_unsupported(c, "encoding number %d", encoding);
    if (encodings[encoding].types >> c->leaf->type & 1)
        return ZD_OK;
    return column_unsupported(
            c, "the encoding %s for its type", encodings[encoding].name);
}

/* Skips the lengths at `at`; *end_out: after them. Skips by miniblocks: a
 * million lengths of 0 bits take two bytes. */
static bool skip_lengths(
        const unsigned char *at, const unsigned char *end,
        const unsigned char **end_out)
{
    struct delta delta;
    if (!delta_begin(&delta, at, end))
        return false;
    /* the first is in the header */
    for (uint64_t past = 1; past < delta.left; past += delta.mini_size)
        if (!begin_mini(&delta))
            return false;
    *end_out = delta.at;
    return true;
}

/* DELTA_LENGTH_BYTE_ARRAY is lengths, then bytes. DELTA_BYTE_ARRAY is the
 * lengths of the prefixes that values share with their predecessors, then the
 * suffixes in that encoding. */
static bool begin_strings(
        struct values *v, const unsigned char *at, const unsigned char *end)
{
    const unsigned char *after;
    v->last_bytes = 0;
    if (!delta_begin(&v->delta, at, end))
        return false;
    if (v->encoding == PARQUET_DELTA_BYTE_ARRAY) {
        if (!skip_lengths(at, end, &after) ||
            !delta_begin(&v->suffixes, after, end))
            return false;
        at = after;
    }
    return skip_lengths(at, end, &v->at);
}

enum zd_status values_begin(
        struct parquet_column *c, int encoding, const unsigned char *at,
        const unsigned char *end)
{
    struct values *v = &c->values;
    bool is_good = true;
    *v = (struct values){
            .encoding = (enum parquet_encoding)encoding,
            .at = at,
            .end = end,
            .last = v->last};
    ZD_TRY(check_encoding(c, encoding));
    if (at == end)
        return ZD_OK; /* all entries are null */
    switch (encoding) {
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        if (*at > 32)
            return column_damaged(c, "indexes of %d bits", *at);
        hybrid_begin(&v->hybrid, at + 1, end, *at);
        break;
    case PARQUET_RLE:
        is_good = hybrid_begin_sized(&v->hybrid, &at, end, 1);
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        is_good = delta_begin(&v->delta, at, end);
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case PARQUET_DELTA_BYTE_ARRAY:
        is_good = begin_strings(v, at, end);
        break;
    default:
        break;
    }
    /* a delta per entry that is not null */
    return is_good && v->delta.left <= (uint64_t)c->page_left
                   ? ZD_OK
                   : column_damaged(
                             c, "the lengths or counts of a page cannot be");
}

/* --- one value ------------------------------------------------------------ */

static bool string_next(struct values *v, struct parquet_value *value)
{
    int64_t bytes;
    if (!delta_next(&v->delta, &bytes) || bytes < 0 || bytes > v->end - v->at)
        return false;
    value->bytes = v->at;
    value->count = (size_t)bytes;
    v->at += bytes;
    return true;
}

/* `last` keeps the prefix of the previous value; the suffix is appended
 * there. */
static enum zd_status front_coded_next(
        struct parquet_column *c, struct parquet_value *value)
{
    struct values *v = &c->values;
    int64_t same, rest;
    if (!delta_next(&v->delta, &same) || same < 0 ||
        (uint64_t)same > v->last_bytes || !delta_next(&v->suffixes, &rest) ||
        rest < 0 || rest > v->end - v->at)
        return fail_short(c);
    size_t bytes = (size_t)same + (size_t)rest;
    if (bytes > v->last.capacity) {
        struct parquet_buffer larger = {0};
        ZD_TRY(parquet_reserve(c->file, &larger, 2 * bytes));
        if (same > 0)
            memcpy(larger.bytes, v->last.bytes, (size_t)same);
        parquet_release(c->file, &v->last);
        v->last = larger;
    }
    if (rest > 0)
        memcpy(v->last.bytes + same, v->at, (size_t)rest);
    v->at += rest;
    v->last_bytes = bytes;
    value->bytes = v->last.bytes;
    value->count = bytes;
    return ZD_OK;
}

enum zd_status column_value(
        struct parquet_column *c, struct parquet_value *value_out)
{
    const struct parquet_value *dictionary =
            (struct parquet_value *)c->dictionary.bytes;
    struct values *v = &c->values;
    enum parquet_type type = c->leaf->type;
    uint32_t index = 0;
    bool is_good = false;
    switch (v->encoding) {
    case PARQUET_PLAIN:
        is_good = plain_next(v, type, value_out);
        break;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        is_good =
                hybrid_next(&v->hybrid, &index) && index < c->dictionary_count;
        if (is_good)
            *value_out = dictionary[index];
        break;
    case PARQUET_RLE:
        is_good = hybrid_next(&v->hybrid, &index);
        value_out->integer = index;
        break;
    case PARQUET_DELTA_BINARY_PACKED:
        is_good = delta_next(&v->delta, &value_out->integer);
        if (type == PARQUET_INT32)
            value_out->integer = (int32_t)value_out->integer;
        break;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        is_good = string_next(v, value_out);
        break;
    case PARQUET_DELTA_BYTE_ARRAY:
        return front_coded_next(c, value_out);
    }
    return is_good ? ZD_OK : fail_short(c);
}
