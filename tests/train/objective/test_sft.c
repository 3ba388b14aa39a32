#include "train/objective/objective.h"

#include <criterion/criterion.h>

/* Two ranks with 1 and 3 targets of losses 8 and 2: the mean of all targets is
 * 3.5, the mean of the ranks' means 5. */
static double loss_of(bool over_ranks)
{
    static const int64_t mine[] = {1, 3};
    static const double losses[] = {8, 2};
    struct exact_sum terms = {0};
    double weights = 0, loss = 0;
    for (int rank = 0; rank < 2; rank++) {
        struct objective_sums sums = {4, mine[rank], 2, over_ranks};
        struct exact_sum own = {0};
        for (int i = 0; i < mine[rank]; i++)
            exact_sum_add(&own, losses[rank]);
        objective_sft.term(&sums, &own);
        exact_sum_add(&terms, exact_sum_value(&own));
        weights += (double)mine[rank] * objective_sft.weight(&sums);
        loss = objective_sft.loss(&sums, &terms);
    }
    cr_expect_float_eq(weights, 1, 1e-7);
    return loss;
}

Test(train_sft, averages_targets_or_the_means_of_ranks)
{
    cr_expect_eq(loss_of(false), 3.5);
    cr_expect_eq(loss_of(true), 5);
}

Test(train_sft, rank_without_targets_adds_nothing)
{
    struct objective_sums sums = {4, 0, 2, true};
    struct exact_sum none = {0};
    objective_sft.term(&sums, &none);
    cr_expect_eq(exact_sum_value(&none), 0);
    cr_expect_eq(objective_sft.weight(&sums), 0);
}
