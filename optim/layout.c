#include "optim/codec.h"

#include <string.h>

size_t optim_lane_bytes(enum optim_format format, size_t count)
{
    switch (format) {
    case OPTIM_FP32:
        return count * 4;
    case OPTIM_BF16:
        return count * 2;
    case OPTIM_8BIT:
        return count;
    case OPTIM_NONE:
    case OPTIM_BLOCKS:
        break;
    }
    return 0;
}

size_t optim_scale_count(enum optim_format format, size_t count)
{
    return format == OPTIM_8BIT ? (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK : 0;
}

enum zd_status optim_lane_clear(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count)
{
    size_t scale_count = optim_scale_count(format, count);
    if (format != OPTIM_8BIT) {
        memset(values, 0, optim_lane_bytes(format, count));
        return ZD_OK;
    }
    uint8_t code;
    float nothing = 0, scale;
    codec_encode_plain(lane, &nothing, 1, &code, &scale);
    memset(values, code, count);
    for (size_t i = 0; i < scale_count; i++)
        scales[i] = scale;
    return ZD_OK;
}

void optim_lane_read(
        enum optim_lane lane, enum optim_format format, const void *values,
        const float *scales, size_t count, float *out)
{
    if (format == OPTIM_FP32)
        memcpy(out, values, count * sizeof *out);
    else if (format == OPTIM_BF16)
        dtype_convert(out, DTYPE_FP32, values, DTYPE_BF16, count);
    else if (format == OPTIM_8BIT)
        for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
            size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
            codec_decode(
                    lane, (const uint8_t *)values + at,
                    scales[at / OPTIM_QBLOCK], n, out + at);
        }
}

void optim_lane_write(
        enum optim_lane lane, enum optim_format format, void *values,
        float *scales, size_t count, const float *in)
{
    if (format == OPTIM_FP32)
        memcpy(values, in, count * sizeof *in);
    else if (format == OPTIM_BF16)
        dtype_convert(values, DTYPE_BF16, in, DTYPE_FP32, count);
    else if (format == OPTIM_8BIT)
        for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
            size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
            codec_encode(
                    lane, in + at, n, (uint8_t *)values + at,
                    &scales[at / OPTIM_QBLOCK]);
        }
}
