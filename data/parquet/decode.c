#include "data/parquet/decode.h"

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

bool delta_begin(
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
            .total = total,
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

bool delta_next(struct delta *delta, int64_t *value_out)
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

const unsigned char *delta_end(const struct delta *delta)
{
    return delta->at;
}
