/* objective.h - what a step minimizes: the loss of a token, what each token
 * weighs, and the loss that is reported. One file of this room holds one. */
#pragma once

#include "base/number/exact_sum.h"
#include "model/model.h"

/* Sums over the sequences of a step, or of an evaluation. */
struct objective_sums {
    int64_t targets, mine; /* unmasked targets of all ranks, of this one */
    int ranks;
    bool over_ranks; /* the mean of the ranks' means, not that of all targets:
                        train.average_tokens_across_devices = false */
};

struct objective {
    const char *name;
    token_loss_fn *token_loss; /* NULL: cross entropy of the next token */
    /* What the loss of each of this rank's targets weighs in the gradient. */
    float (*weight)(const struct objective_sums *sums);
    /* This rank's losses, added up, become its term of the ranks' sum; that sum
     * the loss that is reported. */
    void (*term)(const struct objective_sums *sums, struct exact_sum *losses);
    double (*loss)(
            const struct objective_sums *sums, const struct exact_sum *terms);
};

extern const struct objective objective_sft;
