/* mesh.h - the groups that ranks form, computed from the sizes alone. No other
 * code divides a rank number (tests/docs/structure.sh).
 *
 *   rank        0  1  2  3 | 4  5  6  7      world 8, nodes of 4, replicate 2
 *   NODE        0  1  2  3 | 4  5  6  7      neighbors; the first level of sums
 *   RAIL        0-4, 1-5, 2-6, 3-7           one of each node; the second
 *   SHARD       0  1  2  3 | 4  5  6  7      who cuts parameters and gradients
 *                                            among them
 *   REPLICATE   0-4, 1-5, 2-6, 3-7           who holds the same shard; it is
 *                                            cut among them for masters and
 *                                            states
 *
 * SHARD and REPLICATE are the axes of the mesh, replicate outermost. Samples
 * are numbered by the place in REPLICATE x SHARD.
 *
 * Source: hybrid sharding, Zhao et al. 2023, arXiv:2304.11277, section 3.2.2.
 */
#ifndef ZD_COMM_MESH_H
#define ZD_COMM_MESH_H

#include "base/status.h"

#include <stdbool.h>

enum mesh_role { MESH_SHARD, MESH_REPLICATE, MESH_NODE, MESH_RAIL };

struct mesh_sizes { /* [parallel] */
    int replicate;
    int shard; /* -1: the world / replicate */
};

struct mesh {
    int world;
    int node;             /* ranks of a node; `world`: one level */
    int replicate, shard; /* their product is the world */
};

struct mesh_group { /* of one rank */
    int size;
    int place; /* of the rank in it */
    int first; /* rank at place 0 */
    int stride;
};

struct mesh_place {               /* of one rank on each axis */
    int replicate, shard, cp, tp; /* cp, tp: of one rank so far */
};

/* Can a world be nodes of so many neighboring ranks? */
bool mesh_has_nodes(int world, int node);
/* All ranks are one SHARD. node 0: one level. The last node is smaller where
 * they do not divide it. */
struct mesh mesh_of(int world, int node);
/* ZD_ERR_CONFIG where the sizes do not make up the world. */
enum zd_status mesh_cut(
        struct mesh_sizes sizes, int world, struct mesh *mesh_out);
struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank);
/* All that see samples of their own. */
struct mesh_group mesh_samples(struct mesh mesh, int rank);
struct mesh_place mesh_place(struct mesh mesh, int rank);
/* Which part of the states of a segment is this rank's: 0 .. world - 1, in the
 * order of the segment's elements. */
int mesh_part(struct mesh mesh, int rank);
/* Does every group of this role lie within a host of so many neighbors? */
bool mesh_is_within(struct mesh mesh, enum mesh_role role, int host_ranks);
int mesh_rank(struct mesh_group group, int place);
/* The place that is `away` (at least -size) from this rank's, round and round.
 */
int mesh_neighbor(struct mesh_group group, int away);

#endif
