#include "comm/mesh.h"

#include <criterion/criterion.h>

/* Each role's groups hold every rank once, at the place that it has. */
static void check_partition(struct mesh mesh, enum mesh_role role)
{
    int members = 0;
    for (int rank = 0; rank < mesh.world; rank++) {
        struct mesh_group group = mesh_group(mesh, role, rank);
        cr_assert_eq(mesh_rank(group, group.place), rank);
        members += group.place == 0 ? group.size : 0;
        for (int place = 0; place < group.size; place++) {
            int other = mesh_rank(group, place);
            struct mesh_group theirs = mesh_group(mesh, role, other);
            cr_assert_eq(theirs.first, group.first);
            cr_assert_eq(theirs.place, place);
        }
    }
    cr_assert_eq(members, mesh.world);
}

Test(mesh, groups_hold_every_rank_once)
{
    for (int world = 1; world <= 16; world++)
        for (int node = 0; node <= world; node++)
            for (int role = MESH_SHARD; role <= MESH_RAIL; role++)
                if (node == 0 || mesh_has_nodes(world, node))
                    check_partition(mesh_of(world, node), (enum mesh_role)role);
}

Test(mesh, a_node_and_a_rail_share_one_rank)
{
    struct mesh mesh = mesh_of(12, 4);
    for (int rank = 0; rank < mesh.world; rank++) {
        struct mesh_group node = mesh_group(mesh, MESH_NODE, rank);
        struct mesh_group rail = mesh_group(mesh, MESH_RAIL, rank);
        cr_assert_eq(node.size, 4);
        cr_assert_eq(rail.size, 3);
        cr_assert_eq(rail.first, node.place);
        cr_assert_eq(mesh_rank(rail, rail.place), rank);
        cr_assert_eq(mesh_rank(node, 0), 4 * rail.place);
    }
    cr_assert_not(mesh_has_nodes(12, 5));
}

Test(mesh, samples_are_numbered_by_rank_where_all_shard)
{
    for (int rank = 0; rank < 6; rank++) {
        struct mesh_group samples = mesh_samples(mesh_of(6, 2), rank);
        cr_assert_eq(samples.size, 6);
        cr_assert_eq(samples.place, rank);
    }
}

Test(mesh, neighbors_go_round)
{
    struct mesh_group group = mesh_group(mesh_of(4, 0), MESH_SHARD, 3);
    cr_assert_eq(mesh_neighbor(group, 1), 0);
    cr_assert_eq(mesh_neighbor(group, -4), 3);
}
