/* The suite over MPI; TAP from rank 0. `--abort CODE`: every rank but the last
 * waits for a message that never comes, and the last ends the job. `--stop
 * RANK`: 2 x 2 x 2 ranks work in their groups until that rank's process is
 * stopped. */
#include "comm/comm_mpi.h"
#include "tests/comm/count_isend.h"
#include "tests/comm/suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the cases sent so far by our own counters and by the transport's. */
static bool counters_match_the_transport(struct comm *comm)
{
    struct comm_counters counters = comm_counters(comm);
    counters.reduce_scatter += suite_group_counters.reduce_scatter;
    counters.all_gather += suite_group_counters.all_gather;
    counters.all_to_all += suite_group_counters.all_to_all;
    counters.all_reduce += suite_group_counters.all_reduce;
    return CHECK(comm,
                 counters.reduce_scatter ==
                         isend_bytes(TAG_OPERATIONS + OP_REDUCE_SCATTER)) &&
           CHECK(comm, counters.all_gather ==
                               isend_bytes(TAG_OPERATIONS + OP_ALL_GATHER)) &&
           CHECK(comm, counters.all_to_all ==
                               isend_bytes(TAG_OPERATIONS + OP_ALL_TO_ALL)) &&
           CHECK(comm, counters.all_reduce == isend_bytes(TAG_STEP)) &&
           CHECK(comm,
                 comm_size(comm) == 1 || counters.reduce_scatter > 1000000);
}

static void report(struct comm *comm, int number, bool holds, const char *name)
{
    int64_t all = holds;
    comm_all_reduce_i64(comm, &all, 1, COMM_MIN);
    if (comm_rank(comm) == 0)
        printf("%s %d - %d ranks: %s\n", all ? "ok" : "not ok", number,
               comm_size(comm), name);
    fflush(stdout);
}

static void abort_or_wait(struct comm *comm, int code)
{
    if (comm_rank(comm) == comm_size(comm) - 1)
        comm_abort(comm, code);
    comm_barrier(comm);
}

/* One operation ahead, of any group. */
static enum zd_status work_in_groups(struct comm *comm, int stops)
{
    static const char *const names[] = {"tp", "cp", "shard"};
    enum { GROUPS = 3, MARGIN = 100 };
    struct comm *groups[GROUPS + 1] = {comm};
    struct comm_op *ops[2];
    static float full[2][8];
    unsigned seed = 1; /* the same on all ranks */
    int of[2] = {0}, rank = comm_rank(comm);
    for (int g = 0; g < GROUPS; g++) {
        int stride = 1 << g;
        ZD_TRY(comm_group_create(
                comm, names[g], rank & ~stride, stride, 2, &groups[g + 1]));
    }
    for (int i = 0;; i++) {
        int slot = i % 2;
        if (i > MARGIN && rank == stops)
            raise(SIGSTOP);
        of[slot] = (int)(rand_r(&seed) >> 8) % (GROUPS + 1);
        struct comm *group = groups[of[slot]];
        ZD_TRY(comm_all_gather_begin(
                group, &full[slot][comm_rank(group)], full[slot], 1, DTYPE_FP32,
                &ops[slot]));
        if (i > 0)
            ZD_TRY(comm_wait(groups[of[1 - slot]], ops[1 - slot]));
    }
}

int main(int argc, char **argv)
{
    struct comm *comm;
    struct arena_plan plan;
    struct arena arena;
    struct comm_options options = {.backend = COMM_MPI};
    bool stops = argc == 3 && strcmp(argv[1], "--stop") == 0;
    if (stops)
        options.timeout = 3;
    if (comm_mpi_create(&argc, &argv, &options, &comm) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "--abort") == 0)
        abort_or_wait(comm, atoi(argv[2]));
    if (stops)
        return zd_exit_code(work_in_groups(comm, atoi(argv[2])));

    arena_plan_init(&plan);
    if (comm_plan_needs(
                &plan,
                &(struct comm_needs){
                        .transport = COMM_TRANSPORT_HOST,
                        .world = comm_size(comm)}) != ZD_OK ||
        arena_take(&arena, &plan) != ZD_OK)
        return 1;
    comm_set_memory(comm, &arena);
    if (comm_rank(comm) == 0)
        printf("1..%d\n", suite_case_count + 1);
    for (int c = 0; c < suite_case_count; c++)
        report(comm, c + 1, suite_cases[c].run(comm), suite_cases[c].name);
    report(comm, suite_case_count + 1, counters_match_the_transport(comm),
           "counters match the transport's");
    comm_destroy(comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    return 0;
}
