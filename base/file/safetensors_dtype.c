#include "base/file/safetensors_dtype.h"

#include <string.h>

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
    uint64_t count = 1, bits;
    for (int i = 0; i < dims; i++)
        if (__builtin_mul_overflow(count, (uint64_t)shape[i], &count))
            goto overflow;
    if (__builtin_mul_overflow(
                count, (uint64_t)types[st_dtype_rank(dtype)].bits, &bits))
        goto overflow;
    if (bits % 8)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0725",
                "%s: tensor \"%s\" does not fill whole bytes", path, name);
    *count_out = count;
    *bytes_out = bits / 8;
    return ZD_OK;

overflow:
    return ZD_FAIL(
            ZD_ERR_DATA, "E0725",
            "%s: the shape of tensor \"%s\" is beyond 64 bits", path, name);
}
