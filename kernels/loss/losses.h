/* losses.h - losses of tokens, added exactly (base/number/exact_sum.h).
 *
 * The sum does not depend on the order of its terms, so chunks, ranks and
 * devices may add in any order. On a GPU the sum is in device memory, starts
 * all-zero, and is read by the host at the end of a step. Each term counts as
 * one of the 2^30 additions after which exact_sum_carry is due. */
#pragma once

#include "base/device/device.h"
#include "base/number/exact_sum.h"

typedef enum zd_status add_losses_fn(
        struct stream *stream, struct exact_sum *sum, /* on the device */
        const float *losses,                          /* (n) */
        int n);

/* Losses are always fp32, so one function serves all compute types. */
add_losses_fn add_losses_cpu;
add_losses_fn add_losses_cuda;
