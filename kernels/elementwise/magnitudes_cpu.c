#include "kernels/cpu/fast.h"
#include "kernels/elementwise/magnitudes.h"

row_gains_fn FAST(row_gains);
scale_columns_fn FAST(scale_columns);
column_dots_fn FAST(column_dots);

/* Columns summed in the first-level cache; rows summed before they join the
 * total. */
enum { COLUMNS = 512, ROWS = 128 };

/* --- gains ---------------------------------------------------------------- */

static void finish_gain(
        const struct adapted_rows *rows, int o, double squares, float *gain,
        float *inverse)
{
    int64_t r = rows->r;
    const elem *b = (const elem *)rows->b + o * r;
    const float *cross = rows->cross + o * r;
    double dot = 0, form = 0, s = rows->scale;
    for (int64_t k = 0; k < r; k++) {
        float at = load_some(b + k, 1)[0];
        vf sum = {0};
        for (int64_t j = 0; j < r; j++)
            sum[j % VL] += rows->gram[k * r + j] * load_some(b + j, 1)[0];
        dot += (double)at * cross[k];
        form += (double)at * vf_sum(sum);
    }
    double all = squares + 2 * s * dot + s * s * form;
    double over = all > 0 ? 1 / sqrt(all) : 0;
    inverse[o] = (float)over;
    gain[o] =
            (float)((sqrt(squares) +
                     load_some((const elem *)rows->change + o, 1)[0]) *
                    over);
}

static float squares_of(const elem *x, int count)
{
    vf sum = {0};
    for (int i = 0; i < count; i += VL) {
        vf v = load_some(x + i, count - i);
        sum += v * v;
    }
    return vf_sum(sum);
}

/* Of columns first .. first + columns - 1 of a Conv1D. */
static void column_gains(
        const struct adapted_rows *rows, int first, int columns, float *gain,
        float *inverse)
{
    float sum[COLUMNS] = {0};
    for (int64_t i = 0; i < rows->in; i++) {
        const elem *row = (const elem *)rows->weight + i * rows->out + first;
        for (int c = 0; c < columns; c += VL) {
            vf v = load_some(row + c, columns - c);
            vf_store(sum + c, vf_load(sum + c) + v * v);
        }
    }
    for (int c = 0; c < columns; c++)
        finish_gain(rows, first + c, sum[c], gain, inverse);
}

enum zd_status FAST(row_gains)(
        struct stream *stream, float *gain, float *inverse,
        const struct adapted_rows *rows)
{
    int in = rows->in, out = rows->out;
    int threads = threads_for((size_t)in * (size_t)out);
    if (rows->conv1d) {
#pragma omp parallel for num_threads(threads)
        for (int first = 0; first < out; first += COLUMNS)
            column_gains(
                    rows, first, out - first < COLUMNS ? out - first : COLUMNS,
                    gain, inverse);
        return ZD_OK;
    }
#pragma omp parallel for num_threads(threads)
    for (int o = 0; o < out; o++)
        finish_gain(
                rows, o,
                squares_of((const elem *)rows->weight + (int64_t)o * in, in),
                gain, inverse);
    return ZD_OK;
}

/* --- columns -------------------------------------------------------------- */

/* `wide`: x and out are floats. */
ALWAYS_INLINE void scale_row(
        void *out, const void *x, const float *gain, const elem *bias, int C,
        bool wide)
{
    for (int c = 0; c < C; c += VL) {
        vf v = wide ? vf_load_some((const float *)x + c, C - c)
                    : load_some((const elem *)x + c, C - c);
        vf b = bias ? load_some(bias + c, C - c) : (vf){0};
        if (gain)
            v = b + vf_load_some(gain + c, C - c) * (v - b);
        if (wide)
            vf_store_some((float *)out + c, v, C - c);
        else
            store_some((elem *)out + c, v, C - c);
    }
}

enum zd_status FAST(scale_columns)(
        struct stream *stream, void *out, int64_t out_stride, const void *x,
        int64_t x_stride, enum dtype type, const float *gain, const void *bias,
        int N, int C)
{
    bool wide = type == DTYPE_FP32;
    int64_t bytes = (int64_t)dtype_bytes(wide ? DTYPE_FP32 : ELEM_DTYPE);
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int n = 0; n < N; n++) {
        char *o = (char *)out + n * out_stride * bytes;
        const char *row = (const char *)x + n * x_stride * bytes;
        if (wide)
            scale_row(o, row, gain, bias, C, true);
        else
            scale_row(o, row, gain, bias, C, false);
    }
    return ZD_OK;
}

enum zd_status FAST(column_dots)(
        struct stream *stream, float *out, const float *factor, const void *a,
        int64_t a_stride, const void *b, int64_t b_stride, int N, int C,
        bool accumulate)
{
#pragma omp parallel for num_threads(threads_for((size_t)N *C))
    for (int first = 0; first < C; first += COLUMNS) {
        int columns = C - first < COLUMNS ? C - first : COLUMNS;
        float sum[COLUMNS], total[COLUMNS] = {0};
        for (int n = 0; n < N; n++) {
            const elem *x = (const elem *)a + n * a_stride + first;
            const elem *y = (const elem *)b + n * b_stride + first;
            if (n % ROWS == 0)
                memset(sum, 0, sizeof sum);
            for (int c = 0; c < columns; c += VL)
                vf_store(
                        sum + c, vf_load(sum + c) +
                                         load_some(x + c, columns - c) *
                                                 load_some(y + c, columns - c));
            if (n % ROWS == ROWS - 1 || n == N - 1)
                for (int c = 0; c < columns; c++)
                    total[c] += sum[c];
        }
        for (int c = 0; c < columns; c++)
            out[first + c] = (accumulate ? out[first + c] : 0.0f) +
                             factor[first + c] * total[c];
    }
    return ZD_OK;
}
