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

static struct mesh cut(int replicate, int shard, int world)
{
    struct mesh mesh;
    cr_assert_eq(
            mesh_cut((struct mesh_sizes){replicate, shard}, world, &mesh),
            ZD_OK);
    return mesh;
}

Test(mesh, replicate_is_outermost_and_parts_follow_shards)
{
    for (int replicate = 1; replicate <= 4; replicate++)
        for (int shard = 1; shard <= 4; shard++) {
            int world = replicate * shard;
            struct mesh mesh = cut(replicate, -1, world);
            check_partition(mesh, MESH_SHARD);
            check_partition(mesh, MESH_REPLICATE);
            for (int rank = 0; rank < world; rank++) {
                int part = mesh_part(mesh, rank);
                cr_expect_eq(part / replicate, rank % shard);
                cr_expect_eq(part % replicate, rank / shard);
                cr_expect_eq(mesh_samples(mesh, rank).place, rank);
                cr_expect_eq(mesh_samples(mesh, rank).size, world);
            }
        }
    struct mesh mesh = cut(2, 4, 8);
    cr_expect(mesh_is_within(mesh, MESH_SHARD, 4));
    cr_expect_not(mesh_is_within(mesh, MESH_REPLICATE, 4));
    cr_expect(mesh_is_within(mesh, MESH_REPLICATE, 8));
    cr_expect_not(mesh_is_within(cut(2, 3, 6), MESH_SHARD, 4));
}

Test(mesh, sizes_that_are_not_the_world_are_refused_with_some_that_are)
{
    static const struct {
        int replicate, shard, world;
        const char *fix;
    } cases[] = {
            {2, 3, 8, "parallel.dp_shard_size = 4"},
            {1, 4, 8, "parallel.dp_replicate_size = 2"},
            {3, -1, 8, "parallel.dp_replicate_size = 2"},
            {3, 3, 8,
             "parallel.dp_replicate_size = 2 and parallel.dp_shard_size = "
             "\"auto\""},
            {4, -1, 1, "parallel.dp_replicate_size = 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mesh mesh;
        zd_error_clear();
        struct mesh_sizes sizes = {cases[i].replicate, cases[i].shard};
        cr_expect_eq(mesh_cut(sizes, cases[i].world, &mesh), ZD_ERR_CONFIG);
        cr_expect_str_eq(zd_error_get()->code, "E0216");
        cr_expect_str_eq(zd_error_get()->help, cases[i].fix);
    }
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
