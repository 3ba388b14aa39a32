/* masked.h - scales rows, with dropout: the adapters' operation besides
 * matmuls.
 *
 *   out = [add: out +] scale * keep * x
 *
 *   keep is 0 if the random word of an element is below `threshold`, else 1;
 *   the caller's scale includes 1 / (1 - p). The word of element c of token t
 *   of sample s is word c % 4 of philox(key, s, t ceil(C / 4) + c / 4),
 *   whichever rank, micro-batch and backend computes it. With tensor
 *   parallelism x is a slice of the columns; c and C still refer to whole rows.
 *
 * Source:  Srivastava et al. 2014, JMLR 15; Salmon et al. 2011 for the words.
 * Shapes:  rows of out are out_stride elements apart, those of x are dense; out
 *          may be x if out_stride is C. With k = first_row + n, row n is token
 *          k % T of sample first_sample + k / T. */
#pragma once

#include "base/device/device.h"
#include "base/number/philox.h"

struct dropout {
    uint32_t threshold; /* p * 2^32; 0: nothing is dropped */
    uint64_t key;       /* of the module and the step */
    int64_t first_sample, first_row;
    int T;
    int columns, before; /* of a whole row; before x's, a multiple of 4. columns
                            0: x is whole */
};

enum { DROPOUT_WORDS = 4 }; /* elements that share a call of philox */

/* Words of elements 4 `group` .. 4 `group` + 3 of row n. */
ZD_HOST_DEVICE static inline void dropout_words(
        const struct dropout *dropout, int n, int C, int group,
        uint32_t words[DROPOUT_WORDS])
{
    uint64_t all = (uint64_t)(dropout->columns ? dropout->columns : C);
    uint64_t groups = (all + DROPOUT_WORDS - 1) / DROPOUT_WORDS;
    uint64_t k = (uint64_t)(dropout->first_row + n), T = (uint64_t)dropout->T;
    philox(dropout->key, (uint64_t)dropout->first_sample + k / T,
           k % T * groups + (uint64_t)(dropout->before / DROPOUT_WORDS + group),
           words);
}

typedef enum zd_status scale_rows_fn(
        struct stream *stream, void *out,  /* (N, C), rows out_stride apart */
        int64_t out_stride, const void *x, /* (N, C) */
        int N, int C, float scale, const struct dropout *dropout, bool add);
