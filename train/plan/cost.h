/* cost.h - what the parts of a step cost on a machine, one by one. What
 * overlaps is predict.c's. Pure. */
#pragma once

#include "model/fp8.h"
#include "train/plan/machine.h"
#include "train/plan/plan.h"

/* How often an element is read and written forward, and as often again
 * backward; the loss makes its gradient too. */
enum { NORM_MOVES = 5, ACTIVATION_MOVES = 6, ADD_MOVES = 5, LOSS_MOVES = 3 };

struct costs {
    const struct job_plan *plan;
    struct fp8_use fp8;
    const struct plan_machine *machine;
    int type;                /* of what is computed: 0: 16 bits, 1: fp32 */
    double width;            /* bytes of an element of it */
    double wide, wide_width; /* share of the elements whose states stay in fp32
                                in a job of narrow ones, and bytes of those */
};
struct costs costs_of(
        const struct job_plan *plan, const struct plan_machine *machine);

enum { PASS_FORWARD, PASS_BACKWARD, PASSES };
struct unit_cost {
    double pass[PASSES];     /* seconds of a micro-batch; the head's forward
                                     has its loss and all of its backward */
    double exchange[PASSES]; /* .. between places of tensor and of context
                                parallelism */
    double recompute;        /* .. of what selective checkpointing recomputes */
    double pieces;   /* .. of an MLP in pieces, which backward recomputes */
    double output;   /* .. of a layer's last projection and sum, or of all of an
                        MLP in pieces, which the last layer of a segment leaves
                        out when it is recomputed */
    double round;    /* seconds: its gradient to the compute type */
    double gather;   /* bytes of all its parameters that are cut */
    double spread;   /* .. that are gathered after an update */
    double rejoin;   /* .. of the shard whose parts replicas have updated */
    double grads;    /* elements of its gradient */
    double update;   /* .. that this rank updates, and of those .. */
    double early;    /* .. before the norm is known */
    double residual; /* bytes of its input that go to the host */
};
struct unit_cost cost_unit(const struct costs *costs, int unit);
/* What it computes for so many micro-batches, and moves of its input. */
void cost_multiply(struct unit_cost *cost, double micros);

/* A collective of a group (not the world) over so many bytes, all its ranks'
 * together: within nodes, and in two levels between them. */
double cost_wire(
        const struct costs *costs, enum zero_group group, double bytes);
/* An all_to_all, in one level, of so many bytes that a rank has for all. */
double cost_exchange(
        const struct costs *costs, enum zero_group group, double bytes);
/* The norm of what this rank holds of the gradient, and its exchange. */
double cost_norm(const struct costs *costs);
/* Elements whose states a rank has; bytes of states for each of them, and of
 * its gradient on the host, where that is summed or comes rounded. */
double cost_held(const struct job_plan *plan);
double cost_state_width(const struct job_plan *plan);
double cost_slot_width(const struct job_plan *plan);
/* Updates of `count` elements, on the device and on the host; `is_early`: old
 * values are kept. */
double cost_update(const struct costs *costs, double count);
double cost_update_host(const struct costs *costs, double count, bool is_early);
/* Bytes that the host's memory moves, where nothing is computed. */
double cost_host_moves(const struct costs *costs, double bytes);
