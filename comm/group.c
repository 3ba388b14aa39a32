/* Groups of a comm's ranks. */
#include "comm/backend.h"

#include <assert.h>
#include <string.h>

/* --- what is shared ------------------------------------------------------- */

static void share(
        struct comm *comm, const struct comm_functions *functions,
        const struct comm *with)
{
    *comm = (struct comm){
            .functions = functions,
            .root = comm,
            .row = with->row,
            .rank = with->rank,
            .size = with->size,
            .local_rank = with->local_rank,
            .local_size = with->local_size,
            .mesh = with->mesh,
            .node_ranks = with->node_ranks,
            .topology = with->topology,
            .options = with->options,
            .watch = with->watch,
            .seat = with->seat,
            .reduce_scratch = with->reduce_scratch};
    memcpy(comm->host, with->host, sizeof comm->host);
    for (int i = 0; i < COMM_OPS_MAX; i++)
        comm->ops[i].slot = i;
}

void comm_device_init(
        struct comm *comm, struct comm *control,
        const struct comm_functions *functions)
{
    share(comm, functions, control);
    comm->control = control;
}

int comm_row_place(const struct comm_row *row, int rank)
{
    int place = 0;
    while (row->first + place * row->stride != rank)
        place++;
    assert(place < row->count);
    return place;
}

void comm_group_init(
        struct comm *group, struct comm *parent, struct comm *control,
        const struct comm_row *row)
{
    const struct comm *root = parent->root;
    int per_node = comm_group_per_node(
            row->first, row->stride, row->count, root->node_ranks);
    bool has_levels = root->mesh.node < root->size;
    share(group, parent->functions, parent);
    group->control = control;
    group->root = parent->root;
    group->next = group->root->next;
    group->root->next = group;
    group->topology = NULL;
    group->row = *row;
    group->size = row->count;
    group->rank = comm_row_place(row, root->rank);
    group->node_ranks = per_node;
    group->mesh = mesh_of(row->count, has_levels ? per_node : 0);
}

/* --- nodes ---------------------------------------------------------------- */

static int node_of(struct mesh nodes, int rank)
{
    return mesh_group(nodes, MESH_RAIL, rank).place;
}

int comm_group_per_node(int first, int stride, int count, int per_node)
{
    struct mesh nodes = mesh_of(first + stride * count, per_node);
    int size = 0; /* of the first node */
    if (per_node == 0)
        return 0;
    for (int p = 1, run = 1; p <= count; p++, run++) {
        int rank = first + p * stride;
        bool ends = p == count ||
                    node_of(nodes, rank) != node_of(nodes, rank - stride);
        if (ends && size == 0)
            size = run;
        if (ends != (run == size))
            return 0;
        if (ends)
            run = 0;
    }
    return size;
}

/* --- life ----------------------------------------------------------------- */

enum zd_status comm_group_create(
        struct comm *comm, const char *name, int first, int stride, int count,
        struct comm **group_out)
{
    struct comm *control = NULL, *group = NULL;
    enum zd_status status = ZD_OK;
    struct comm_row row = {
            .name = name,
            .first = comm->row.first + first * comm->row.stride,
            .stride = stride * comm->row.stride,
            .count = count};
    assert(first >= 0 && first + (count - 1) * stride < comm->size);
    if (comm->control)
        status = comm_group_create(
                comm->control, name, first, stride, count, &control);
    if (status != ZD_OK)
        return status;
    status = comm->functions->group(comm, control, &row, &group);
    status = comm_agree(comm, status);
    if (status != ZD_OK) {
        comm_destroy(group ? group : control);
        return status;
    }
    *group_out = group;
    return ZD_OK;
}

static void leave_list(struct comm *group)
{
    struct comm *before = group->root;
    while (before->next != group)
        before = before->next;
    before->next = group->next;
}

void comm_destroy(struct comm *comm)
{
    if (!comm)
        return;
    bool is_group = comm->root != comm;
    struct comm *control = is_group ? comm->control : NULL;
    assert(is_group || !comm->next);
    if (is_group)
        leave_list(comm);
    comm->functions->destroy(comm);
    comm_destroy(control);
}
