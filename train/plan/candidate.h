/* candidate.h - jobs like a job in which some settings differ: the only
 * generator of candidates (search.h).
 *
 * What may differ are dimensions, each with a few options; option 0 is what the
 * job has. A row of the table in candidate.c says who may take an option. The
 * enumeration runs through the first dimension fastest. */
#pragma once

#include "base/text_buffer.h"
#include "train/plan/fit.h"

enum plan_dimension {
    CHOOSE_MODE,   /* gradient checkpointing */
    CHOOSE_PIECES, /* of the MLP */
    CHOOSE_ORDER,  /* of micro-batches */
    CHOOSE_BATCH,  /* other micro-batches of the same step */
    CHOOSE_STAGE,  /* ZeRO */
    CHOOSE_STATES, /* type of the optimizer states */
    CHOOSE_MASTER, /* master weights */
    CHOOSE_DTYPE,
    CHOOSE_ACTIVATIONS, /* their place */
    CHOOSE_PLACE,       /* of masters and states */
    CHOOSE_PARAMS,      /* place of parameters */
    CHOOSE_MESH,        /* replicas of shards; slow: another mesh */
    CHOOSE_CP,          /* ranks that share samples; likewise */
    CHOOSE_TP,          /* ranks that cut layers; likewise */
    CHOOSE_ADAPTERS,    /* train adapters; the slowest: another model */
    CHOICES
};
enum { STAGE_0 = 1, STAGE_3 = 4 };
enum { MODE_NONE = 1, MODE_SELECTIVE, MODE_SQRT, MODE_FULL };
enum { ORDER_DEPTH = 1, ORDER_BREADTH };
enum { BATCH_OTHER = 1 };
enum { STATES_8BIT = 1, STATES_BF16, STATES_MINI };
enum { PLACE_DEVICE = 1, PLACE_PAGED, PLACE_CPU, PLACE_NVME };
enum { PARAMS_DEVICE = 1, PARAMS_CPU, PARAMS_NVME };
enum { ADAPTERS_LORA = 1, ADAPTERS_QLORA };
enum { ACTIVATIONS_DEVICE = 1, ACTIVATIONS_CPU };

struct plan_candidate {
    unsigned char option[CHOICES];
};

/* Which options may be taken: a bit each, 1 << option. Option 0 always. */
struct plan_space {
    unsigned options[CHOICES];
};

/* The job alone; where it leaves gradient checkpointing to zerod, each mode. */
struct plan_space plan_space_job(const struct train_job *job);
/* What a refusal offers: the cheapest way down from what the job has. */
struct plan_space plan_space_refusal(const struct train_job *job);
/* The same with adapters, and without the disk. */
struct plan_space plan_space_adapters(const struct train_job *job);
/* Everything that leaves the result as it is, and with `allow` more. NVMe only
 * if the job names a folder for it. */
enum {
    PLAN_ALLOW_OPTIM = 1, /* optim.name of the same kind, state_dtype, master */
    PLAN_ALLOW_DTYPE = 2, /* train.dtype = "bf16" for "fp32" */
    PLAN_ALLOW_LORA = 4,  /* adapters on all linear modules */
    PLAN_ALLOW_QUANTIZE = 8, /* with adapters, the model in nf4 */
    PLAN_ALLOW_MESH = 16,    /* [parallel]: powers of two, up to 64 replicas
                                and 8 ranks of cp and of tp */
};
struct plan_space plan_space_fit(const struct train_job *job, unsigned allow);

/* The next of the space; begin with all 0, which is the job as it is. False
 * after the last. */
bool candidate_next(
        const struct plan_space *space, struct plan_candidate *candidate);
/* The next will differ in an option of dimension `from` or after. */
void candidate_skip(struct plan_candidate *candidate, enum plan_dimension from);
/* Each option differs from what the job has, and they go together. */
bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate);
/* What a user gives up, roughly: 1 a change, 2 where a disk comes in. */
int candidate_cost(const struct plan_candidate *candidate);
/* `whole` makes all the changes that `part` makes. */
bool candidate_holds(
        const struct plan_candidate *whole, const struct plan_candidate *part);
/* The job with the candidate's options, but for its micro-batches. */
struct train_job candidate_job(
        const struct train_job *job, const struct plan_candidate *candidate);

/* A key that a candidate sets, and why. */
struct plan_setting {
    const char *key, *why; /* static */
    char value[PLAN_NAME_MAX];
    bool is_text; /* quoted in a file */
};
/* All that a job needs to become the candidate. */
enum { PLAN_SETTINGS_MAX = 20 };
struct plan_settings {
    int count;
    struct plan_setting list[PLAN_SETTINGS_MAX];
};
struct plan_settings candidate_settings(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice);
/* "--set key=value --set .."; no value needs quotes in a shell. */
void settings_print(
        const struct plan_settings *settings, struct text_buffer *text);
/* The reasons: "states take less; .." */
void settings_explain(
        const struct plan_settings *settings, struct text_buffer *text);
