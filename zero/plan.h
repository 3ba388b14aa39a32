/* plan.h - who owns what: a pure function of (tensors, world, stage, options).
 * Calls no MPI and allocates nothing that it plans; tested at every world from
 * 1 to 64.
 *
 *   unit                     gathered and released together (model/params.h)
 *   |- segment: sharded trainable tensors that are cut over the ranks |-
 * segment: whole likewise, with tensor parallelism those of them of | which
 * each of its places has all (model/slice.h) |- segment: frozen no gradient, no
 * state
 *   |- segment: codes        frozen weights in 4 or 8 bits, and ..
 *   '- segment: scales       .. what decodes them (kernels/quant), in bytes
 *
 *   segment   | tensor a    pad | tensor b  pad |  pad to N * shard |
 *             |<-- 256 k  ----->|<--- 256 k --->|
 *   shards    |--- rank 0 ----|---- rank 1 -----|---- rank 2 ----..|
 *
 * Ranks that hold the same shard (replicas) cut it once more, into parts, for
 * masters and states; N ranks shard, R replicate:
 *
 *   shard     |--------- shard 1 of ranks 1, N + 1, .. ---------|
 *   parts     |-- replica 0 --|-- replica 1 --|- .. R - 1 ------|
 *
 * Every tensor begins at a multiple of 256 elements in its segment and parts
 * are multiples of 256, so a piece of 256 that shares one norm term (and later
 * one 8-bit scale) never lies on two ranks and is the same at every world size.
 *
 * Codes and scales are cut independently, at multiples of 256 bytes rather than
 * of a block. A rank that makes them also reads the block that a cut divides
 * (base.c).
 *
 * Source: Rajbhandari et al. 2020, arXiv:1910.02054, sections 5 and 7. */
#pragma once

#include "base/memory/arena.h"
#include "base/number/array_format.h"
#include "comm/comm.h"
#include "model/model.h"
#include "offload/offload.h"
#include "optim/lanes.h"
#include "optim/optim.h"
#include "zero/options.h"

enum { ZERO_ALIGN = 256 };

/* Groups of ranks: those that shard segments; replicas of a shard; those that
 * share a sample's tokens (cp); those that share its matrices (tp); all ranks,
 * which agree on scalars. */
enum zero_group {
    ZERO_SHARD,
    ZERO_REPLICATE,
    ZERO_CP,
    ZERO_CUTS = ZERO_CP, /* the groups before it divide segments */
    ZERO_TP,
    ZERO_WORLD,
    ZERO_GROUPS
};

/* Arrays of parameters: trained, frozen, quantized codes, their scales. */
enum zero_array {
    ZERO_TRAINED,
    ZERO_FROZEN,
    ZERO_CODES,
    ZERO_SCALES, /* its elements are bytes */
    ZERO_ARRAYS
};

struct zero_segment {
    int unit;
    bool trainable;
    enum zero_array array;      /* the array that holds it */
    struct array_format format; /* of its parameters */
    size_t count;               /* padded: shards * shard_count */
    size_t shard_count;         /* elements of a shard: replicas * part_count */
    size_t part_count;          /* .. of a part */
    size_t used;                /* elements up to the end of its last tensor */
    size_t own; /* .. the first ones, which no other place of tp has. All places
                   have the rest: each computes a part of its gradient, and
                   these are summed */
    /* Where it begins, in arrays of whole segments and in arrays of one rank's
     * shards: in bytes in its parameter array; if trainable, in elements in
     * master, m, v and gradients. */
    size_t full_offset, shard_offset;
    size_t state_full_offset, state_shard_offset;
};

static inline bool zero_is_shared(const struct zero_segment *segment)
{
    return segment->own < segment->used;
}

/* How many of the `count` elements from `begin` on belong to this place of tp
 * alone. */
static inline size_t zero_own(
        const struct zero_segment *segment, size_t begin, size_t count)
{
    size_t left = segment->own > begin ? segment->own - begin : 0;
    return count < left ? count : left;
}

/* Bytes of `count` elements of a segment's parameters. All code that gathers,
 * copies, sends or plans parameters counts bytes with this. */
static inline size_t zero_segment_bytes(
        const struct zero_segment *segment, size_t count)
{
    return array_format_bytes(segment->format, count);
}

/* Elements of a segment that a rank contributes to a gather and gets from a
 * sum: its shard, or between replicas its part. */
static inline size_t zero_count_of(
        const struct zero_segment *segment, enum zero_group group)
{
    return group == ZERO_SHARD ? segment->shard_count : segment->part_count;
}

/* Where a tensor is; by tensor id. */
struct zero_place {
    int segment;
    size_t offset;      /* in the segment, a multiple of ZERO_ALIGN */
    int scales_segment; /* of a quantized tensor; -1: none */
    size_t scales;      /* in that segment */
    size_t blocks;      /* Adam-mini: its first block in zero.blocks */
};

/* One call of the params hooks in the stage-3 program of a step (program.c). */
struct zero_move {
    int unit;
    bool acquire;
    bool gather; /* acquire: not resident, must be gathered */
    int slot;    /* acquire: its slot; -1: the unit is empty */
    int start;   /* gather: index of the move after which it begins; -1: at the
                    start of the program; its own index: not prefetched */
};

/* Memory of gathered units: a slot holds one unit at a time. */
struct zero_slot {
    size_t offset, bytes; /* in zero.params.slots */
};

/* Per-part maximum over ranks. */
struct zero_needs {
    size_t offload[OFFLOAD_PARTS]; /* masters and states on the host */
    size_t states;                 /* bytes of those on the device, and .. */
    size_t spilled, largest_chunk; /* bytes of paged states on the host, and of
                                      the largest chunk that may be spilled */
};

/* Bytes that a rank sends. */
struct zero_wire {
    struct comm_counters group[ZERO_GROUPS];
};
static inline const char *zero_group_name(enum zero_group group)
{
    static const char *const names[ZERO_GROUPS] = {
            [ZERO_SHARD] = "shard",
            [ZERO_REPLICATE] = "replicate",
            [ZERO_CP] = "cp",
            [ZERO_TP] = "tp",
            [ZERO_WORLD] = "world"};
    return names[group];
}
static inline enum mesh_role zero_group_role(enum zero_group group)
{
    static const enum mesh_role roles[ZERO_WORLD] = {
            [ZERO_SHARD] = MESH_SHARD,
            [ZERO_REPLICATE] = MESH_REPLICATE,
            [ZERO_CP] = MESH_CP,
            [ZERO_TP] = MESH_TP};
    return roles[group];
}
/* Ranks of a group. */
static inline int zero_group_size(struct mesh mesh, enum zero_group group)
{
    return group == ZERO_WORLD
                   ? mesh.world
                   : mesh_group(mesh, zero_group_role(group), 0).size;
}
/* Is the group all ranks, so that it uses their comm? Of two such groups only
 * the first. */
static inline bool zero_group_is_world(struct mesh mesh, enum zero_group group)
{
    for (enum zero_group g = ZERO_SHARD; g < group; g++)
        if (zero_group_size(mesh, g) == mesh.world)
            return false;
    return zero_group_size(mesh, group) == mesh.world;
}
struct comm_counters zero_wire_sum(const struct zero_wire *wire);

struct zero_request {
    const struct model_config *config; /* with tensor parallelism .. */
    const struct param_table *table;   /* .. of this rank's slice */
    struct model_exchange exchange;    /* of the slice */
    struct mesh mesh;
    struct zero_options options;
    enum dtype dtype; /* compute type */
    int accumulation; /* micro-batches of a step */
    int by_layer;     /* how many micro-batches take turns in each unit
                         (model_forward), so that gradients are sums; 0: one */
    struct checkpointing checkpointing;
    int mlp_pieces;   /* as model_shape */
    bool reduce_fp32; /* gradients of one micro-batch, too, are sent and added
                         in fp32 and rounded once to the compute type */
    bool train;       /* false: parameters only (generate) */
    struct optim_options optim;
    struct offload_options offload;
    bool accumulate_on_host; /* offloaded optimizer, several micro-batches:
                                gradients are added up there */
    size_t spill_bytes; /* paged states: bytes of m and v on the host; rounded
                           up to chunks */
    struct zero_measures *measures; /* while the plan is built; or NULL */
};

/* Cache of parts' needs: computing them is most of the work of a plan, and many
 * plans share them, for instance those that differ only in the activations they
 * keep. For callers that make several plans of one table and mesh; starts
 * all-zero. */
enum { ZERO_MEASURES = 64 };
struct zero_measures {
    struct zero_measured {
        struct zero_request of;
        struct zero_needs needs;
        int undo_first;
    } last[ZERO_MEASURES];
    unsigned next;
};

/* for (ZERO_EACH(s, plan, unit)): the segments of a unit. */
#define ZERO_EACH(s, plan, unit)                                               \
    int s = (plan)->unit_segments[unit];                                       \
    s < (plan)->unit_segments[(unit) + 1];                                     \
    s++

struct zero_plan {
    struct zero_request request;   /* pointers borrowed */
    struct zero_segment *segments; /* in the order of units */
    int segment_count;
    int *unit_segments;        /* (unit_count + 1): segments of unit u are
                                  unit_segments[u] .. unit_segments[u+1]-1 */
    struct zero_place *places; /* by tensor id */
    enum dtype grad_dtype;     /* kept and sent: the compute type with one
                                  micro-batch (unless reduce_fp32), fp32 with
                                  several, also by layer */
    bool grads_direct; /* gradients of matmuls (param_is_product) are written in
                          grad_dtype, rounded once, without an fp32 buffer */
    /* What the stage cuts. With one rank nothing is cut at any stage. */
    int shards;      /* ranks that a segment is cut over: mesh's SHARD */
    int replicas;    /* .. that a shard is cut over: mesh's REPLICATE */
    bool params_cut; /* stage 3: units are gathered when they are used */
    bool states_cut; /* stages 1-3: a rank holds master, m, v of its part */
    bool grads_cut;  /* stages 2, 3, and 1 if grads_pass: a rank gets the
                        gradient of its shard in every micro-batch */
    /* Offload: masters and states belong to the engine (offload/offload.h),
     * which knows this rank's part of the trainable segments. */
    bool states_on_host;
    bool params_on_host; /* segments are copied to the device for use, with
                            stage 3's program, at any world */
    bool grads_pass; /* no gradient is kept on the device: each is copied down
                        in its micro-batch */
    int undo_first; /* segments from this one on are updated as gradients arrive
                       (offload_request); segment_count: none */
    struct zero_needs needs;
    size_t trainable_count; /* padded elements of the trainable segments, and
                               of a rank's shards of them */
    size_t trainable_shard;
    size_t full_bytes[ZERO_ARRAYS], shard_bytes[ZERO_ARRAYS]; /* .. of arrays */
    size_t block_count; /* Adam-mini: blocks of all tensors; their v is
                           held whole by every rank */

    /* stage 3: slots of gathered units (outer slots first), and the program of
     * all micro-batches of a step, and of one evaluation batch */
    struct zero_slot *slots;
    int layer_slots, outer_slots;
    struct zero_move *train_moves, *eval_moves;
    int train_move_count, eval_move_count;

    /* gradients: the units in the order in which a micro-batch completes them,
     * and where each has its work buffer */
    int *grad_units; /* (grad_unit_count) */
    int grad_unit_count;
    size_t *work_offsets; /* by unit, in fp32 elements of zero.grads.work */
    size_t work_count;    /* 0: the model writes where gradients are kept */
    /* grads_pass, several shards: where in zero.grads.passing each unit's
     * reduced shards wait for their copies down */
    size_t *passing_offsets; /* by unit, elements */
    size_t passing_count;

    struct zero_wire wire; /* of a step and rank (all the same) */
};

enum zd_status zero_plan_build(
        const struct zero_request *request, struct zero_plan *plan_out);
void zero_plan_fini(struct zero_plan *plan);
/* Changes the number of micro-batches per step, between two steps and within
 * the plan's memory; by layer stays as it is. ZD_ERR_UNFIT if other memory
 * would be needed; then nothing is changed. */
enum zd_status zero_plan_reaccumulate(struct zero_plan *plan, int accumulation);
/* Spans "zero.*" (params, grads, optimizer, buffers), the same for every rank.
 */
enum zd_status zero_plan_spans(
        const struct zero_plan *plan, struct arena_plan *arena);

/* Elements of a unit's gradient that are written in fp32 and rounded by a
 * separate pass, for each micro-batch. */
size_t zero_rounded_count(const struct zero_plan *plan, int unit);

/* Share of the trained elements that are updated as gradients arrive. */
double zero_undo_share(const struct zero_plan *plan);
/* What the device's share of an update on the host moves, on rank 0. */
struct offload_visits zero_visits(const struct zero_plan *plan);
/* Bytes of old values for the last segment alone: the least that undo needs. */
uint64_t zero_undo_least(const struct zero_plan *plan);
/* Fills in what a group's comm needs (all but transport, node_size and
 * is_ordered); false: zero makes no comm for it, since it has one rank or all
 * ranks. */
bool zero_comm_needs(
        const struct zero_plan *plan, enum zero_group group,
        struct comm_needs *needs);

/* Which projections (param_join) are contiguous in every layer, in parameters
 * and gradients: their sizes are multiples of ZERO_ALIGN, and all or none of
 * them train. For quantized ones: which are contiguous once decoded and
 * together no larger than the largest weight. The same at every stage, world
 * and tier. */
unsigned zero_joined(const struct zero_plan *plan);

/* An extent of elements of one tensor within one segment. */
struct zero_extent {
    int id;
    size_t begin;  /* in the tensor */
    size_t offset; /* in the segment */
    size_t count;
};
/* Iterates over the tensors in [begin, end) of a segment, without padding:
 * start with extent->id = -1; false at the end. */
bool zero_extent_next(
        const struct zero_plan *plan, int segment, size_t begin, size_t end,
        struct zero_extent *extent);

/* Formats of a tensor's lanes; all NONE for one that does not train. */
struct optim_layout zero_layout_of(const struct zero_plan *plan, int id);

/* Scalars of a step, which plan and run must count alike. Each is one
 * all-reduce: the counts that train settles before the forward pass, and the
 * exchange of zero_grad_norm (two exact sums: digits and non-finite terms). */
enum {
    ZERO_STEP_COUNTS = 5,
    ZERO_NORM_WORDS = 2 * (EXACT_SUM_DIGITS + 1),
};
/* Bytes of these scalars that a rank sends in a step. */
uint64_t zero_scalar_bytes(int world);
