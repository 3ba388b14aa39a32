#include "tests/comm/suite.h"

#include "tests/comm/suite_cases.h"

#include <stdio.h>
#include <string.h>

bool suite_check(bool holds, const struct comm *comm, const char *what)
{
    if (!holds)
        fprintf(stderr, "rank %d of %d: %s does not hold\n", comm_rank(comm),
                comm_size(comm), what);
    return holds;
}

const struct suite_case suite_cases[] = {
        {"ranks know their places", case_ranks_know_their_places},
        {"who is where is known of every rank", case_who_is_where_is_known},
        {"reduce_scatter adds in rank order and rounds once",
         case_reduce_scatter},
        {"reduce_scatter accumulates", case_reduce_scatter_accumulates},
        {"all_gather puts shards in rank order", case_all_gather},
        {"all_to_all gives each rank its part", case_all_to_all},
        {"many operations at once", case_many_at_once},
        {"one operation ahead, ranks late in turn",
         case_one_ahead_with_late_ranks},
        {"counters follow the formula", case_counters_follow_the_formula},
        {"groups of ranks work side by side", case_groups_of_ranks},
        {"integers are reduced, scalars and arrays", case_integers_are_reduced},
        {"digits of an exact sum add up", case_digits_of_an_exact_sum_add_up},
        {"control messages arrive and are not counted",
         case_control_messages_arrive},
        {"all well is well", case_all_well_is_well},
        {"one failure is everyone's", case_one_failure_is_everyones},
        {"equal failures are told once", case_equal_failures_are_told_once},
        {"groups of ranks are named", case_groups_of_ranks_are_named},
        {"a lost peer is not the cause", case_a_lost_peer_is_not_the_cause},
};
const int suite_case_count = sizeof suite_cases / sizeof suite_cases[0];

int suite_report(
        struct comm *comm, const char *part, const struct suite_case *more)
{
    int failed = 0, number = 0;
    for (int c = 0; c < suite_case_count + (more != NULL); c++) {
        const struct suite_case *one =
                c < suite_case_count ? &suite_cases[c] : more;
        if (!strstr(one->name, part))
            continue;
        int64_t holds = one->run(comm);
        comm_all_reduce_i64(comm, &holds, 1, COMM_MIN);
        failed += !holds;
        number++;
        if (comm_rank(comm) == 0)
            printf("%s %d - %d ranks, nodes of %d: %s\n",
                   holds ? "ok" : "not ok", number, comm_size(comm),
                   comm_mesh(comm).node, one->name);
        fflush(stdout);
    }
    if (comm_rank(comm) == 0)
        printf("1..%d\n", number);
    return failed != 0;
}
