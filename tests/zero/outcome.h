/* outcome.h - what a run of world.h leaves. */
#pragma once

#include "zero/zero.h"

enum { STEPS_MAX = 4 };

/* What a run leaves: the state of all tensors one after the other. Element e
 * of all lies at e in master; in `state` at bytes 4 e of its tensor's start and
 * as its format has it, scales and blocks from the tensor's start on. */
struct outcome {
    size_t total;
    float *master;
    char *state[OPTIM_LANES];
    float *scale[OPTIM_LANES], *block_v;
    double norms[STEPS_MAX], losses[STEPS_MAX];
    double seen, evaluated; /* sums of parameters, of rank 0 */
    int records;            /* ranks that know why they ended */
    bool wire_matches, ranks_agree;
    enum zd_status status;
    char what[1024];
};

/* Nothing yet, of `total` elements. */
void outcome_init(struct outcome *outcome, size_t total);
void outcome_fini(struct outcome *outcome);
/* Where tensor `id` begins in the arrays of an outcome. */
size_t tensor_start(const struct param_table *table, int id);

/* A rank's ranges of the state, into an outcome and out of one. */
enum zd_status outcome_save(
        const struct outcome *outcome, const struct param_table *table,
        struct zero *zero);
enum zd_status outcome_restore(
        const struct outcome *from, const struct param_table *table,
        struct zero *zero);

bool outcome_same(const struct outcome *a, const struct outcome *b);
/* The states, and all that was seen on the way: sums, norms, losses. */
bool outcome_same_run(const struct outcome *a, const struct outcome *b);
/* A run that went through, on ranks that agree, sending what was planned. */
bool outcome_sound(const struct outcome *outcome);
