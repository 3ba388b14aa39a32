/* losses.h - losses of tokens, added exactly (base/number/exact_sum.h).
 *
 * The sum does not depend on the order of its terms, so that chunks, ranks and
 * devices may add in any. On a GPU the sum lies in its memory and is read by
 * the host when a step has ended; it begins as bytes of zero. One call is one
 * of the 2^30 additions after which exact_sum_carry is due, for each term. */
#pragma once

#include "base/device/device.h"
#include "base/number/exact_sum.h"

typedef enum zd_status add_losses_fn(
        struct stream *stream, struct exact_sum *sum, /* on the device */
        const float *losses,                          /* (n) */
        int n);

/* Losses are fp32 whatever the compute type: one function for all. */
add_losses_fn add_losses_cpu;
add_losses_fn add_losses_cuda;
