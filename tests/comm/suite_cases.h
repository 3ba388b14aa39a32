/* suite_cases.h - the cases, by the file that has them. */
#pragma once

#include "tests/comm/suite.h"

/* suite_collectives.c */
bool case_reduce_scatter(struct comm *comm);
bool case_reduce_scatter_accumulates(struct comm *comm);
bool case_all_gather(struct comm *comm);
bool case_all_to_all(struct comm *comm);
bool case_many_at_once(struct comm *comm);
bool case_one_ahead_with_late_ranks(struct comm *comm);
bool case_counters_follow_the_formula(struct comm *comm);
bool case_groups_of_ranks(struct comm *comm);

/* suite_control.c */
bool case_ranks_know_their_places(struct comm *comm);
bool case_who_is_where_is_known(struct comm *comm);
bool case_integers_are_reduced(struct comm *comm);
bool case_digits_of_an_exact_sum_add_up(struct comm *comm);
bool case_control_messages_arrive(struct comm *comm);
bool case_all_well_is_well(struct comm *comm);
bool case_one_failure_is_everyones(struct comm *comm);
bool case_equal_failures_are_told_once(struct comm *comm);
bool case_groups_of_ranks_are_named(struct comm *comm);
bool case_a_lost_peer_is_not_the_cause(struct comm *comm);
