/* The suite over MPI; TAP from rank 0. `--stop RANK`: 2 x 2 x 2 ranks work in
 * their groups until that rank's process is stopped, with comm.timeout =
 * TEST_COMM_TIMEOUT s. */
#include "comm/comm_mpi.h"
#include "tests/comm/suite.h"

#include <assert.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t bytes_by_tag[16];

/* The transport's own count. */
int MPI_Isend(
        const void *data, int count, MPI_Datatype type, int to, int tag,
        MPI_Comm comm, MPI_Request *request)
{
    int width;
    MPI_Type_size(type, &width);
    assert(tag >= 0 && tag < 16);
    bytes_by_tag[tag] += (uint64_t)count * (uint64_t)width;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

/* What the cases sent so far by our own counters and by the transport's. */
static bool counters_match_the_transport(struct comm *comm)
{
    const int tags[COMM_COUNTERS] = {
            TAG_OPERATIONS + COMM_REDUCE_SCATTER,
            TAG_OPERATIONS + COMM_ALL_GATHER, TAG_OPERATIONS + COMM_ALL_TO_ALL,
            TAG_STEP};
    struct comm_counters counters = comm_counters(comm);
    bool holds = true;
    for (int i = 0; i < COMM_COUNTERS; i++) {
        uint64_t sent = counters.bytes[i] + suite_group_counters.bytes[i];
        holds &= CHECK(comm, sent == bytes_by_tag[tags[i]]);
        holds &= CHECK(comm, i > 0 || comm_size(comm) == 1 || sent > 1000000);
    }
    return holds;
}

static const struct suite_case last = {
        "counters match the transport's", counters_match_the_transport};

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
        ZD_TRY(comm_begin(
                group,
                &(struct comm_op){
                        .kind = COMM_ALL_GATHER,
                        .from = &full[slot][comm_rank(group)],
                        .to = full[slot],
                        .count = 1},
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
        options.timeout = atof(getenv("TEST_COMM_TIMEOUT"));
    if (comm_mpi_create(&argc, &argv, &options, &comm) != ZD_OK) {
        zd_error_print(stderr, zd_error_get());
        return 1;
    }
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
    int code = suite_report(comm, "", &last);
    comm_destroy(comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    return code;
}
