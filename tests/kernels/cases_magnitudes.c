#include "cases.h"

#include "run.h"

/* Of a weight either way round. */
static void gains_shape(int out, int in, int rank)
{
    enum dtype type = pair_type();
    size_t rows = (size_t)out, low = (size_t)rank;
    pairs_begin();
    struct pair w = pair_of(type, rows * (size_t)in, 1.0f, 1);
    struct pair factor = pair_of(type, rows * low, 0.1f, 2);
    struct pair change = pair_of(type, rows, 1.0f, 3);
    struct pair cross = pair_of(DTYPE_FP32, rows * low, 1.0f, 4);
    struct pair gram = pair_of(DTYPE_FP32, low * low, 0.1f, 5);
    for (int turned = 0; turned < 2; turned++) {
        struct pair gain = pair_of(DTYPE_FP32, rows, 1.0f, 6);
        struct pair inverse = pair_of(DTYPE_FP32, rows, 1.0f, 7);
        RUN(row_gains(
                NULL, gain.of[r], inverse.of[r],
                &(struct adapted_rows){
                        .weight = w.of[r],
                        .b = factor.of[r],
                        .change = change.of[r],
                        .cross = cross.of[r],
                        .gram = gram.of[r],
                        .scale = 0.5f,
                        .out = out,
                        .in = in,
                        .r = rank,
                        .conv1d = turned}));
        PAIRS_COMPARE(gain, inverse);
    }
}

void row_gains_case(void)
{
    static const int shapes[][3] = {
            {1, 16, 1}, {37, 48, 3}, {600, 67, 8}, {130, 509, 33}};
    for (int s = 0; s < 4; s++)
        gains_shape(shapes[s][0], shapes[s][1], shapes[s][2]);
}

/* Rows apart or not, in place or not, with a gain and a bias or without, wide
 * or not. */
static void columns_shape(int N, int C, int flags)
{
    enum dtype narrow = pair_type();
    enum dtype type = flags & 16 ? DTYPE_FP32 : narrow;
    int64_t stride = flags & 1 ? C + 5 : C;
    size_t count = (size_t)N * (size_t)stride;
    bool gains = flags & 2, biased = flags & 4, apart = flags & 8;
    pairs_begin();
    struct pair x = pair_of(type, count, 1.0f, 1);
    struct pair out = pair_of(type, count, 1.0f, 2);
    struct pair gain = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 3);
    struct pair bias = pair_of(narrow, (size_t)C, 1.0f, 4);
    RUN(scale_columns(
            NULL, out.of[r], stride, apart ? x.of[r] : out.of[r], stride, type,
            gains ? gain.of[r] : NULL, biased ? bias.of[r] : NULL, N, C));
    pair_compare(out);
}

void scale_columns_case(void)
{
    static const int shapes[][2] = {{1, 1}, {7, 16}, {13, 67}, {37, 1030}};
    for (int s = 0; s < 4; s++)
        for (int flags = 0; flags < 32; flags++)
            columns_shape(shapes[s][0], shapes[s][1], flags);
}

static void dots_shape(int N, int C, bool accumulate)
{
    enum dtype type = pair_type();
    int64_t stride = C % 16 ? C + 3 : C + 16; /* whole packs, or not */
    pairs_begin();
    struct pair x = pair_of(type, (size_t)N * (size_t)stride, 0.3f, 1);
    struct pair y = pair_of(type, (size_t)N * (size_t)C, 0.3f, 2);
    struct pair factor = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 3);
    struct pair dots = pair_of(DTYPE_FP32, (size_t)C, 1.0f, 4);
    RUN(column_dots(
            NULL, dots.of[r], factor.of[r], x.of[r], stride, y.of[r], C, N, C,
            accumulate));
    pair_compare(dots);
}

void column_dots_case(void)
{
    static const int shapes[][2] = {{1, 1}, {300, 48}, {37, 67}, {700, 1030}};
    for (int s = 0; s < 8; s++)
        dots_shape(shapes[s / 2][0], shapes[s / 2][1], s & 1);
}
