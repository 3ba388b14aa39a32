#include "tests/comm/group.h"

#include "base/device/device_memory.h"
#include "tests/comm/suite.h"
#include "tests/support/require.h"
#include "tests/support/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CASES_MAX = 32 };

struct member {
    const struct group_case *group;
    struct comm *control;
    bool holds[CASES_MAX];
};

static enum zd_status create(
        const struct group_case *group, struct comm *control,
        struct comm **comm_out)
{
    struct comm_options options = {
            .backend = group->backend,
            .reduce = group->reduce,
            .hierarchical =
                    group->ranks_per_node ? COMM_LEVELS_TWO : COMM_LEVELS_ONE,
            .ranks_per_node = group->ranks_per_node};
    if (group->on_gpu)
        return comm_device_create(control, &options, comm_out);
    return comm_staged_create(control, group->mode, comm_out);
}

static void run_suite(struct member *member, struct comm *comm)
{
    for (int c = 0; c < suite_case_count; c++)
        member->holds[c] = suite_cases[c].run(comm);
}

static void *run_member(void *arg)
{
    struct member *member = arg;
    const struct group_case *group = member->group;
    int size = comm_size(member->control), rank = comm_rank(member->control);
    struct device *device = NULL;
    struct comm *comm;
    struct arena_plan plan;
    struct arena arena;
    if (group->on_host) {
        run_suite(member, member->control);
        comm_destroy(member->control);
        return NULL;
    }
    if (group->on_gpu) {
        require(device_open(DEVICE_CUDA, rank, size, &device));
        device_use(device);
    }
    require(create(group, member->control, &comm));
    struct comm_needs needs = {
            .transport = comm_transport(comm),
            .world = size,
            .node_size = comm_mesh(comm).node,
            .shard_bytes = group->shard_bytes,
            .reduce_bytes = group->reduce_bytes ? group->reduce_bytes
                                                : group->shard_bytes,
            .is_ordered = group->reduce == COMM_REDUCE_ORDERED,
            .accumulate_bytes = group->shard_bytes};
    arena_plan_init(&plan);
    require(comm_plan_needs(&plan, &needs));
    require(arena_take(&arena, &plan));
    comm_set_memory(comm, &arena);
    run_suite(member, comm);
    comm_destroy(comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    comm_destroy(member->control);
    device_use(NULL);
    device_close(device);
    return NULL;
}

void group_run(const struct group_case *group)
{
    struct comm *comms[GROUP_MAX];
    struct member members[GROUP_MAX];
    pthread_t threads[GROUP_MAX];
    struct comm_options options = {
            .backend = COMM_LOCAL,
            .hierarchical =
                    group->ranks_per_node ? COMM_LEVELS_TWO : COMM_LEVELS_ONE,
            .ranks_per_node = group->ranks_per_node};
    require(comm_local_create(group->size, &options, comms));
    for (int r = 0; r < group->size; r++) {
        members[r] = (struct member){.group = group, .control = comms[r]};
        if (pthread_create(&threads[r], NULL, run_member, &members[r]) != 0)
            abort();
    }
    for (int r = 0; r < group->size; r++)
        pthread_join(threads[r], NULL);
    for (int c = 0; c < suite_case_count; c++) {
        bool holds = true;
        for (int r = 0; r < group->size; r++)
            holds &= members[r].holds[c];
        tap_ok(holds, "%s, %d ranks, nodes of %d: %s", group->name, group->size,
               group->ranks_per_node ? group->ranks_per_node : group->size,
               suite_cases[c].name);
    }
}
