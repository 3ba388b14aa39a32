/* blocks.c - Adam-mini's second moments: sums of squares over the blocks of a
 * tensor, the same bits however the tensor is cut.
 *
 * With N the norm of the whole gradient, x = g^2 / N^2 is at most 1 (and a
 * rounding error). It is cut into two integers, each rounded to nearest:
 *
 *     x = high * 2^-50 + low * 2^-92 + what is below 2^-93
 *
 * (an element below 3e-14 of the norm counts as 0: after clipping it lies far
 * below epsilon). Adding integers has no order. A low word is carried to less
 * than 2^42 before it is added, so 2^20 additions of spans to one block fit;
 * the high words of a whole tensor come to about 2^50. */
#include "optim/elements.h"

#include <assert.h>

enum { HIGH_BITS = 50, LOW_BITS = 42 };
/* Elements of one block that are added up before a carry: |low| <= 2^41. */
enum { CARRY_AFTER = 1 << 20 };
/* Adding 1.5 * 2^52 leaves the nearest integer in a double, for |x| <= 2^51. */
static const double TO_INTEGER = 0x1.8p52;

struct pair {
    int64_t high, low;
};

INLINED void pair_add(struct pair *sum, float grad, double inverse)
{
    double x = (double)grad * (double)grad * inverse;
    double scaled = x * 0x1p50;
    double high = (scaled + TO_INTEGER) - TO_INTEGER;
    double low = ((scaled - high) * 0x1p42 + TO_INTEGER) - TO_INTEGER;
    sum->high += (int64_t)high;
    sum->low += (int64_t)low;
}

static void pair_carry(struct pair *sum)
{
    int64_t carry = sum->low >> LOW_BITS; /* rounds down */
    sum->high += carry;
    sum->low -= carry * ((int64_t)1 << LOW_BITS);
}

static void share(int64_t *words, struct pair *sum)
{
    pair_carry(sum);
    if (sum->high)
        __atomic_fetch_add(&words[0], sum->high, __ATOMIC_RELAXED);
    if (sum->low)
        __atomic_fetch_add(&words[1], sum->low, __ATOMIC_RELAXED);
    *sum = (struct pair){0, 0};
}

static float grad_at(const void *grad, enum dtype type, size_t i)
{
    switch (type) {
    case DTYPE_FP32:
        return ((const float *)grad)[i];
    case DTYPE_BF16:
        return bf16_to_float(((const uint16_t *)grad)[i]);
    case DTYPE_FP16:
        return fp16_to_float(((const uint16_t *)grad)[i]);
    }
    return 0;
}

struct run {
    int64_t *sums;
    const struct tensor_blocks *blocks;
    const void *grad;
    enum dtype type;
    size_t begin, end; /* in the tensor */
    double inverse;    /* 1 / N^2 */
};

static float grad_of(const struct run *run, size_t element)
{
    return grad_at(run->grad, run->type, element - run->begin);
}

/* Lines are rows: a block is a run of elements. */
static void add_rows(const struct run *run)
{
    const struct tensor_blocks *blocks = run->blocks;
    size_t columns = (size_t)blocks->columns;
    for (size_t e = run->begin; e < run->end;) {
        int64_t line = (int64_t)(e / columns);
        int64_t block = tensor_blocks_of_line(blocks, line);
        size_t end = (size_t)tensor_blocks_end(blocks, line) * columns;
        end = end < run->end ? end : run->end;
        struct pair sum = {0, 0};
        for (size_t n = 1; e < end; e++, n++) {
            pair_add(&sum, grad_of(run, e), run->inverse);
            if (n % CARRY_AFTER == 0)
                pair_carry(&sum);
        }
        share(run->sums + 2 * block, &sum);
    }
}

/* Lines are columns: sums of a strip of them, down the rows. */
enum { STRIP = 128 };

static void add_strip(const struct run *run, size_t first, size_t count)
{
    size_t columns = (size_t)run->blocks->columns;
    struct pair sums[STRIP] = {{0, 0}};
    size_t rows_done = 0;
    for (size_t row = run->begin / columns; row * columns < run->end; row++) {
        size_t begin = row * columns + first, end = begin + count;
        begin = begin > run->begin ? begin : run->begin;
        end = end < run->end ? end : run->end;
        for (size_t e = begin; e < end; e++)
            pair_add(
                    &sums[e - row * columns - first], grad_of(run, e),
                    run->inverse);
        if (++rows_done % CARRY_AFTER == 0)
            for (size_t k = 0; k < count; k++)
                pair_carry(&sums[k]);
    }
    for (size_t k = 0; k < count; k++) {
        int64_t block =
                tensor_blocks_of_line(run->blocks, (int64_t)(first + k));
        share(run->sums + 2 * block, &sums[k]);
    }
}

void optim_add_block_sums(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm)
{
    if (norm == 0 || count == 0)
        return;
    struct run run = {sums,          blocks,           grad, type, begin,
                      begin + count, 1 / (norm * norm)};
    size_t columns = (size_t)blocks->columns;
    if (!blocks->by_column)
        add_rows(&run);
    else
        for (size_t first = 0; first < columns; first += STRIP)
            add_strip(
                    &run, first,
                    columns - first < STRIP ? columns - first : STRIP);
}

void optim_update_blocks(
        float *block_v, const int64_t *sums, const struct tensor_blocks *blocks,
        const struct optim_step *step, double norm)
{
    float beta2 = (float)step->options->adam_beta2;
    float gain2 = (float)(1.0 - step->options->adam_beta2);
    double scale = (double)step->grad_scale * norm;
    double line_count = (double)tensor_blocks_line_count(blocks);
    int64_t lines = tensor_blocks_lines(blocks);
    for (int64_t line = 0, end; line < lines; line = end) {
        int64_t block = tensor_blocks_of_line(blocks, line);
        end = tensor_blocks_end(blocks, line);
        __int128 units =
                ((__int128)sums[2 * block] << LOW_BITS) + sums[2 * block + 1];
        double share_of_norm = (double)units * 0x1p-92;
        double mean = share_of_norm / (line_count * (double)(end - line));
        float square = (float)(mean * scale * scale);
        block_v[block] = beta2 * block_v[block] + gain2 * square;
    }
}

void optim_expand_blocks(
        const struct tensor_blocks *blocks, const float *block_v, size_t begin,
        size_t count, float *out)
{
    size_t columns = (size_t)blocks->columns, done = 0;
    while (done < count) {
        size_t row = (begin + done) / columns,
               column = (begin + done) % columns;
        size_t line = blocks->by_column ? column : row;
        float v = block_v[tensor_blocks_of_line(blocks, (int64_t)line)];
        size_t end = (size_t)tensor_blocks_end(blocks, (int64_t)line);
        size_t run = blocks->by_column ? end - column
                                       : end * columns - row * columns - column;
        for (run = run < count - done ? run : count - done; run > 0; run--)
            out[done++] = v;
    }
}
