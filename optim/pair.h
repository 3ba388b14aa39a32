/* pair.h - squares of gradients as integers, whose sums have no order.
 *
 * With N the norm of the whole gradient, x = g^2 / N^2 is at most 1 (and a
 * rounding error). It is cut into two integers, each rounded to nearest:
 *
 *     x = high * 2^-50 + low * 2^-92 + what is below 2^-93
 *
 * (an element below 3e-14 of the norm counts as 0: after clipping it lies far
 * below epsilon). A low word is carried to less than 2^42 before it is shared,
 * so 2^20 additions of spans to one block fit; the high words of a whole tensor
 * come to about 2^50. Private to optim. */
#pragma once

#include "optim/isa.h"

#include <stdint.h>
#include <string.h>

enum { PAIR_LOW_BITS = 42 };

struct pair {
    int64_t high, low;
};

/* The integer nearest to |x| <= 2^51: adding 1.5 * 2^52 leaves it in the last
 * bits of a double. */
INLINED int64_t pair_nearest(double x)
{
    const double shift = 0x1.8p52;
    double shifted = x + shift;
    int64_t bits, zero;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&zero, &shift, sizeof zero);
    return bits - zero;
}

/* `inverse` is 1 / N^2. */
INLINED void pair_add(int64_t *high, int64_t *low, float grad, double inverse)
{
    double x = (double)grad * (double)grad * inverse;
    double scaled = x * 0x1p50;
    double whole = (scaled + 0x1.8p52) - 0x1.8p52;
    *high += pair_nearest(scaled);
    *low += pair_nearest((scaled - whole) * 0x1p42);
}

INLINED void pair_carry(struct pair *sum)
{
    int64_t carry = sum->low >> PAIR_LOW_BITS; /* rounds down */
    sum->high += carry;
    sum->low -= carry * ((int64_t)1 << PAIR_LOW_BITS);
}
