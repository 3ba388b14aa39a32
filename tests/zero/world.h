/* world.h - runs the fake model over ZeRO on ranks that are threads of this
 * process, and brings back what is left. */
#ifndef ZD_TESTS_ZERO_WORLD_H
#define ZD_TESTS_ZERO_WORLD_H

#include "fake.h"

enum { STEPS_MAX = 4 };

struct scenario {
    struct fake_shape shape;
    int world, accumulation, steps;
    struct zero_options options;
    enum dtype dtype, storage;
    struct optim_options optim;
    double clip; /* largest norm; 0: 1 */
    struct offload_options offload;
    bool accumulate_on_host;
    size_t spill_bytes;          /* paged states */
    int dawdle_us;               /* the streams are slow before each update */
    enum device_backend backend; /* 0: the CPU */
    enum stream_mode streams;    /* of the CPU */
    int workers;                 /* of the engine */
    struct checkpointing checkpointing;
    bool solo;  /* ranks but the first have no gradient: the sum is the same
                   in every world */
    bool still; /* no rank has one */
    bool shows_grads; /* nothing is clipped */
    bool broken;      /* the last step is not finite */
    bool evaluates;   /* between the steps */
    bool unreadable;  /* the second rank cannot read its weights */
    int threads;      /* OpenMP threads of a rank; 0: as they are */
    int first_step;
    const struct outcome *resume; /* load this state instead of the first */
};

/* What a run leaves: the state of all tensors one behind the other. Element e
 * of all lies at e in master; in `state` at bytes 4 e of its tensor's start and
 * as its format has it, scales and blocks from the tensor's start on. */
struct outcome {
    size_t total;
    float *master;
    char *state[OPTIM_LANES];
    float *scale[OPTIM_LANES], *block_v;
    double norms[STEPS_MAX], losses[STEPS_MAX];
    double seen, evaluated;        /* sums of parameters, of rank 0 */
    struct offload_report offload; /* of all steps, of rank 0 */
    size_t paged, device; /* planned bytes: spilled states, and the device */
    int records;          /* ranks that know why they ended */
    bool wire_matches, ranks_agree;
    enum zd_status status;
    char what[1024];
};

/* Three small steps of fp32 storage, clipped at 1, nothing on the host. */
struct scenario scenario_default(int stage, int world, enum dtype dtype);
/* What must not change a bit, in turn: what the model has, how stage 3 gathers,
 * how gradients are put together, and the rest of what is only about when and
 * where. */
void scenario_vary(struct scenario *s, int variant);

/* Where tensor `id` begins in the arrays of an outcome. */
size_t tensor_start(const struct param_table *table, int id);

struct outcome world_run(const struct scenario *scenario);
void outcome_fini(struct outcome *outcome);
bool outcome_same(const struct outcome *a, const struct outcome *b);
/* The states, and all that was seen on the way: sums, norms, losses. */
bool outcome_same_run(const struct outcome *a, const struct outcome *b);
/* A run that went through, on ranks that agree, sending what was planned. */
bool outcome_sound(const struct outcome *outcome);

/* TAP: one line per test; `why` when it failed. */
void report(bool ok, const char *name, const char *why);
int report_done(void); /* exit code */

#endif
