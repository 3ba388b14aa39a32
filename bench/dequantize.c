/* dequantize.c - how fast codes become elements, against a copy of as many
 * bytes.
 *
 *   dequantize [THREADS]
 *
 * A matrix of 4096 x 11008, larger than any cache. A copy reads and writes; so
 * does decoding: its bytes are those of codes, scales and elements. Each row is
 * the best of ROUNDS, decoding and copy in turn.
 *
 * Then a decode step's product, of 1 and 2 rows: with the codes as they lie
 * (codes_rows.h), and decoded whole first. */
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

/* --- products of a few rows ----------------------------------------------- */

static void products(
        enum quant_format format, enum dtype type, const struct matrix *m)
{
    const struct kernels *k;
    struct quant_matrix matrix = {
            .format = format,
            .rows = ROWS,
            .columns = COLUMNS,
            .block = QUANT_BLOCK,
            .nested_block = format <= QUANT_FP4 ? QUANT_NESTED_BLOCK : 0};
    static char a[2 * COLUMNS * 4], out[2 * ROWS * 4];
    if (kernels_cpu(type, &k) != ZD_OK)
        exit(70);
    for (int rows = 1; rows <= 2; rows++) {
        double coded = 1e9, decoded = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            double begin = clock_seconds();
            k->codes_rows(
                    NULL, out, ROWS, a, m->codes, m->scales, &matrix, NULL,
                    rows);
            double middle = clock_seconds();
            k->dequantize(NULL, m->out, m->codes, m->scales, &matrix);
            k->matmul(
                    NULL, &(struct matmul){
                                  .M = rows,
                                  .N = ROWS,
                                  .K = COLUMNS,
                                  .a = {a, type},
                                  .b = {m->out, type, true},
                                  .out = {out, type}});
            double end = clock_seconds();
            coded = middle - begin < coded ? middle - begin : coded;
            decoded = end - middle < decoded ? end - middle : decoded;
        }
        printf("%-5s %-5s %d rows %8.2f ms  decoded first %8.2f ms  %.2f\n",
               quant_format_name(format), dtype_name(type), rows, 1e3 * coded,
               1e3 * decoded, decoded / coded);
    }
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
    for (int format = QUANT_NF4; format <= QUANT_FP8; format++)
        for (int type = DTYPE_FP32; type <= DTYPE_BF16; type++)
            products((enum quant_format)format, (enum dtype)type, &m);
    return 0;
}
