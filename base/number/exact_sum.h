/* exact_sum.h - a sum of doubles that does not depend on their order.
 *
 * A fixed-point accumulator wide enough for every finite double (Kulisch); the
 * digits of two accumulators add like integers, so partial sums of ranks,
 * threads and shards combine to the same bits however the work was divided.
 * Used for the gradient norm and for losses.
 *
 * A digit holds 32 bits of the sum in an int64_t, so 2^30 additions (or that
 * many merged accumulators) fit before exact_sum_carry must be called;
 * exact_sum_add does it by itself. Not-a-number and infinities are counted
 * apart. */
#pragma once

#include "base/number/host_device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXACT_SUM_DIGITS = 70 };

struct exact_sum {
    int64_t digit[EXACT_SUM_DIGITS]; /* weight of digit i: 2^(32 i - 1088) */
    int64_t nonfinite;               /* how many terms were NaN or infinite */
    int64_t pending;                 /* additions since the last carry */
};

void exact_sum_clear(struct exact_sum *sum);
void exact_sum_add(struct exact_sum *sum, double value);
void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other);
/* Normalize the digits; afterwards `pending` is 0. Call before sending. */
ZD_HOST_DEVICE static inline void exact_sum_carry(struct exact_sum *sum)
{
    int64_t carry = 0;
    /* Every digit but the last ends in 0 .. 2^32-1; the last keeps the sign, so
     * that equal sums have equal digits. */
    for (int i = 0; i < EXACT_SUM_DIGITS - 1; i++) {
        int64_t value = sum->digit[i] + carry;
        carry = value >> 32; /* rounds down, also below zero */
        sum->digit[i] = value & 0xffffffff;
    }
    sum->digit[EXACT_SUM_DIGITS - 1] += carry;
    sum->pending = 0;
}
/* The sum rounded to the nearest double; NaN when a term was not finite. */
double exact_sum_value(const struct exact_sum *sum);
