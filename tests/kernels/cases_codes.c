#include "cases.h"

#include "base/must.h"
#include "base/number/rng.h"
#include "run.h"

#include <stdlib.h>

/* Codes as they come: every one is legal, but two of e4m3. */
static struct pair random_codes(const struct quant_matrix *m, uint64_t seed)
{
    size_t bytes = quant_code_bytes(m, quant_matrix_count(m));
    size_t words = quant_parts(bytes, sizeof(int32_t));
    ZD_FREED int32_t *codes = malloc(words * sizeof *codes);
    uint8_t *at = (uint8_t *)codes;
    for (size_t i = 0; i < words * sizeof *codes; i++) {
        at[i] = (uint8_t)(rng_u64(seed, i, 0) >> 32);
        if (m->format == QUANT_FP8 && (at[i] & 0x7f) == 0x7f)
            at[i] = 0x80;
    }
    struct pair pair = pair_of_ints(codes, words);
    return pair;
}

static struct pair random_scales(const struct quant_matrix *m, uint64_t seed)
{
    size_t count = quant_scale_count(m);
    size_t words = quant_parts(quant_scale_bytes(m), sizeof(int32_t));
    ZD_FREED float *of_blocks = malloc(count * sizeof *of_blocks);
    ZD_FREED int32_t *scales = calloc(words, sizeof *scales);
    for (size_t i = 0; i < count; i++)
        of_blocks[i] = (float)(rng_u64(seed, i, 1) >> 40) * 0x1p-24f;
    quant_store_scales(scales, of_blocks, m);
    struct pair pair = pair_of_ints(scales, words);
    return pair;
}

static void dequantize_matrix(const struct quant_matrix *m)
{
    pairs_begin();
    struct pair codes = random_codes(m, (uint64_t)m->columns);
    struct pair scales = random_scales(m, (uint64_t)m->rows);
    struct pair out = pair_of(pair_type(), quant_matrix_count(m), 1.0f, 2);
    RUN(dequantize(NULL, out.of[r], codes.of[r], scales.of[r], m));
    pair_compare(out);
}

/* Blocks that a row does not end with, a short last one, odd counts, tiles cut
 * at both ends; large enough for several threads. */
void dequantize_case(void)
{
    static const int shapes[][2] = {
            {1, 1}, {5, 13}, {7, 160}, {130, 264}, {300, 131}};
    static const size_t blocks[] = {32, 64, 256, 4096};
    for (int s = 0; s < 5; s++) {
        struct quant_matrix m = {.rows = shapes[s][0], .columns = shapes[s][1]};
        for (int i = 0; i < 8; i++) {
            m.format = i % 2 ? QUANT_NF4 : QUANT_FP4;
            m.block = blocks[i / 2];
            m.nested_block = 0;
            dequantize_matrix(&m);
            m.nested_block = QUANT_NESTED_BLOCK;
            dequantize_matrix(&m);
        }
        m.nested_block = 0;
        m.format = QUANT_INT8;
        dequantize_matrix(&m);
        m.format = QUANT_FP8;
        dequantize_matrix(&m);
    }
}
