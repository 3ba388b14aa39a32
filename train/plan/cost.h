/* cost.h - the costs of the parts of a step on a machine; predict.c overlaps
 * them. Pure. */
#pragma once

#include "model/fp8.h"
#include "train/plan/machine.h"
#include "train/plan/plan.h"

/* How often an element is read or written in forward, and again in backward;
 * the loss includes its gradient. */
enum { NORM_MOVES = 5, ACTIVATION_MOVES = 6, ADD_MOVES = 5, LOSS_MOVES = 3 };

struct costs {
    const struct job_plan *plan;
    struct fp8_use fp8;
    const struct plan_machine *machine;
    int type;                /* compute type: 0: 16 bits, 1: fp32 */
    double width;            /* bytes of its element */
    double wide, wide_width; /* share of elements with fp32 states in a job with
                                narrow ones, and bytes of these */
};
struct costs costs_of(
        const struct job_plan *plan, const struct plan_machine *machine);

enum { PASS_FORWARD, PASS_BACKWARD, PASSES };
struct unit_cost {
    double pass[PASSES];     /* seconds per micro-batch; the head's forward
                                     includes its loss and backward */
    double exchange[PASSES]; /* .. of exchanges between places */
    double recompute;        /* .. of recomputation by selective
                                checkpointing */
    double pieces;   /* .. of an MLP in pieces, which backward recomputes */
    double output;   /* .. of a layer's last projection and sum, or a whole MLP
                        in pieces: the last layer of a segment does not
                        recompute it */
    double round;    /* seconds to round its gradient to the compute type */
    double gather;   /* bytes of its sharded parameters */
    double spread;   /* .. gathered after an update */
    double rejoin;   /* .. of the shard's parts that replicas update */
    double grads;    /* elements of its gradients */
    double update;   /* elements that this rank updates */
    double early;    /* .. of these before the norm is known */
    double residual; /* bytes of its input that are offloaded */
};
struct unit_cost cost_unit(const struct costs *costs, int unit);
/* Multiplies its computation, and its input's offload, by `micros`. */
void cost_multiply(struct unit_cost *cost, double micros);

/* Seconds of a group's collective (not the world's) over `bytes` of all its
 * ranks: within nodes, and in two levels between nodes. */
double cost_wire(
        const struct costs *costs, enum zero_group group, double bytes);
/* Seconds of an all_to_all in one level; `bytes`: a rank's for all. */
double cost_exchange(
        const struct costs *costs, enum zero_group group, double bytes);
/* Seconds for the norm of this rank's gradient, and its exchange. */
double cost_norm(const struct costs *costs);
/* Elements whose states a rank has; bytes of states per element; bytes per
 * element of its gradient on the host. */
double cost_held(const struct job_plan *plan);
double cost_state_width(const struct job_plan *plan);
double cost_slot_width(const struct job_plan *plan);
/* Seconds to update `count` elements, on the device and on the host;
 * `is_early`: with old values kept. */
double cost_update(const struct costs *costs, double count);
double cost_update_host(const struct costs *costs, double count, bool is_early);
/* Seconds for the host's memory to move `bytes`, without arithmetic. */
double cost_host_moves(const struct costs *costs, double bytes);
