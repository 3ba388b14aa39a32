/* fp8_cpu.c - amax and casts, in tiles of 128 x 128: x is read from memory once
 * and then from the caches, where codes are transposed too. */
#include "kernels/fp8/fp8.h"

#include "kernels/cpu/fast.h"
#include "kernels/fp8/fp8_lanes.h"

fp8_amax_fn FAST(fp8_amax);
fp8_cast_fn FAST(fp8_cast);

/* --- amax ----------------------------------------------------------------- */

ALWAYS_INLINE vf vf_abs(vf x)
{
    return (vf)((vu)x & 0x7fffffffu);
}

/* Ignores NaN: vf_max returns the other operand. `wide`: x is floats. */
ALWAYS_INLINE float row_amax(const void *x, int count, bool wide)
{
    vf most = vf_all(0);
    for (int i = 0; i < count; i += VL) {
        vf v = wide ? vf_load_some((const float *)x + i, count - i)
                    : load_some((const elem *)x + i, count - i);
        most = vf_max(vf_abs(v), most);
    }
    return vf_top(most);
}

enum zd_status FAST(fp8_amax)(
        struct stream *stream, float *amax, const void *x, enum dtype type,
        int rows, int columns, int stride, bool merge)
{
    int threads = threads_for((size_t)rows * (size_t)columns);
    float most = merge ? *amax : 0;
    assert(type == ELEM_DTYPE || type == DTYPE_FP32);
#pragma omp parallel for schedule(static) num_threads(threads)                 \
        reduction(max                                                          \
                  : most)
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)r * (size_t)stride;
        float row = type == ELEM_DTYPE
                            ? row_amax((const elem *)x + at, columns, false)
                            : row_amax((const float *)x + at, columns, true);
        most = row > most ? row : most;
    }
    *amax = most;
    return ZD_OK;
}

/* --- casts ---------------------------------------------------------------- */

enum {
    TURN = 16
}; /* side of the squares of codes that are transposed at
      once */

/* A tile of x, and the factors of its rows or columns. */
struct tile {
    const struct fp8_cast *of;
    int row, column, rows, columns;
    const elem *x;
    float by_row[FP8_BLOCK], by_column[FP8_BLOCK];
};

static void put_scale(
        const struct fp8_cast *p, bool turned, int row, int column, float scale)
{
    float *scales = turned ? p->transposed_scales : p->scales;
    size_t R = (size_t)(turned ? p->columns : p->rows);
    size_t K = (size_t)(turned ? p->padded : p->columns);
    if (scales)
        scales[fp8_scale_at(p->layout, R, K, (size_t)row, (size_t)column)] =
                scale;
}

static void put_tile_scale(const struct tile *t, float scale)
{
    if (t->rows > 0)
        put_scale(t->of, false, t->row, t->column, scale);
    put_scale(t->of, true, t->column, t->row, scale);
}

static const elem *row_of(const struct tile *t, int r)
{
    return t->x + (size_t)r * (size_t)t->of->stride;
}

/* Stores the amax of rows to by_row, and of columns to by_column. */
static void scan_tile(struct tile *t)
{
    vf most[FP8_BLOCK / VL];
    memset(most, 0, sizeof most);
    for (int r = 0; r < t->rows; r++) {
        const elem *x = row_of(t, r);
        vf of_row = vf_all(0);
        for (int c = 0; c < t->columns; c += VL) {
            vf a = vf_abs(load_some(x + c, t->columns - c));
            of_row = vf_max(a, of_row);
            most[c / VL] = vf_max(a, most[c / VL]);
        }
        t->by_row[r] = vf_top(of_row);
    }
    memcpy(t->by_column, most, sizeof most);
}

static void scale_rows_and_columns(struct tile *t)
{
    const struct fp8_cast *p = t->of;
    scan_tile(t);
    for (int r = 0; r < t->rows; r++) {
        float amax = t->by_row[r];
        t->by_row[r] = fp8_factor(amax, p->to);
        put_scale(p, false, t->row + r, t->column, fp8_scale(amax, p->to));
    }
    for (int c = 0; c < t->columns; c++) {
        float amax = t->by_column[c];
        t->by_column[c] = fp8_factor(amax, p->to);
        put_scale(p, true, t->column + c, t->row, fp8_scale(amax, p->to));
    }
}

static float tile_amax(struct tile *t)
{
    float most = 0;
    scan_tile(t);
    for (int r = 0; r < t->rows; r++)
        most = t->by_row[r] > most ? t->by_row[r] : most;
    return most;
}

static void scale_as_one(struct tile *t)
{
    const struct fp8_cast *p = t->of;
    float amax = p->layout == SCALES_TENSOR ? *p->amax : tile_amax(t);
    float scale = fp8_scale(amax, p->to);
    for (int r = 0; r < t->rows; r++)
        t->by_row[r] = fp8_factor(amax, p->to);
    if (p->layout != SCALES_TENSOR || (t->row == 0 && t->column == 0))
        put_tile_scale(t, scale);
}

/* Encodes a tile with rows FP8_BLOCK apart: x times the factor of its row, or
 * column. Writes whole vectors of codes. */
ALWAYS_INLINE void encode_tile_of(
        uint8_t codes[FP8_BLOCK * FP8_BLOCK], const struct tile *t,
        bool by_columns, bool is_e5m2)
{
    for (int r = 0; r < t->rows; r++) {
        const elem *x = row_of(t, r);
        vf factor = vf_all(t->by_row[r]);
        uint8_t *to = codes + r * FP8_BLOCK;
        int c = 0;
        for (; c + VL <= t->columns; c += VL) {
            if (by_columns)
                factor = vf_load(t->by_column + c);
            narrow_bytes(to + c, fp8_codes(load(x + c) * factor, is_e5m2));
        }
        if (c == t->columns)
            continue;
        if (by_columns)
            factor = vf_load(t->by_column + c);
        narrow_bytes(
                to + c,
                fp8_codes(load_some(x + c, t->columns - c) * factor, is_e5m2));
    }
}

static void encode_tile(
        uint8_t codes[FP8_BLOCK * FP8_BLOCK], const struct tile *t,
        bool by_columns)
{
    bool is_e5m2 = t->of->to == DTYPE_E5M2;
    if (is_e5m2 && by_columns)
        encode_tile_of(codes, t, true, true);
    else if (is_e5m2)
        encode_tile_of(codes, t, false, true);
    else if (by_columns)
        encode_tile_of(codes, t, true, false);
    else
        encode_tile_of(codes, t, false, false);
}

typedef uint8_t v16 __attribute__((vector_size(TURN)));
typedef uint8_t v16_any
        __attribute__((vector_size(TURN), aligned(1), may_alias));

/* out(c, r) = in(r, c) of 16 x 16 bytes: row i between the bytes of row i + 8,
 * four times over, is the transpose. */
static void turn_16(uint8_t *out, const uint8_t *in)
{
    v16 a[TURN], b[TURN];
    for (int i = 0; i < TURN; i++)
        a[i] = *(const v16_any *)(in + i * FP8_BLOCK);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < TURN / 2; i++) {
            v16 x = a[i], y = a[i + TURN / 2];
            b[2 * i] = __builtin_shufflevector(
                    x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                    23);
            b[2 * i + 1] = __builtin_shufflevector(
                    x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                    15, 31);
        }
        memcpy(a, b, sizeof a);
    }
    for (int i = 0; i < TURN; i++)
        *(v16_any *)(out + i * FP8_BLOCK) = a[i];
}

/* Stores a tile's codes to rows of the transpose; missing rows of the tile are
 * 0. */
static void put_transposed(const struct tile *t, uint8_t *codes)
{
    const struct fp8_cast *p = t->of;
    int left = p->padded - t->row;
    size_t width = (size_t)(left < FP8_BLOCK ? left : FP8_BLOCK);
    uint8_t turned[TURN * FP8_BLOCK];
    memset(codes + t->rows * FP8_BLOCK, 0,
           (size_t)(FP8_BLOCK - t->rows) * FP8_BLOCK);
    for (int c = 0; c < t->columns; c += TURN) {
        for (size_t r = 0; r < width; r += TURN)
            turn_16(turned + r, codes + r * FP8_BLOCK + c);
        for (int i = 0; i < TURN && c + i < t->columns; i++)
            memcpy(p->transposed +
                           (size_t)(t->column + c + i) * (size_t)p->padded +
                           t->row,
                   turned + i * FP8_BLOCK, width);
    }
}

static void put_codes(const struct tile *t, const uint8_t *codes)
{
    const struct fp8_cast *p = t->of;
    for (int r = 0; r < t->rows; r++)
        memcpy(p->codes + (size_t)(t->row + r) * (size_t)p->columns + t->column,
               codes + r * FP8_BLOCK, (size_t)t->columns);
}

/* Copies codes into a tile. */
static void copy_codes(
        uint8_t codes[FP8_BLOCK * FP8_BLOCK], const struct tile *t)
{
    const struct fp8_cast *p = t->of;
    size_t tiles = fp8_blocks((size_t)p->columns);
    size_t at = (size_t)(t->row / FP8_BLOCK) * tiles +
                (size_t)(t->column / FP8_BLOCK);
    for (int r = 0; r < t->rows; r++)
        memcpy(codes + r * FP8_BLOCK,
               (const uint8_t *)p->x +
                       (size_t)(t->row + r) * (size_t)p->columns + t->column,
               (size_t)t->columns);
    put_tile_scale(t, t->rows > 0 ? p->from_scales[at] : 1);
}

static void cast_tile(const struct fp8_cast *p, int row, int column)
{
    struct tile t = {.of = p, .row = row, .column = column};
    uint8_t codes[FP8_BLOCK * FP8_BLOCK];
    int rows = p->rows - row, columns = p->columns - column;
    rows = rows < 0 ? 0 : rows; /* only padding */
    t.rows = rows < FP8_BLOCK ? rows : FP8_BLOCK;
    t.columns = columns < FP8_BLOCK ? columns : FP8_BLOCK;
    t.x = (const elem *)p->x + (size_t)row * (size_t)p->stride + column;
    bool twice = p->layout == SCALES_1X128;
    if (p->from_scales) {
        copy_codes(codes, &t);
    } else {
        if (twice)
            scale_rows_and_columns(&t);
        else
            scale_as_one(&t);
        if (!twice || p->codes)
            encode_tile(codes, &t, false);
    }
    if (p->codes)
        put_codes(&t, codes);
    if (twice && p->transposed)
        encode_tile(codes, &t, true);
    if (p->transposed)
        put_transposed(&t, codes);
}

enum zd_status FAST(fp8_cast)(struct stream *stream, const struct fp8_cast *p)
{
    int most = p->transposed && p->padded > p->rows ? p->padded : p->rows;
    int across = (p->columns + FP8_BLOCK - 1) / FP8_BLOCK;
    int tiles = (most + FP8_BLOCK - 1) / FP8_BLOCK * across;
    int threads = threads_for((size_t)p->rows * (size_t)p->columns);
    assert(p->from == ELEM_DTYPE || (p->from == DTYPE_E4M3 && p->from_scales));
    assert(!p->transposed ||
           (p->padded >= p->rows && p->padded % FP8_ALIGN == 0));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < tiles; i++)
        cast_tile(p, i / across * FP8_BLOCK, i % across * FP8_BLOCK);
    return ZD_OK;
}
