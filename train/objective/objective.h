/* objective.h - what a step minimizes: the loss of a token, the weight of each
 * token, and the reported loss. Each objective has a file in this folder. */
#pragma once

#include "base/number/exact_sum.h"
#include "model/model.h"

/* Sums over the sequences of a step, or of an evaluation. */
struct objective_sums {
    int64_t targets, mine; /* unmasked targets of all ranks, of this one */
    int ranks;
    bool over_ranks; /* mean of the ranks' means instead of all targets:
                        train.average_tokens_across_devices = false */
};

struct objective {
    const char *name;
    token_loss_fn *token_loss; /* NULL: cross entropy of the next token */
    /* The weight of each of this rank's targets in the gradient. */
    float (*weight)(const struct objective_sums *sums);
    /* `term` turns this rank's summed losses into its term of the sum over
     * ranks; the next function turns that sum into the reported loss. */
    void (*term)(const struct objective_sums *sums, struct exact_sum *losses);
    double (*loss)(
            const struct objective_sums *sums, const struct exact_sum *terms);
};

extern const struct objective objective_sft;
