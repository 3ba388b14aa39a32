/* sft.c - next-token cross entropy, averaged over unmasked targets. */
#include "train/objective/objective.h"

static float weight(const struct objective_sums *sums)
{
    if (!sums->over_ranks)
        return (float)(1.0 / (double)sums->targets);
    return sums->mine ? (float)(1.0 / ((double)sums->mine * sums->ranks)) : 0;
}

static void term(const struct objective_sums *sums, struct exact_sum *losses)
{
    if (!sums->over_ranks)
        return;
    double mean = sums->mine ? exact_sum_value(losses) / (double)sums->mine : 0;
    exact_sum_clear(losses);
    exact_sum_add(losses, mean);
}

static double loss(
        const struct objective_sums *sums, const struct exact_sum *terms)
{
    double sum = exact_sum_value(terms);
    return sum / (sums->over_ranks ? sums->ranks : (double)sums->targets);
}

const struct objective objective_sft = {
        .name = "sft", .weight = weight, .term = term, .loss = loss};
