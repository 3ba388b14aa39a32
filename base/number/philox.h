/* philox.h - Philox4x32-10, for the host and in kernels. Source: Salmon et al.
 * 2011. */
#pragma once

#include "base/number/host_device.h"

#include <stdint.h>

/* Four independent 32-bit words for (seed, stream, index). */
ZD_HOST_DEVICE static inline void philox(
        uint64_t seed, uint64_t stream, uint64_t index, uint32_t *out)
{
    /* Salmon et al. 2011, section 3.4: multipliers, and Weyl constants for the
     * key (the golden ratio and sqrt(3) - 1) */
    const uint64_t m0 = 0xd2511f53, m1 = 0xcd9e8d57;
    const uint32_t w0 = 0x9e3779b9, w1 = 0xbb67ae85;
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = m0 * c0, p1 = m1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
