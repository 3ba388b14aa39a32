#include "comm/mesh.h"

bool mesh_has_nodes(int world, int node)
{
    return node > 0 && world % node == 0;
}

struct mesh mesh_of(int world, int node)
{
    return (struct mesh){.world = world, .node = node ? node : world};
}

struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank)
{
    int node = mesh.node, size = 1, stride = 1;
    switch (role) {
    case MESH_SHARD:
        size = mesh.world;
        break;
    case MESH_REPLICATE:
        stride = mesh.world;
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

int mesh_rank(struct mesh_group group, int place)
{
    return group.first + place * group.stride;
}

int mesh_neighbor(struct mesh_group group, int away)
{
    return (group.place + away + group.size) % group.size;
}
