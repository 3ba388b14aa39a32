/* suite_cases.h - the cases, by the file that has them. */
#pragma once

#include "tests/comm/suite.h"

/* suite_collectives.c */
suite_fn case_reduce_scatter, case_reduce_scatter_accumulates, case_all_gather,
        case_all_to_all, case_many_at_once, case_one_ahead_with_late_ranks,
        case_counters_follow_the_formula, case_groups_of_ranks;

/* suite_control.c */
suite_fn case_ranks_know_their_places, case_who_is_where_is_known,
        case_integers_are_reduced, case_digits_of_an_exact_sum_add_up,
        case_control_messages_arrive, case_all_well_is_well,
        case_one_failure_is_everyones, case_equal_failures_are_told_once,
        case_groups_of_ranks_are_named, case_a_lost_peer_is_not_the_cause;
