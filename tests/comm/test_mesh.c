#include "comm/mesh.h"

#include <criterion/criterion.h>

static int rank_at(struct mesh_group group, int place)
{
    return group.first + place * group.stride;
}

/* Each role's groups hold every rank once, at the place that it has. */
static void check_partition(struct mesh mesh, enum mesh_role role)
{
    int members = 0;
    for (int rank = 0; rank < mesh.world; rank++) {
        struct mesh_group group = mesh_group(mesh, role, rank);
        cr_assert_eq(rank_at(group, group.place), rank);
        members += group.place == 0 ? group.size : 0;
        for (int place = 0; place < group.size; place++) {
            int other = rank_at(group, place);
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

static struct mesh cut(struct mesh_sizes sizes, int world)
{
    struct mesh mesh;
    cr_assert_eq(mesh_cut(sizes, world, &mesh), ZD_OK);
    return mesh;
}

/* Outermost first: replicate, shard, cp, tp. */
static void check_places(struct mesh_sizes sizes)
{
    int world = sizes.replicate * sizes.shard * sizes.cp * sizes.tp;
    struct mesh mesh = cut(sizes, world);
    for (int role = MESH_SHARD; role <= MESH_TP; role++)
        check_partition(mesh, (enum mesh_role)role);
    cr_expect_eq(mesh_parts(mesh), world / sizes.tp);
    for (int rank = 0; rank < world; rank++) {
        struct mesh_place at = mesh_place(mesh, rank);
        int sample = at.replicate * sizes.shard + at.shard;
        int in_shard = at.shard * sizes.cp + at.cp;
        cr_expect_eq((sample * sizes.cp + at.cp) * sizes.tp + at.tp, rank);
        cr_expect_eq(mesh_group(mesh, MESH_SHARD, rank).place, in_shard);
        cr_expect_eq(
                mesh_part(mesh, rank),
                in_shard * sizes.replicate + at.replicate);
        cr_expect_eq(mesh_samples(mesh, rank).place, sample);
        cr_expect_eq(
                mesh_samples(mesh, rank).size, sizes.replicate * sizes.shard);
    }
}

Test(mesh, replicate_is_outermost_and_parts_follow_shards)
{
    for (int i = 0; i < 3 * 3 * 3 * 3; i++)
        check_places((struct mesh_sizes){
                i / 27 + 1, i / 9 % 3 + 1, i / 3 % 3 + 1, i % 3 + 1});
    struct mesh mesh = cut((struct mesh_sizes){2, -1, 1, 1}, 8);
    cr_expect(mesh_is_within(mesh, MESH_SHARD, 4));
    cr_expect_not(mesh_is_within(mesh, MESH_REPLICATE, 4));
    cr_expect(mesh_is_within(mesh, MESH_REPLICATE, 8));
    mesh = cut((struct mesh_sizes){2, 3, 1, 1}, 6);
    cr_expect_not(mesh_is_within(mesh, MESH_SHARD, 4));
    mesh = cut((struct mesh_sizes){1, -1, 1, 4}, 8);
    cr_expect(mesh_is_within(mesh, MESH_TP, 4));
    cr_expect_not(mesh_is_within(mesh, MESH_TP, 2));
}

Test(mesh, sizes_that_are_not_the_world_are_refused_with_some_that_are)
{
    static const struct {
        struct mesh_sizes sizes;
        int world;
        const char *fix;
    } cases[] = {
            {{2, 3, 1, 1}, 8, "parallel.dp_shard_size = 4"},
            {{1, 4, 1, 1}, 8, "parallel.dp_replicate_size = 2"},
            {{3, -1, 1, 1}, 8, "parallel.dp_replicate_size = 2"},
            {{3, 3, 1, 1},
             8,
             "parallel.dp_replicate_size = 2 and parallel.dp_shard_size = "
             "\"auto\""},
            {{4, -1, 1, 1},
             1,
             "start 4 ranks (mpirun -np 4), for a plan --world 4"},
            {{1, -1, 1, 3}, 8, "parallel.tp_size = 2"},
            {{1, 2, 1, 2}, 8, "parallel.dp_replicate_size = 2"},
            {{2, 3, 1, 2}, 8, "parallel.dp_shard_size = 2"},
            {{1, -1, 1, 2},
             1,
             "start 2 ranks (mpirun -np 2), for a plan --world 2"},
            {{1, 3, 1, 2}, 8, "parallel.dp_shard_size = 4"},
            {{1, -1, 2, 8}, 8, "parallel.tp_size = 4"},
            {{1, -1, 3, 4}, 8, "parallel.cp_size = 2"},
            {{4, -1, 1, 4}, 8, "parallel.dp_replicate_size = 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mesh mesh;
        zd_error_clear();
        cr_expect_eq(
                mesh_cut(cases[i].sizes, cases[i].world, &mesh), ZD_ERR_CONFIG);
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
        cr_assert_eq(rank_at(rail, rail.place), rank);
        cr_assert_eq(rank_at(node, 0), 4 * rail.place);
    }
    cr_assert_not(mesh_has_nodes(12, 5));
}

Test(mesh, neighbors_go_round)
{
    struct mesh_group group = mesh_group(mesh_of(4, 0), MESH_SHARD, 3);
    cr_assert_eq(mesh_neighbor(group, 1), 0);
    cr_assert_eq(mesh_neighbor(group, -4), 3);
}
