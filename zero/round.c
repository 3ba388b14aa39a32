/* round.c - gradients to the compute type, on all OpenMP threads. */
#include "zero/private.h"

enum { TURN = 65536 }; /* elements that keep a thread busy */

void round_to_16(
        uint16_t *out, enum dtype type, const float *values, size_t count)
{
    size_t turns = (count + TURN - 1) / TURN;
#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = turn * TURN;
        size_t n = count - at < TURN ? count - at : TURN;
        dtype_convert(out + at, type, values + at, DTYPE_FP32, n);
    }
}

void round_floats(float *values, enum dtype type, size_t count)
{
    size_t turns = (count + TURN - 1) / TURN;
#pragma omp parallel for schedule(static) if (turns > 1)
    for (size_t turn = 0; turn < turns; turn++) {
        size_t at = turn * TURN;
        dtype_round(values + at, type, count - at < TURN ? count - at : TURN);
    }
}

/* Elements [begin, 2 begin) move to where those before them lay, which have
 * moved, so each doubling can be shared among threads. */
void round_in_place(float *values, enum dtype type, size_t count)
{
    size_t begin = count < TURN ? count : TURN;
    dtype_narrow_in_place(values, type, begin);
    for (size_t n = begin; begin < count; begin += n, n = begin) {
        n = count - begin < n ? count - begin : n;
        round_to_16((uint16_t *)values + begin, type, values + begin, n);
    }
}
