/* dequantize.c - speed of dequantization, relative to a copy of as many bytes.
 *
 *   dequantize [THREADS]
 *
 * A matrix of 4096 x 11008, larger than any cache. Both read and write:
 * dequantization's bytes are codes, scales and elements. Each row is the best
 * of ROUNDS, with decoding and copy in turn. */
#include "bench/timing.h"

#include "kernels/backend.h"
#include "kernels/cpu/threads.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4096, COLUMNS = 11008, ROUNDS = 7 };
static const size_t count = (size_t)ROWS * COLUMNS;

struct matrix {
    uint8_t *codes;
    float *scales;
    char *out, *from;
};

static void copy(char *to, const char *from, size_t bytes)
{
    enum { PIECE = 1 << 20 };
    int64_t pieces = (int64_t)(bytes / PIECE);
#pragma omp parallel for schedule(static) num_threads(kernels_threads())
    for (int64_t i = 0; i < pieces; i++)
        memcpy(to + i * PIECE, from + i * PIECE, PIECE);
}

static void row(
        const char *isa, enum quant_format format, enum dtype type,
        const struct matrix *m)
{
    const struct cpu_backend *backend = kernels_backend(isa, type);
    if (!backend)
        return;
    struct quant_matrix matrix = {
            .format = format,
            .rows = ROWS,
            .columns = COLUMNS,
            .block = QUANT_BLOCK};
    size_t code_bytes = format <= QUANT_FP4 ? count / 2 + count / 16 : count;
    size_t bytes = code_bytes + count * dtype_bytes(type);
    double decoding = 1e9, copying = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = clock_seconds();
        backend->ops.dequantize(NULL, m->out, m->codes, m->scales, &matrix);
        double middle = clock_seconds();
        copy(m->out, m->from, bytes / 2);
        double end = clock_seconds();
        decoding = middle - begin < decoding ? middle - begin : decoding;
        copying = end - middle < copying ? end - middle : copying;
    }
    printf("%-7s %-5s %-5s %8.2f GB/s  copy %8.2f GB/s  %.2f\n", isa,
           quant_format_name(format), dtype_name(type),
           (double)bytes / decoding / 1e9, (double)bytes / copying / 1e9,
           copying / decoding);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    struct matrix m = {
            .codes = malloc(count),
            .scales = malloc(count / 32 * sizeof(float)),
            .out = malloc(count * 4),
            .from = malloc(count * 4)};
    kernels_set_threads(argc > 1 ? atoi(argv[1]) : 1);
    for (size_t i = 0; i < count; i++)
        m.codes[i] = (uint8_t)(i * 167 % 120);
    for (size_t i = 0; i < count / 32; i++)
        m.scales[i] = 0.01f * (float)(i % 13);
    memset(m.out, 0, count * 4);
    memset(m.from, 1, count * 4);
    for (int isa = 0; isa < 3; isa++)
        for (int format = QUANT_NF4; format <= QUANT_FP8; format++)
            for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++)
                row(names[isa], (enum quant_format)format, (enum dtype)type,
                    &m);
    return 0;
}
