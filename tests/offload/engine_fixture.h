/* engine_fixture.h - what engine_case.c compares: an engine, its device and the
 * same elements in plain memory, made for one setting. */
#ifndef ZD_TESTS_OFFLOAD_ENGINE_FIXTURE_H
#define ZD_TESTS_OFFLOAD_ENGINE_FIXTURE_H

#include "tests/offload/engine_case.h"
#include "tests/support/scratch.h"

enum { SEGMENTS = 4, EXTENTS = 5, TENSORS = 5 };
enum { LONGEST = 12800 }; /* elements of a segment */
extern const size_t segment_counts[SEGMENTS];

struct plain_extent {
    void *master, *param, *grad;
    float *sum; /* of micro-batches */
    void *state[OPTIM_LANES];
    float *scale[OPTIM_LANES];
    float *block_v;
    int64_t *block_sums;
};

struct engine_case {
    struct engine_setting setting;
    struct optim_options optim;
    struct offload_options options;
    struct tensor_blocks blocks[TENSORS];
    struct offload_extent extents[EXTENTS];
    struct plain_extent plain[EXTENTS];
    struct offload_request request;
    enum dtype grad_type, master_type;
    struct arena_plan plan;
    struct arena arena;
    struct stream *down, *up, *compute;
    struct timeline ready, done;
    struct offload *offload;
    /* the device */
    char *grads[SEGMENTS], *params[SEGMENTS];
    char *source;                  /* where gradients are computed from */
    double squares;                /* of the step */
    const float *block_v[EXTENTS]; /* the engine's until the update is made */
    struct scratch scratch;
};

/* What is wrong with making it, or NULL. end_case follows in any case. */
const char *begin_case(
        struct engine_case *c, const struct engine_setting *setting);
void end_case(struct engine_case *c);

/* By calls, as they live on the host or on NVMe. */
bool params_are_sent(const struct engine_case *c);

#endif
