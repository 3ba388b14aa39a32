/* plain_round.h - rounding from double to 16 bits. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A float that rounds to 16 bits as v itself does. The nearest float could
 * round twice, so an inexact float is rounded to odd (Boldo, Melquiond 2008).
 */
static inline float round_to_odd(double v)
{
    float f = (float)v;
    uint32_t bits;
    if (!isfinite(f) || (double)f == v)
        return f;
    memcpy(&bits, &f, sizeof bits);
    if (fabs((double)f) > fabs(v))
        bits--;
    bits |= 1u;
    memcpy(&f, &bits, sizeof f);
    return f;
}
