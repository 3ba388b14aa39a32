/* mesh.h - the groups that ranks form, computed from the sizes alone. No other
 * code divides a rank number (tests/docs/structure.sh).
 *
 *   rank        0  1  2  3 | 4  5  6  7      world 8, nodes of 4
 *   NODE        0  1  2  3 | 4  5  6  7      neighbors; the first level of sums
 *   RAIL        0-4, 1-5, 2-6, 3-7           one of each node; the second
 *   SHARD       all                          who cuts parameters, gradients and
 *                                            states among them
 *   REPLICATE   each rank alone              who holds the same shard
 *
 * Samples are numbered by the place in REPLICATE x SHARD. */
#ifndef ZD_COMM_MESH_H
#define ZD_COMM_MESH_H

#include <stdbool.h>

enum mesh_role { MESH_SHARD, MESH_REPLICATE, MESH_NODE, MESH_RAIL };

struct mesh {
    int world;
    int node; /* ranks of a node; `world`: one level */
};

struct mesh_group { /* of one rank */
    int size;
    int place; /* of the rank in it */
    int first; /* rank at place 0 */
    int stride;
};

/* Can a world be nodes of so many neighboring ranks? */
bool mesh_has_nodes(int world, int node);
/* node 0: one level. The last node is smaller where they do not divide it. */
struct mesh mesh_of(int world, int node);
struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank);
/* All that see samples of their own. */
struct mesh_group mesh_samples(struct mesh mesh, int rank);
int mesh_rank(struct mesh_group group, int place);
/* The place that is `away` (at least -size) from this rank's, round and round.
 */
int mesh_neighbor(struct mesh_group group, int away);

#endif
