/* mesh.h - the groups that ranks form, computed from the sizes alone. No other
 * code divides a rank number (tests/docs/structure.sh).
 *
 *   rank        0  1  2  3 | 4  5  6  7   world 8, nodes of 4; sizes 2 x 2 of
 *                                         replicate and shard, then tp 2
 *   NODE        0  1  2  3 | 4  5  6  7   neighbors; the first level of sums
 *   RAIL        0-4, 1-5, 2-6, 3-7        one of each node; the second
 *   SHARD       0-2, 1-3   | 4-6, 5-7     who cuts parameters and gradients
 *                                         among them
 *   REPLICATE   0-4, 1-5, 2-6, 3-7        who holds the same shard; it is cut
 *                                         among them for masters and states
 *   CP          of one rank here          who shares a sample's tokens
 *   TP          0-1  2-3   | 4-5  6-7     who shares each layer's matrices
 *
 * The axes are, outermost first, replicate, shard, cp and tp. SHARD is all of
 * shard x cp, since ranks that share a sample hold the same parameters. Samples
 * are numbered by the place in replicate x shard: cp and tp share them.
 *
 * Source: hybrid sharding, Zhao et al. 2023, arXiv:2304.11277, section 3.2.2;
 * tensor parallelism innermost, Narayanan et al. 2021, arXiv:2104.04473. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum mesh_role {
    MESH_SHARD,
    MESH_REPLICATE,
    MESH_CP,
    MESH_TP,
    MESH_NODE,
    MESH_RAIL
};

struct mesh_sizes { /* [parallel] */
    int replicate;  /* -1: the rest of the world; 1 if .. */
    int shard;      /* .. this is -1: then this is the rest */
    int cp, tp;
};

struct mesh {
    int world;
    int node;                     /* ranks of a node; `world`: one level */
    int replicate, shard, cp, tp; /* their product is the world */
};

struct mesh_group { /* of one rank */
    int size;
    int place; /* of the rank in it */
    int first; /* rank at place 0 */
    int stride;
};

struct mesh_place { /* of one rank on each axis */
    int replicate, shard, cp, tp;
};

/* Can a world be nodes of so many neighboring ranks? */
bool mesh_has_nodes(int world, int node);
/* All ranks are one SHARD. node 0: one level. The last node may be smaller. */
struct mesh mesh_of(int world, int node);
/* ZD_ERR_CONFIG where the sizes do not make up the world. */
enum zd_status mesh_cut(
        struct mesh_sizes sizes, int world, struct mesh *mesh_out);
struct mesh_group mesh_group(struct mesh mesh, enum mesh_role role, int rank);
/* How samples are divided: the number of groups with different samples, and
 * this rank's place among them, which ranks that share a sample have in
 * common. */
struct mesh_group mesh_samples(struct mesh mesh, int rank);
struct mesh_place mesh_place(struct mesh mesh, int rank);
/* Which part of the states of a segment is this rank's: 0 .. mesh_parts - 1, in
 * the order of the segment's elements. Each place of tp has its own segments.
 */
int mesh_part(struct mesh mesh, int rank);
int mesh_parts(struct mesh mesh);
/* Does every group of this role lie within a host of so many neighbors? */
bool mesh_is_within(struct mesh mesh, enum mesh_role role, int host_ranks);
/* What the tokens of a sample must be a multiple of: 2 cp pieces (one, without
 * cp), each in tp shares. */
int64_t mesh_token_unit(struct mesh_sizes sizes);
/* The place at distance `away` (at least -size) from this rank's, in a ring. */
int mesh_neighbor(struct mesh_group group, int away);
