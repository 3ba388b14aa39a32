/* explain.h - what a rank holds beside what papers and articles count: by
 * their formula, with its figure and source. */
#ifndef ZD_TRAIN_PLAN_EXPLAIN_H
#define ZD_TRAIN_PLAN_EXPLAIN_H

#include "train/plan/plan.h"

struct explained {
    const char *kind; /* static: "parameters", .. */
    char formula[120];
    double bytes;       /* of the plan, by rank; NAN: it has no such thing */
    double paper_bytes; /* by the formula; NAN: no paper counts it */
    const char *source; /* static */
};

enum { EXPLAINED_MAX = 12 };
/* The model's states as ZeRO counts them, activations of a transformer as
 * Korthikanti does for each mode of checkpointing (that of the plan has its
 * bytes), and what nobody counts. */
int plan_explain(
        const struct job_plan *plan, struct explained out[EXPLAINED_MAX]);
/* [{"kind", "formula", "bytes", "paper_bytes", "source"}]. New reference. */
json_t *plan_explain_json(const struct job_plan *plan);
void plan_explain_print(const struct job_plan *plan, FILE *stream);

/* --- formulas ------------------------------------------------------------- */

/* Bytes of a rank's model states, Rajbhandari et al. 2020, arXiv:1910.02054,
 * figure 1: `width` for a weight and for a gradient, `states` for what the
 * optimizer keeps of it; cut over `world` as the stage says. */
struct explain_states {
    double parameters, gradients, optimizer;
};
struct explain_states explain_states(
        double elements, double width, double states, int world, int stage);
/* Activations of one layer, Korthikanti et al. 2022, arXiv:2205.05198, one
 * rank: equation 1, 16-bit types, attention's scores kept (`s b h (34 + 5 a s /
 * h)`), or computed again (`34 s b h`); and of a layer that is computed again
 * whole (`2 s b h`). */
enum explain_activations { EXPLAIN_ALL, EXPLAIN_SELECTIVE, EXPLAIN_FULL };
double explain_layer(
        enum explain_activations what, double s, double b, double h, double a);

#endif
