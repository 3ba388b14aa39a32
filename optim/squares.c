#include "optim/elements.h"

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

void optim_add_squares_isa(
        enum isa isa, struct exact_sum *sum, const void *grad, enum dtype type,
        size_t count)
{
    add_all_by[isa](sum, grad, type, count);
}

void optim_add_squares(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    optim_add_squares_isa(isa_best(), sum, grad, type, count);
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
