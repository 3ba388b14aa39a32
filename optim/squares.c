#include "optim/optim.h"

enum { LANES = 8 };

static double lanes_sum(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double piece_fp32(const float *x, size_t count)
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

static double piece_of(const void *grad, enum dtype type, size_t count)
{
    float wide[OPTIM_QBLOCK];
    if (type == DTYPE_FP32)
        return piece_fp32(grad, count);
    dtype_convert(wide, DTYPE_FP32, grad, type, count);
    return piece_fp32(wide, count);
}

static size_t pieces_of(size_t count)
{
    return (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK;
}

static void add_piece(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count,
        size_t piece)
{
    size_t at = piece * OPTIM_QBLOCK;
    size_t n = count - at < OPTIM_QBLOCK ? count - at : OPTIM_QBLOCK;
    exact_sum_add(
            sum,
            piece_of((const char *)grad + at * dtype_bytes(type), type, n));
}

void optim_add_squares(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    size_t pieces = pieces_of(count);
    for (size_t piece = 0; piece < pieces; piece++)
        add_piece(sum, grad, type, count, piece);
}

void optim_add_squares_threads(
        struct exact_sum *sum, const void *grad, enum dtype type, size_t count)
{
    enum { TURN = 64 }; /* pieces that keep a thread busy */
    size_t pieces = pieces_of(count);
#pragma omp parallel if (pieces > TURN)
    {
        struct exact_sum mine;
        exact_sum_clear(&mine);
#pragma omp for schedule(static)
        for (size_t piece = 0; piece < pieces; piece++)
            add_piece(&mine, grad, type, count, piece);
#pragma omp critical(optim_squares)
        exact_sum_merge(sum, &mine);
    }
}
