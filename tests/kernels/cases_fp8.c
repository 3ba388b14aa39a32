#include "cases.h"

#include "arrays.h"
#include "run.h"

/* On a GPU FP8 is bf16's. */
static bool has_fp8(void)
{
    return pair_type() == DTYPE_BF16 || !pair_runner(0)->device;
}

/* Of many magnitudes, with rows and blocks of zeros and of what is too small
 * for a scale, and where `hard` with an infinity and a NaN; as words of memory.
 */
static struct pair x_of(int rows, int stride, bool hard)
{
    enum dtype type = pair_type();
    size_t count = (size_t)rows * (size_t)stride;
    float *floats = random_floats(count, 1.0f, (uint64_t)stride);
    int32_t *words = malloc(count * sizeof *words);
    for (size_t i = 0; i < count; i++) {
        size_t r = i / (size_t)stride, c = i % (size_t)stride;
        floats[i] *= ldexpf(1, (int)(i * 7 % 23) - 18);
        if (r % 7 == 3 || r / 128 == 1)
            floats[i] *= c < 130 ? 0 : 0x1p-110f;
    }
    if (hard)
        floats[count / 3] = INFINITY, floats[count / 2] = NAN;
    dtype_convert(words, type, floats, DTYPE_FP32, count);
    struct pair x = pair_of_ints(words, count * dtype_bytes(type) / 4);
    free(floats), free(words);
    return x;
}

static void cast_shape(int rows, int columns, int pad, int kind, bool hard)
{
    enum dtype type = pair_type(), to = kind & 1 ? DTYPE_E5M2 : DTYPE_E4M3;
    enum scale_layout layout = (enum scale_layout)(SCALES_TENSOR + kind / 2);
    int stride = columns + pad, padded = fp8_padded(rows) + pad * 16;
    size_t R = (size_t)rows, C = (size_t)columns, K = (size_t)padded;
    pairs_begin();
    struct pair x = x_of(rows, stride, hard);
    struct pair amax = pair_of(DTYPE_FP32, 2, 0.1f, 1);
    struct pair codes = pair_of(to, R * C, 1.0f, 2);
    struct pair turned = pair_of(to, K * C, 1.0f, 3);
    struct pair alone = pair_of(to, K * C, 1.0f, 4);
    struct pair scales =
            pair_of(DTYPE_FP32, fp8_scale_count(layout, R, C), 1.0f, 5);
    struct pair turned_scales =
            pair_of(DTYPE_FP32, fp8_scale_count(layout, C, K), 1.0f, 6);
    for (int i = 0; i < 2; i++) /* alone, and with what is there */
        RUN(fp8_amax(
                NULL, (float *)amax.of[r] + i, x.of[r], type, rows, columns,
                stride, i));
    struct fp8_cast cast = {
            .from = type,
            .rows = rows,
            .columns = columns,
            .stride = stride,
            .to = to,
            .layout = layout,
            .padded = padded};
    for (int i = 0; i < 3; i++) { /* both, the transpose, the codes */
        RUN_OF((cast.x = x.of[r],
                cast.amax = layout == SCALES_TENSOR ? amax.of[r] : NULL,
                cast.codes = i == 1 ? NULL : codes.of[r],
                cast.scales = i == 1 ? NULL : scales.of[r],
                cast.transposed = i == 2   ? NULL
                                  : i == 1 ? alone.of[r]
                                           : turned.of[r],
                cast.transposed_scales = i == 2 ? NULL : turned_scales.of[r],
                ops->fp8_cast(NULL, &cast)))
    }
    PAIRS_COMPARE(codes, turned, alone);
    if (!hard) /* else infinite */
        PAIRS_COMPARE(amax, scales, turned_scales);
}

/* Codes that lie already, in dense tiles. */
static void cast_codes(int rows, int columns)
{
    size_t R = (size_t)rows, C = (size_t)columns;
    size_t K = (size_t)fp8_padded(rows);
    pairs_begin();
    struct pair x = pair_of(DTYPE_E4M3, R * C, 300.0f, 1);
    struct pair dense =
            pair_of(DTYPE_FP32, fp8_blocks(R) * fp8_blocks(C), 1.0f, 2);
    struct pair turned = pair_of(DTYPE_E4M3, K * C, 1.0f, 3);
    struct pair scales =
            pair_of(DTYPE_FP32, fp8_scale_count(SCALES_128X128, R, C), 1.0f, 4);
    struct pair turned_scales =
            pair_of(DTYPE_FP32, fp8_scale_count(SCALES_128X128, C, K), 1.0f, 5);
    RUN(fp8_cast(
            NULL, &(struct fp8_cast){
                          .x = x.of[r],
                          .from = DTYPE_E4M3,
                          .rows = rows,
                          .columns = columns,
                          .stride = columns,
                          .to = DTYPE_E4M3,
                          .layout = SCALES_128X128,
                          .from_scales = dense.of[r],
                          .scales = scales.of[r],
                          .transposed = turned.of[r],
                          .transposed_scales = turned_scales.of[r],
                          .padded = (int)K}));
    PAIRS_COMPARE(turned, scales, turned_scales);
}

/* All 65,536 bf16 as they are: amax is the largest code's value. */
static void cast_every_bf16(enum dtype to)
{
    enum { SIDE = 256 };
    int32_t words[SIDE * SIDE / 2];
    float most = fp8_largest(to);
    int32_t amax_bits;
    for (int i = 0; i < SIDE * SIDE / 2; i++)
        words[i] = (int32_t)((uint32_t)(2 * i + 1) << 16 | (uint32_t)(2 * i));
    memcpy(&amax_bits, &most, sizeof most);
    pairs_begin();
    struct pair x = pair_of_ints(words, SIDE * SIDE / 2);
    struct pair amax = pair_of_ints(&amax_bits, 1);
    struct pair codes = pair_of(to, SIDE * SIDE, 1.0f, 1);
    struct pair scale = pair_of(DTYPE_FP32, 1, 1.0f, 2);
    RUN(fp8_cast(
            NULL, &(struct fp8_cast){
                          .x = x.of[r],
                          .from = DTYPE_BF16,
                          .rows = SIDE,
                          .columns = SIDE,
                          .stride = SIDE,
                          .to = to,
                          .layout = SCALES_TENSOR,
                          .amax = amax.of[r],
                          .codes = codes.of[r],
                          .scales = scale.of[r]}));
    PAIRS_COMPARE(codes, scale);
}

void fp8_cast_case(void)
{
    static const int shapes[][3] = {
            {1, 16, 0}, {37, 48, 8}, {130, 272, 16}, {257, 48, 0}};
    for (int i = 0; i < 4 && has_fp8(); i++) {
        for (int kind = 0; kind < 6; kind++)
            for (int hard = 0; hard < 2; hard++)
                cast_shape(
                        shapes[i][0], shapes[i][1], shapes[i][2], kind, hard);
        cast_codes(shapes[i][0], shapes[i][1]);
    }
    for (int to = DTYPE_E4M3; to <= DTYPE_E5M2; to++)
        if (pair_type() == DTYPE_BF16)
            cast_every_bf16((enum dtype)to);
}

/* --- matmuls -------------------------------------------------------------- */

struct operands {
    enum dtype a, b;
    enum scale_layout of_a, of_b;
};

static void matmul_shape(int M, int N, int K, struct operands by, bool narrow)
{
    enum dtype out_type = narrow ? DTYPE_BF16 : DTYPE_FP32;
    size_t m = (size_t)M, n = (size_t)N, k = (size_t)K;
    pairs_begin();
    struct pair a = pair_of(by.a, m * k, 4.0f, 1);
    struct pair b = pair_of(by.b, n * k, 4.0f, 2);
    struct pair a_scales =
            pair_of(DTYPE_FP32, fp8_scale_count(by.of_a, m, k), 1.0f, 3);
    struct pair b_scales =
            pair_of(DTYPE_FP32, fp8_scale_count(by.of_b, n, k),
                    0.1f / sqrtf((float)K), 4);
    struct pair bias = pair_of(DTYPE_BF16, n, 1.0f, 5);
    struct pair out = pair_of(out_type, m * n, 1.0f, 6);
    RUN(matmul(
            NULL, &(struct matmul){
                          .M = M,
                          .N = N,
                          .K = K,
                          .a = {a.of[r], by.a, .scales = a_scales.of[r],
                                .layout = by.of_a},
                          .b = {b.of[r], by.b, true, .scales = b_scales.of[r],
                                .layout = by.of_b},
                          .out = {out.of[r], out_type},
                          .bias = narrow && M % 2 ? bias.of[r] : NULL,
                          .accumulate = !narrow && M % 2}));
    pair_compare(out);
}

/* Each code times 1, of those that are finite. */
static void multiply_every_code(enum dtype type)
{
    enum { CODES = 256, K = 16 };
    _Alignas(int32_t) uint8_t a[CODES * K] = {0}, b[K * K] = {0};
    int most = type == DTYPE_E5M2 ? 0x7b : 0x7e;
    for (int i = 0; i < CODES; i++)
        a[i * K] = (i & 0x7f) <= most ? (uint8_t)i : 0;
    for (int i = 0; i < K; i++)
        b[i * K] = float_to_fp8(1, DTYPE_E4M3);
    pairs_begin();
    struct pair codes = pair_of_ints((const int32_t *)a, sizeof a / 4);
    struct pair ones = pair_of_ints((const int32_t *)b, sizeof b / 4);
    struct pair scale = pair_of(DTYPE_FP32, 1, 1.0f, 1);
    struct pair out = pair_of(DTYPE_FP32, CODES * K, 1.0f, 2);
    RUN(matmul(
            NULL, &(struct matmul){
                          .M = CODES,
                          .N = K,
                          .K = K,
                          .a = {codes.of[r], type, .scales = scale.of[r],
                                .layout = SCALES_TENSOR},
                          .b = {ones.of[r], DTYPE_E4M3, true,
                                .scales = scale.of[r], .layout = SCALES_TENSOR},
                          .out = {out.of[r], DTYPE_FP32}}));
    pair_compare(out);
}

static void each_matmul(bool narrow)
{
    static const struct operands operands[] = {
            {DTYPE_E4M3, DTYPE_E4M3, SCALES_TENSOR, SCALES_TENSOR},
            {DTYPE_E5M2, DTYPE_E4M3, SCALES_TENSOR, SCALES_TENSOR},
            {DTYPE_E4M3, DTYPE_E4M3, SCALES_1X128, SCALES_128X128},
            {DTYPE_E4M3, DTYPE_E4M3, SCALES_1X128, SCALES_1X128},
            {DTYPE_E4M3, DTYPE_E4M3, SCALES_128X128, SCALES_1X128}};
    static const int shapes[][3] = {
            {1, 16, 16},
            {37, 48, 144},
            {130, 48, 272},
            {16, 1104, 80},
            {13, 32, 1168}};
    for (int s = 0; s < 5 && pair_type() == DTYPE_BF16; s++)
        for (int i = 0; i < 5; i++)
            matmul_shape(
                    shapes[s][0], shapes[s][1], shapes[s][2], operands[i],
                    narrow);
}

void fp8_matmul_case(void)
{
    each_matmul(true);
}

void fp8_gradient_case(void)
{
    each_matmul(false);
}

void fp8_codes_case(void)
{
    for (int type = DTYPE_E4M3; type <= DTYPE_E5M2; type++)
        if (pair_type() == DTYPE_BF16)
            multiply_every_code((enum dtype)type);
}
