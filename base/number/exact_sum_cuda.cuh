/* exact_sum_cuda.cuh - base/number/exact_sum.h on a GPU: the same digits, added
 * by integer atomics, whose order does not matter.
 *
 * A thread adds its terms to a window of digits in its registers; at the end a
 * warp joins its windows and adds them to the sum in device memory:
 *
 *     struct exact_window window = exact_window_empty();
 *     for (...)
 *         exact_window_add(sum, &window, term);
 *     exact_window_flush(sum, &window);      every lane of the warp together
 *     if (it is the first thread of the grid)
 *         exact_sum_pending(sum, terms of the whole grid);
 *
 * The sum is then what exact_sum_add makes of the same terms, in digits too, as
 * long as no carry was due: 2^30 terms (exact_sum_carry, by one thread, between
 * kernels). A window bears 2^30 terms as well. */
#pragma once

extern "C" {
#include "base/number/exact_sum.h"
}

/* Digits first .. first + EXACT_WINDOW - 1 of a sum. A term has three digits,
 * so terms whose magnitudes are within 2^64 of each other find room. */
enum { EXACT_WINDOW = 5, EXACT_WINDOW_EMPTY = -1 };

struct exact_window {
    int first; /* EXACT_WINDOW_EMPTY: no term yet */
    int64_t digit[EXACT_WINDOW];
};

__device__ inline struct exact_window exact_window_empty(void)
{
    struct exact_window window;
    window.first = EXACT_WINDOW_EMPTY;
#pragma unroll
    for (int i = 0; i < EXACT_WINDOW; i++)
        window.digit[i] = 0;
    return window;
}

__device__ inline void exact_digit_add(int64_t *digit, int64_t value)
{
    if (value)
        atomicAdd((unsigned long long *)digit, (unsigned long long)value);
}

__device__ inline void exact_window_add(
        struct exact_sum *sum, struct exact_window *window, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 0x7ff) { /* exact_sum_pending counts it, the sum does not */
        exact_digit_add(&sum->nonfinite, 1);
        exact_digit_add(&sum->pending, -1);
        return;
    }
    if (exponent)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1; /* subnormal */
    if (mantissa == 0)
        return;

    /* value = mantissa 2^(exponent - 1075); digit 0 has the weight 2^-1088 */
    int place = exponent + 13, first = place / 32, shift = place % 32;
    int64_t sign = bits >> 63 ? -1 : 1;
    uint64_t low = mantissa << shift;
    uint64_t high = shift ? mantissa >> (64 - shift) : 0;
    int64_t part[3];
    part[0] = sign * (int64_t)(uint32_t)low;
    part[1] = sign * (int64_t)(low >> 32);
    part[2] = sign * (int64_t)high;

    if (window->first == EXACT_WINDOW_EMPTY) {
        int lead = first - (EXACT_WINDOW - 3) / 2; /* the term in the middle */
        int last = EXACT_SUM_DIGITS - EXACT_WINDOW;
        window->first = lead < 0 ? 0 : lead > last ? last : lead;
    }
    int at = first - window->first;
    if (at < 0 || at > EXACT_WINDOW - 3) {
        for (int i = 0; i < 3; i++)
            exact_digit_add(sum->digit + first + i, part[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < EXACT_WINDOW; i++)
        window->digit[i] += i == at       ? part[0]
                            : i == at + 1 ? part[1]
                            : i == at + 2 ? part[2]
                                          : 0;
}

/* Called by all 32 lanes of a warp together. */
__device__ inline void exact_window_flush(
        struct exact_sum *sum, const struct exact_window *window)
{
    int common = window->first;
    for (int offset = 16; offset > 0; offset /= 2) {
        int other = __shfl_xor_sync(0xffffffffu, common, offset);
        common = other > common ? other : common;
    }
    if (common == EXACT_WINDOW_EMPTY)
        return;
    bool is_same = window->first == common;
    bool is_first = threadIdx.x % 32 == 0;
#pragma unroll
    for (int i = 0; i < EXACT_WINDOW; i++) {
        int64_t digit = is_same ? window->digit[i] : 0;
        for (int offset = 16; offset > 0; offset /= 2)
            digit += (int64_t)__shfl_xor_sync(
                    0xffffffffu, (long long)digit, offset);
        if (is_first)
            exact_digit_add(sum->digit + common + i, digit);
        if (!is_same && window->first != EXACT_WINDOW_EMPTY)
            exact_digit_add(sum->digit + window->first + i, window->digit[i]);
    }
}

/* Once for all terms of a kernel, by one thread. */
__device__ inline void exact_sum_pending(struct exact_sum *sum, int64_t terms)
{
    exact_digit_add(&sum->pending, terms);
}
