/* world.h - runs the fake model over ZeRO on ranks that are threads of this
 * process, and brings back what is left. */
#pragma once

#include "fake.h"
#include "outcome.h"
#include "tests/support/tap.h"

struct scenario {
    struct fake_shape shape;
    int world, replicate; /* 0: 1 */
    int tp; /* 0: 1; places that make a part of each gradient: no tensor is cut
             */
    int accumulation, steps;
    bool by_layer; /* they take turns in each unit */
    struct zero_options options;
    enum dtype dtype;
    struct optim_options optim;
    double clip; /* largest norm; 0: 1 */
    struct offload_options offload;
    bool accumulate_on_host;
    bool reduce_fp32;            /* of one micro-batch too */
    size_t spill_bytes;          /* paged states */
    enum device_backend backend; /* 0: the CPU */
    enum stream_mode streams;    /* of the CPU */
    int workers;                 /* of the engine */
    struct checkpointing checkpointing;
    bool solo;  /* ranks but the first have no gradient: the sum is the same
                   in every world */
    bool still; /* no rank has one */
    bool shows_grads;    /* nothing is clipped */
    bool broken;         /* the last step is not finite */
    int broken_steps;    /* bit k: step k is not */
    int unclipped_steps; /* bit k: step k is not clipped, whatever its norm */
    int saves;           /* bit k: a thread reads the state after step k */
    size_t save_eighths; /* room for what updates come to before it */
    bool evaluates;      /* between the steps */
    bool unreadable;     /* the second rank cannot read its weights */
    int threads;         /* OpenMP threads of a rank; 0: as they are */
    int first_step;
    const struct outcome *resume; /* load this state instead of the first */
    bool goes_back; /* to that state again, straight after the last step */
    bool clears;    /* the states, straight after it */
};

/* Three small steps, clipped at 1, nothing on the host. */
struct scenario scenario_default(int stage, int world, enum dtype dtype);
/* What must not change a bit, in turn: what the model has, how stage 3 gathers,
 * how gradients are put together, and the rest of what is only about when and
 * where. */
void scenario_vary(struct scenario *s, int variant);

struct outcome world_run(const struct scenario *scenario);
