#include "tests/comm/suite_data.h"

#include "base/device/device_memory.h"

#include <stdlib.h>

const enum dtype data_types[DATA_TYPES] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

/* --- memory of the device ------------------------------------------------- */

void *data_up(void *host, size_t bytes)
{
    void *device = host;
    if (device_backend() == DEVICE_CPU)
        return host;
    if (device_take(bytes + 1, &device) != ZD_OK ||
        (bytes && device_write(device, host, bytes) != ZD_OK))
        abort();
    return device;
}

void data_look(void *host, const void *device, size_t bytes)
{
    if (host != device && bytes && device_read(host, device, bytes) != ZD_OK)
        abort();
}

void data_drop(void *host, void *device, size_t bytes)
{
    if (host != device)
        device_give(device, bytes + 1);
}

/* --- data ----------------------------------------------------------------- */

/* Element of a rank's array: magnitudes differ, so that the order of a sum
 * shows in its bits. */
float data_value(int rank, size_t i)
{
    static const float scales[] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t bits = ((uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + i;
    bits = (bits ^ (bits >> 31)) * 0xbf58476d1ce4e5b9u;
    bits ^= bits >> 29;
    return (float)(int32_t)(uint32_t)bits * 0x1p-31f * scales[bits >> 61];
}

void data_fill(void *out, enum dtype type, int rank, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = data_value(rank, first + i);
        dtype_convert(
                (char *)out + i * dtype_bytes(type), type, &value, DTYPE_FP32,
                1);
    }
}

static float stored_value(enum dtype type, int rank, size_t i)
{
    float value = data_value(rank, i), back;
    uint16_t narrow;
    if (type == DTYPE_FP32)
        return value;
    dtype_convert(&narrow, type, &value, DTYPE_FP32, 1);
    dtype_convert(&back, DTYPE_FP32, &narrow, type, 1);
    return back;
}

static float rounded(enum dtype type, float value)
{
    uint16_t narrow;
    if (type != DTYPE_FP32) {
        dtype_convert(&narrow, type, &value, DTYPE_FP32, 1);
        dtype_convert(&value, DTYPE_FP32, &narrow, type, 1);
    }
    return value;
}

int data_rank(struct data_row row, int place)
{
    return row.first + place * row.stride;
}

void data_expect_sum(
        void *out, enum dtype type, const struct comm *comm,
        struct data_row row, size_t first, size_t count, const float *added_to)
{
    int size = comm_size(comm), per_node = comm_mesh(comm).node;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int node = 0; node < size; node += per_node) {
            float part = stored_value(type, data_rank(row, node), first + i);
            for (int r = node + 1; r < node + per_node; r++)
                part += stored_value(type, data_rank(row, r), first + i);
            if (per_node < size)
                part = rounded(type, part);
            sum = node == 0 ? part : sum + part;
        }
        if (added_to)
            sum += added_to[i];
        dtype_convert(
                (char *)out + i * dtype_bytes(type), type, &sum, DTYPE_FP32, 1);
    }
}
