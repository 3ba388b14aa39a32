/* candidate.h - variants of a job in which some settings differ: the only
 * generator of candidates (search.h).
 *
 * Dimensions may differ, each with a few options; option 0 is the job's own.
 * The table in candidate.c defines who may use an option. Enumeration varies
 * the first dimension fastest. */
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
    CHOOSE_MESH,        /* replicas of shards; slow, needs another mesh */
    CHOOSE_CP,          /* ranks that share samples; also slow */
    CHOOSE_TP,          /* ranks that cut layers; also slow */
    CHOOSE_ADAPTERS,    /* train adapters; the slowest, needs another model */
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

/* Allowed options: a bit each, 1 << option. Option 0 always is. */
struct plan_space {
    unsigned options[CHOICES];
};

/* Only the job; with gradient checkpointing = "auto" each mode. */
struct plan_space plan_space_job(const struct train_job *job);
/* What a refusal offers: the cheapest changes that need less memory. */
struct plan_space plan_space_refusal(const struct train_job *job);
/* The same with adapters, and without the disk. */
struct plan_space plan_space_adapters(const struct train_job *job);
/* Everything that does not change the result, and with `allow` more. NVMe only
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

/* The next candidate; start with all 0, the job itself. False after the last.
 */
bool candidate_next(
        const struct plan_space *space, struct plan_candidate *candidate);
/* Makes the next one differ in dimension `from` or a later one. */
void candidate_skip(struct plan_candidate *candidate, enum plan_dimension from);
/* True if each option differs from the job's, and they are compatible. */
bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate);
/* A rough cost for the user: 1 per change, 2 for use of a disk. */
int candidate_cost(const struct plan_candidate *candidate);
/* True if `whole` has all changes of `part`. */
bool candidate_holds(
        const struct plan_candidate *whole, const struct plan_candidate *part);
/* The job with the candidate's options, except micro-batches. */
struct train_job candidate_job(
        const struct train_job *job, const struct plan_candidate *candidate);

/* A key that a candidate sets, and why. */
struct plan_setting {
    const char *key, *why; /* static */
    char value[PLAN_NAME_MAX];
    bool is_text; /* quoted in a file */
};
/* All settings that turn a job into the candidate. */
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
/* The reasons: "states need less; .." */
void settings_explain(
        const struct plan_settings *settings, struct text_buffer *text);
