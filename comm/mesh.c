#include "comm/mesh.h"

#include <stdint.h>
#include <stdio.h>

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
            .shard = world,
            .cp = 1,
            .tp = 1};
}

/* The largest size up to `size` that divides the ranks. */
static int fitting(int size, int ranks)
{
    while (size > ranks || ranks % size)
        size--;
    return size;
}

/* Started without mpirun, as a rule, or planned without --world. */
static enum zd_status refuse_alone(struct mesh_sizes sizes)
{
    double shard = sizes.shard > 0 ? sizes.shard : 1;
    double ranks = shard * sizes.replicate * sizes.cp * sizes.tp;
    ZD_FAIL(ZD_ERR_CONFIG, "E0216",
            "the sizes of [parallel] are for %.0f ranks, and there is one",
            ranks);
    return zd_fail_help(
            "start %.0f ranks (mpirun -np %.0f), for a plan --world %.0f",
            ranks, ranks, ranks);
}

/* The product of cp and tp does not divide the ranks. */
static enum zd_status refuse_inner(struct mesh_sizes sizes, int world)
{
    int cp = fitting(sizes.cp, world);
    int tp = fitting(sizes.tp, world / cp);
    if (sizes.cp == 1 || sizes.tp == 1)
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.%s = %d does not divide the %d ranks of the job",
                sizes.cp == 1 ? "tp_size" : "cp_size", sizes.cp * sizes.tp,
                world);
    else
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.cp_size x tp_size is %d x %d, which does not divide "
                "the %d ranks of the job",
                sizes.cp, sizes.tp, world);
    if (cp == sizes.cp)
        return zd_fail_help("parallel.tp_size = %d", tp);
    return zd_fail_help(
            "parallel.cp_size = %d%s", cp,
            tp == sizes.tp ? "" : " and parallel.tp_size = 1");
}

/* The error names a size that fits the others, or the largest that fits at all.
 * `groups`: of cp x tp ranks. */
static enum zd_status refuse(struct mesh_sizes sizes, int groups)
{
    int replicate = sizes.replicate;
    const char *plural = groups == 1 ? "" : "s";
    char of[64];
    if (sizes.cp * sizes.tp == 1)
        ZD_PRINT(of, "%d rank%s", groups, plural);
    else
        ZD_PRINT(
                of,
                "%d group%s of %d x %d ranks (cp_size x "
                "tp_size)",
                groups, plural, sizes.cp, sizes.tp);
    if (sizes.shard > 0)
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.dp_replicate_size x dp_shard_size is %d x %d, which "
                "is not the %s of the job",
                replicate, sizes.shard, of);
    else
        ZD_FAIL(ZD_ERR_CONFIG, "E0216",
                "parallel.dp_replicate_size = %d does not divide the %s of the "
                "job",
                replicate, of);
    if (replicate == 1 && groups % sizes.shard == 0)
        return zd_fail_help(
                "parallel.dp_replicate_size = %d", groups / sizes.shard);
    if (groups % replicate == 0)
        return zd_fail_help("parallel.dp_shard_size = %d", groups / replicate);
    return zd_fail_help(
            "parallel.dp_replicate_size = %d%s", fitting(replicate, groups),
            sizes.shard > 0 ? " and parallel.dp_shard_size = \"auto\"" : "");
}

/* Resolves "auto": the other sizes' remainder, with as many shards as
 * possible. */
static int replicas_of(struct mesh_sizes sizes, int groups)
{
    int left = sizes.shard > 0 ? groups / sizes.shard : 1;
    if (sizes.replicate > 0)
        return sizes.replicate;
    return left > 0 && groups % left == 0 ? left : 1;
}

enum zd_status mesh_cut(
        struct mesh_sizes sizes, int world, struct mesh *mesh_out)
{
    int64_t inner = (int64_t)sizes.cp * sizes.tp;
    int groups = (int)(world / inner);
    sizes.replicate = replicas_of(sizes, groups);
    if (world % inner || groups % sizes.replicate ||
        (sizes.shard > 0 && sizes.shard != groups / sizes.replicate))
        return world == 1      ? refuse_alone(sizes)
               : world % inner ? refuse_inner(sizes, world)
                               : refuse(sizes, groups);
    *mesh_out = mesh_of(world, 0);
    mesh_out->replicate = sizes.replicate;
    mesh_out->shard = groups / sizes.replicate;
    mesh_out->cp = sizes.cp;
    mesh_out->tp = sizes.tp;
    return ZD_OK;
}

struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank)
{
    int node = mesh.node, size = 1, stride = 1;
    switch (role) {
    case MESH_SHARD:
        size = mesh.shard * mesh.cp;
        stride = mesh.tp;
        break;
    case MESH_REPLICATE:
        size = mesh.replicate;
        stride = mesh.shard * mesh.cp * mesh.tp;
        break;
    case MESH_CP:
        size = mesh.cp;
        stride = mesh.tp;
        break;
    case MESH_TP:
        size = mesh.tp;
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
    struct mesh_place place = mesh_place(mesh, rank);
    return (struct mesh_group){
            .size = mesh.replicate * mesh.shard,
            .place = place.replicate * mesh.shard + place.shard,
            .stride = 1};
}

struct mesh_place mesh_place(struct mesh mesh, int rank)
{
    return (struct mesh_place){
            .replicate = mesh_group(mesh, MESH_REPLICATE, rank).place,
            .shard = mesh_group(mesh, MESH_SHARD, rank).place / mesh.cp,
            .cp = mesh_group(mesh, MESH_CP, rank).place,
            .tp = mesh_group(mesh, MESH_TP, rank).place};
}

int mesh_parts(struct mesh mesh)
{
    return mesh.world / mesh.tp;
}

int mesh_part(struct mesh mesh, int rank)
{
    return mesh_group(mesh, MESH_SHARD, rank).place * mesh.replicate +
           mesh_group(mesh, MESH_REPLICATE, rank).place;
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

int64_t mesh_token_unit(struct mesh_sizes sizes)
{
    return (int64_t)(sizes.cp > 1 ? 2 * sizes.cp : 1) * sizes.tp;
}

int mesh_neighbor(struct mesh_group group, int away)
{
    return (group.place + away + group.size) % group.size;
}
