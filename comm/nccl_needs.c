#include "comm/comm_nccl.h"

/* One operation of the largest size must fit; smaller ones then share it. */
size_t nccl_device_bytes(const struct comm_needs *needs)
{
    size_t bytes = (needs->accumulate_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN *
                   ARENA_ALIGN;
    if (needs->node_size > 0 && needs->node_size < needs->world)
        bytes += (size_t)(needs->world / needs->node_size) *
                 ((needs->shard_bytes + ARENA_ALIGN - 1) / ARENA_ALIGN *
                  ARENA_ALIGN);
    return bytes;
}
