#include "comm/mesh.h"

bool mesh_has_nodes(int world, int node)
{
    return node > 0 && world % node == 0;
}

struct mesh mesh_of(int world, int node)
{
    return (struct mesh){
            .world = world,
            .node = node ? node : world,
            .replicate = 1,
            .shard = world};
}

/* The error names a size that fits the other, or the largest that fits at all.
 */
static enum zd_status refuse(struct mesh_sizes sizes, int world)
{
    int replicate = sizes.replicate;
    if (sizes.shard > 0)
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.dp_replicate_size x dp_shard_size is %d x %d, which "
                "is not the %d rank%s of the job",
                replicate, sizes.shard, world, world == 1 ? "" : "s");
    else
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.dp_replicate_size = %d does not divide the %d rank%s "
                "of the job",
                replicate, world, world == 1 ? "" : "s");
    if (replicate == 1 && world % sizes.shard == 0)
        return zd_fail_help(
                "parallel.dp_replicate_size = %d", world / sizes.shard);
    if (world % replicate == 0)
        return zd_fail_help("parallel.dp_shard_size = %d", world / replicate);
    while (replicate > world || world % replicate)
        replicate--;
    return zd_fail_help(
            "parallel.dp_replicate_size = %d%s", replicate,
            sizes.shard > 0 ? " and parallel.dp_shard_size = \"auto\"" : "");
}

enum zd_status mesh_cut(
        struct mesh_sizes sizes, int world, struct mesh *mesh_out)
{
    if (world % sizes.replicate ||
        (sizes.shard > 0 && sizes.shard != world / sizes.replicate))
        return refuse(sizes, world);
    *mesh_out = mesh_of(world, 0);
    mesh_out->replicate = sizes.replicate;
    mesh_out->shard = world / sizes.replicate;
    return ZD_OK;
}

struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank)
{
    int node = mesh.node, size = 1, stride = 1;
    switch (role) {
    case MESH_SHARD:
        size = mesh.shard;
        break;
    case MESH_REPLICATE:
        size = mesh.replicate;
        stride = mesh.shard;
        break;
    case MESH_NODE:
        size = node;
        break;
    case MESH_RAIL:
        size = (mesh.world + node - 1) / node;
        stride = node;
        break;
    }
    int place = rank / stride % size;
    return (struct mesh_group){
            .size = size,
            .place = place,
            .first = rank - place * stride,
            .stride = stride};
}

struct mesh_group mesh_samples(struct mesh mesh, int rank)
{
    struct mesh_group shard = mesh_group(mesh, MESH_SHARD, rank);
    struct mesh_group replicate = mesh_group(mesh, MESH_REPLICATE, rank);
    return (struct mesh_group){
            .size = replicate.size * shard.size,
            .place = replicate.place * shard.size + shard.place,
            .stride = 1};
}

struct mesh_place mesh_place(struct mesh mesh, int rank)
{
    return (struct mesh_place){
            .replicate = mesh_group(mesh, MESH_REPLICATE, rank).place,
            .shard = mesh_group(mesh, MESH_SHARD, rank).place};
}

int mesh_part(struct mesh mesh, int rank)
{
    struct mesh_place place = mesh_place(mesh, rank);
    return place.shard * mesh.replicate + place.replicate;
}

bool mesh_is_within(struct mesh mesh, enum mesh_role role, int host_ranks)
{
    for (int rank = 0; rank < mesh.world; rank++) {
        struct mesh_group group = mesh_group(mesh, role, rank);
        if (group.first / host_ranks != rank / host_ranks)
            return false;
    }
    return true;
}

int mesh_rank(struct mesh_group group, int place)
{
    return group.first + place * group.stride;
}

int mesh_neighbor(struct mesh_group group, int away)
{
    return (group.place + away + group.size) % group.size;
}
