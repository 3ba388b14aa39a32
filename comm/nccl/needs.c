#include "base/number/sizes.h"
#include "comm/nccl/nccl.h"

/* Above this size, the pieces of a large shard use the same scratch one after
 * another. */
static const size_t EXCHANGE_BYTES = (size_t)256 << 20;
/* A piece is never smaller, even with very many ranks: messages would be too
 * small. */
static const size_t PIECE_MIN = 256 << 10;

size_t nccl_ordered_slots(int world, int nodes)
{
    return nodes > 1 ? (size_t)world : (size_t)world - 1;
}

/* Room to exchange the parts of one piece of the largest shard. */
static size_t exchange_bytes(const struct comm_needs *needs, int nodes)
{
    size_t slots = nccl_ordered_slots(needs->world, nodes);
    size_t piece = EXCHANGE_BYTES / slots / NCCL_SLOT_ALIGN * NCCL_SLOT_ALIGN;
    size_t whole = size_round_up(needs->reduce_bytes, NCCL_SLOT_ALIGN);
    if (piece < PIECE_MIN)
        piece = PIECE_MIN;
    return slots * (whole < piece ? whole : piece);
}

/* One operation of the largest size must fit; smaller ones then share it. */
size_t nccl_device_bytes(const struct comm_needs *needs)
{
    struct mesh mesh = mesh_of(needs->world, needs->node_size);
    int nodes = mesh_group(mesh, MESH_RAIL, 0).size;
    bool has_nodes = nodes > 1;
    size_t levels =
            has_nodes ? (size_t)nodes *
                                size_round_up(needs->shard_bytes, ARENA_ALIGN)
                      : 0;
    if (!needs->is_ordered)
        return levels + size_round_up(needs->accumulate_bytes, ARENA_ALIGN);
    size_t exchange = exchange_bytes(needs, nodes);
    return exchange > levels ? exchange : levels;
}
