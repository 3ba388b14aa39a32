#include "base/number/exact_sum.h"

#include <math.h>
#include <string.h>

/* Digit 0 has weight 2^-LOWEST. The smallest subnormal is 2^-1074 and the
 * largest double is below 2^1024 = 2^(32 * 66 - LOWEST), which leaves three
 * digits for carries. */
enum { LOWEST = 1088, BITS = 32 };
static const int64_t CARRY_AFTER = (int64_t)1 << 30;

void exact_sum_clear(struct exact_sum *sum)
{
    memset(sum, 0, sizeof *sum);
}

void exact_sum_add(struct exact_sum *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 0x7ff) {
        sum->nonfinite++;
        return;
    }
    if (exponent)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1; /* subnormal */
    /* value = mantissa * 2^(exponent - 1075) */
    int place = exponent - 1075 + LOWEST;
    int64_t *digit = sum->digit + place / BITS;
    unsigned __int128 wide = (unsigned __int128)mantissa << (place % BITS);
    int64_t sign = bits >> 63 ? -1 : 1;
    digit[0] += sign * (int64_t)(uint32_t)wide;
    digit[1] += sign * (int64_t)(uint32_t)(wide >> 32);
    digit[2] += sign * (int64_t)(uint32_t)(wide >> 64);
    if (++sum->pending >= CARRY_AFTER)
        exact_sum_carry(sum);
}

void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other)
{
    struct exact_sum carried;
    if (sum->pending + other->pending + 2 > CARRY_AFTER) {
        carried = *other;
        exact_sum_carry(&carried);
        exact_sum_carry(sum);
        other = &carried;
    }
    for (int i = 0; i < EXACT_SUM_DIGITS; i++)
        sum->digit[i] += other->digit[i];
    sum->nonfinite += other->nonfinite;
    /* a normalized digit is as large as one addition */
    sum->pending += other->pending + 1;
}

/* The magnitude of a normalized, non-negative sum, rounded once. */
static double magnitude(const struct exact_sum *sum)
{
    int top = EXACT_SUM_DIGITS - 1;
    while (top >= 0 && !sum->digit[top])
        top--;
    if (top < 0)
        return 0;
    /* the top digit may be wider than 32 bits only in the last place, where the
     * value is beyond any double */
    if (sum->digit[top] > 0xffffffff)
        return INFINITY;
    unsigned __int128 window = 0;
    for (int i = top; i > top - 3; i--)
        window = window << BITS | (uint64_t)(i >= 0 ? sum->digit[i] : 0);
    bool sticky = false;
    for (int i = 0; i <= top - 3; i++)
        sticky |= sum->digit[i] != 0;
    int lead = 2 * BITS + 31 - __builtin_clz((uint32_t)sum->digit[top]);
    /* Keep 53 bits behind the leading one. Digits are multiples of 2^-1074, so
     * a sum in the subnormal range has nothing to round away. */
    int drop = lead - 52;
    uint64_t kept = (uint64_t)(window >> drop);
    unsigned __int128 rest = window & (((unsigned __int128)1 << drop) - 1);
    unsigned __int128 half = (unsigned __int128)1 << (drop - 1);
    if (rest > half || (rest == half && (sticky || (kept & 1))))
        kept++;
    return ldexp((double)kept, drop + BITS * (top - 2) - LOWEST);
}

double exact_sum_value(const struct exact_sum *sum)
{
    struct exact_sum work = *sum;
    if (work.nonfinite)
        return NAN;
    exact_sum_carry(&work);
    if (work.digit[EXACT_SUM_DIGITS - 1] >= 0)
        return magnitude(&work);
    for (int i = 0; i < EXACT_SUM_DIGITS; i++)
        work.digit[i] = -work.digit[i];
    exact_sum_carry(&work);
    return -magnitude(&work);
}
