/* sums.c - squares for the norm, and sums of squares over the blocks of a
 * tensor (pair.h), the same bits however the tensor is cut. */
#include "optim/elements.h"

#include "optim/pair.h"

#include <assert.h>

/* --- squares ---------------------------------------------------------------
 */

enum { LANES = 8 };

static double lanes_sum(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

INLINED double piece_sum(const float *x, size_t count)
{
    double lane[LANES] = {0};
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + (size_t)k] * (double)x[i + (size_t)k];
    for (size_t i = whole; i < count; i++)
        lane[i - whole] += (double)x[i] * (double)x[i];
    return lanes_sum(lane);
}

INLINED void add_piece(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    float wide[OPTIM_QBLOCK];
    const float *x = grad;
    if (type != DTYPE_FP32) {
        dtype_convert(wide, DTYPE_FP32, grad, type, count);
        x = wide;
    }
    exact_sum_add(sum, piece_sum(x, count));
}

INLINED void add_all(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    size_t whole = count - count % OPTIM_QBLOCK, bytes = dtype_bytes(type);
    for (size_t at = 0; at < whole; at += OPTIM_QBLOCK)
        add_piece(sum, (const char *)grad + at * bytes, type, OPTIM_QBLOCK);
    if (whole < count)
        add_piece(sum, (const char *)grad + whole * bytes, type, count - whole);
}

ISA_VERSIONS(
        add_all,
        (struct exact_sum * sum, const void *grad, enum dtype type,
         size_t count),
        (sum, grad, type, count))

void optim_add_squares(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    add_all_by[isa_best()](sum, grad, type, count);
}

enum zd_status optim_add_squares_threads(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    enum { TURN = 64 * OPTIM_QBLOCK }; /* keeps a thread busy */
    size_t turns = (count + TURN - 1) / TURN, bytes = dtype_bytes(type);
#pragma omp parallel if (turns > 1)
    {
        struct exact_sum mine;
        exact_sum_clear(&mine);
#pragma omp for schedule(static)
        for (size_t turn = 0; turn < turns; turn++) {
            size_t at = turn * TURN;
            optim_add_squares(
                    &mine, (const char *)grad + at * bytes, type,
                    count - at < TURN ? count - at : TURN);
        }
#pragma omp critical(optim_squares)
        exact_sum_merge(sum, &mine);
    }
    return ZD_OK;
}

/* Elements of one block that are added up before a carry: |low| <= 2^41. */
enum { CARRY_AFTER = 1 << 20 };

static void share(int64_t *words, struct pair sum)
{
    pair_carry(&sum);
    if (sum.high)
        __atomic_fetch_add(&words[0], sum.high, __ATOMIC_RELAXED);
    if (sum.low)
        __atomic_fetch_add(&words[1], sum.low, __ATOMIC_RELAXED);
}

struct run {
    int64_t *sums;
    const struct tensor_blocks *blocks;
    const void *grad;
    enum dtype type;
    size_t begin, end;               /* in the tensor */
    size_t begin_column, end_column; /* of blocks by column: which ones */
    double inverse;                  /* 1 / N^2 */
};

/* Columns whose sums stay in the first-level cache, while the gradients of a
 * row come in long pieces. */
enum { STRIP = 512 };

/* `count` <= STRIP gradients as fp32. */
INLINED void read_grads(
        const struct run *run, size_t element, size_t count,
        float *restrict out)
{
    size_t at = (element - run->begin) * dtype_bytes(run->type);
    dtype_convert(
            out, DTYPE_FP32, (const char *)run->grad + at, run->type, count);
}

/* A block of rows is a run of elements. */
INLINED struct pair run_sum(const struct run *run, size_t begin, size_t end)
{
    struct pair sum = {0, 0};
    float grads[STRIP];
    for (size_t e = begin, count; e < end; e += count) {
        int64_t high = 0, low = 0;
        count = end - e < STRIP ? end - e : STRIP;
        read_grads(run, e, count, grads);
        for (size_t i = 0; i < count; i++)
            pair_add(&high, &low, grads[i], run->inverse);
        sum.high += high;
        sum.low += low;
        if ((e - begin) % CARRY_AFTER == 0)
            pair_carry(&sum);
    }
    return sum;
}

INLINED void add_rows(const struct run *run)
{
    const struct tensor_blocks *blocks = run->blocks;
    size_t columns = (size_t)blocks->columns;
    for (size_t e = run->begin, end; e < run->end; e = end) {
        int64_t line = (int64_t)(e / columns);
        int64_t block = tensor_blocks_of_line(blocks, line);
        end = (size_t)tensor_blocks_end(blocks, line) * columns;
        end = end < run->end ? end : run->end;
        share(run->sums + 2 * block, run_sum(run, e, end));
    }
}

/* Blocks of columns: sums of a strip of columns, down the rows. */
INLINED void add_strip(const struct run *run, size_t first, size_t count)
{
    size_t columns = (size_t)run->blocks->columns;
    int64_t high[STRIP] = {0}, low[STRIP] = {0};
    float grads[STRIP];
    for (size_t row = run->begin / columns; row * columns < run->end; row++) {
        size_t begin = row * columns + first, end = begin + count;
        size_t skipped = begin < run->begin ? run->begin - begin : 0;
        end = end < run->end ? end : run->end;
        if (begin + skipped >= end)
            continue;
        read_grads(run, begin + skipped, end - begin - skipped, grads);
        for (size_t k = skipped; k < end - begin; k++)
            pair_add(&high[k], &low[k], grads[k - skipped], run->inverse);
    }
    for (size_t k = 0; k < count; k++) {
        int64_t block =
                tensor_blocks_of_line(run->blocks, (int64_t)(first + k));
        share(run->sums + 2 * block, (struct pair){high[k], low[k]});
    }
}

INLINED void add_run(const struct run *run)
{
    size_t columns = (size_t)run->blocks->columns;
    size_t end = columns < run->end_column ? columns : run->end_column;
    if (!run->blocks->by_column)
        add_rows(run);
    else {
        assert(run->blocks->rows <= CARRY_AFTER);
        for (size_t first = run->begin_column; first < end; first += STRIP)
            add_strip(run, first, end - first < STRIP ? end - first : STRIP);
    }
}

ISA_VERSIONS(add_run, (const struct run *run), (run))

static struct run run_of(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm)
{
    return (struct run){
            .sums = sums,
            .blocks = blocks,
            .grad = grad,
            .type = type,
            .begin = begin,
            .end = begin + count,
            .end_column = SIZE_MAX,
            .inverse = 1 / (norm * norm)};
}

void optim_add_block_sums(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm)
{
    struct run run = run_of(sums, blocks, grad, type, begin, count, norm);
    if (norm != 0 && count > 0)
        add_run_by[isa_best()](&run);
}

/* By column a thread takes a strip, else a piece of the run: so that few
 * additions to a block are shared. */
enum zd_status optim_add_block_sums_threads(
        int64_t *sums, const struct tensor_blocks *blocks, const void *grad,
        enum dtype type, size_t begin, size_t count, double norm)
{
    enum { PIECE = 1 << 16 };
    const struct run whole =
            run_of(sums, blocks, grad, type, begin, count, norm);
    size_t each = blocks->by_column ? STRIP : PIECE;
    size_t all = blocks->by_column ? (size_t)blocks->columns : count;
    if (norm == 0 || count == 0)
        return ZD_OK;
#pragma omp parallel for schedule(static) if (count > PIECE)
    for (size_t at = 0; at < all; at += each) {
        struct run run = whole;
        if (blocks->by_column) {
            run.begin_column = at;
            run.end_column = at + STRIP;
        } else {
            run.grad = (const char *)grad + at * dtype_bytes(type);
            run.begin += at;
            run.end = begin + (all - at < PIECE ? all : at + PIECE);
        }
        add_run_by[isa_best()](&run);
    }
    return ZD_OK;
}

enum zd_status optim_update_blocks(
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
        __int128 units = ((__int128)sums[2 * block] << PAIR_LOW_BITS) +
                         sums[2 * block + 1];
        double share_of_norm = (double)units * 0x1p-92;
        double mean = share_of_norm / (line_count * (double)(end - line));
        float square = (float)(mean * scale * scale);
        block_v[block] = beta2 * block_v[block] + gain2 * square;
    }
    return ZD_OK;
}

/* From a column on: elements of a row up to the end of its block, or of a
 * section whose blocks are single columns. */
static size_t expand_columns(
        const struct tensor_blocks *blocks, const float *block_v,
        int64_t column, size_t limit, float *out)
{
    int s = tensor_blocks_section(blocks, column);
    const float *v = block_v + tensor_blocks_of_line(blocks, column);
    bool single = blocks->sections[s].group == 1;
    int64_t end = tensor_blocks_end(blocks, column);
    if (single)
        end = s + 1 < blocks->section_count ? blocks->sections[s + 1].begin
                                            : blocks->columns;
    size_t count = (size_t)(end - column);
    count = count < limit ? count : limit;
    for (size_t i = 0; i < count; i++)
        out[i] = single ? v[i] : *v;
    return count;
}

/* From an element on: those of its block. */
static size_t expand_rows(
        const struct tensor_blocks *blocks, const float *block_v,
        size_t element, size_t limit, float *out)
{
    int64_t row = (int64_t)element / blocks->columns;
    float v = block_v[tensor_blocks_of_line(blocks, row)];
    size_t end = (size_t)(tensor_blocks_end(blocks, row) * blocks->columns);
    size_t count = end - element < limit ? end - element : limit;
    for (size_t i = 0; i < count; i++)
        out[i] = v;
    return count;
}

void optim_expand_blocks(
        const struct tensor_blocks *blocks, const float *block_v, size_t begin,
        size_t count, float *out)
{
    for (size_t done = 0; done < count;) {
        size_t element = begin + done, left = count - done;
        if (blocks->by_column)
            done += expand_columns(
                    blocks, block_v, (int64_t)element % blocks->columns, left,
                    out + done);
        else
            done += expand_rows(blocks, block_v, element, left, out + done);
    }
}
