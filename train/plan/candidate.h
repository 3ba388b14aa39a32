/* candidate.h - jobs like a job, of which something else is chosen: the one
 * generator behind what a refusal suggests, `zerod plan --fit` and `--max`.
 *
 * What may be chosen are dimensions, each with a few options; option 0 is what
 * the job has. The order of the dimensions is that in which a search runs
 * through them, the first fastest. */
#ifndef ZD_TRAIN_PLAN_CANDIDATE_H
#define ZD_TRAIN_PLAN_CANDIDATE_H

#include "base/text_buffer.h"
#include "train/plan/fit.h"

enum plan_dimension {
    CHOOSE_MODE,    /* gradient checkpointing */
    CHOOSE_BATCH,   /* other micro-batches of the same step */
    CHOOSE_STAGE,   /* ZeRO */
    CHOOSE_BUCKETS, /* those that the job gives: auto */
    CHOOSE_STATES,  /* what optimizer states are kept in */
    CHOOSE_MASTER,  /* master weights */
    CHOOSE_DTYPE,
    CHOOSE_ACTIVATIONS, /* where they wait */
    CHOOSE_PLACE,       /* where masters and states are */
    CHOOSE_PARAMS,      /* where parameters are */
    CHOOSE_ADAPTERS,    /* what is trained: adapters; the slowest, as another
                           model is planned */
    CHOICES
};
enum { STAGE_0 = 1, STAGE_3 = 4 };
enum { MODE_NONE = 1, MODE_SELECTIVE, MODE_SQRT, MODE_FULL };
enum { BATCH_OTHER = 1 };
enum { STATES_8BIT = 1, STATES_BF16, STATES_MINI };
enum { PLACE_DEVICE = 1, PLACE_PAGED, PLACE_CPU, PLACE_NVME };
enum { PARAMS_DEVICE = 1, PARAMS_CPU, PARAMS_NVME };
enum { ADAPTERS_LORA = 1, ADAPTERS_QLORA };
enum { ACTIVATIONS_DEVICE = 1, ACTIVATIONS_CPU };

struct plan_candidate {
    unsigned char option[CHOICES];
};

/* Which options a search may take: a bit each, 1 << option. Option 0 always. */
struct plan_space {
    unsigned options[CHOICES];
};

/* What a refusal offers: the cheapest way down from what the job has. */
struct plan_space plan_space_refusal(const struct train_job *job);
/* What changes nothing that is learned, and with `allow` what changes little.
 * With NVMe only where the job names a folder for it. */
enum {
    PLAN_ALLOW_OPTIM = 1, /* optim.name of the same kind, state_dtype, master */
    PLAN_ALLOW_DTYPE = 2, /* train.dtype = "bf16" for "fp32" */
    PLAN_ALLOW_LORA = 4,  /* adapters on all linear modules instead of all
                             that the job trains */
    PLAN_ALLOW_QUANTIZE = 8, /* with adapters, the model in 4 bits: nf4 */
};
struct plan_space plan_space_fit(const struct train_job *job, unsigned allow);

/* The next of the space; begin with all 0, which is the job as it is. False
 * behind the last. */
bool candidate_next(
        const struct plan_space *space, struct plan_candidate *candidate);
/* Each option differs from what the job has, and they can be taken together. */
bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate);
/* What a user gives up, roughly: a change each, two where a disk comes in. */
int candidate_cost(const struct plan_candidate *candidate);
/* All that `part` changes, `whole` changes likewise. */
bool candidate_holds(
        const struct plan_candidate *whole, const struct plan_candidate *part);
/* The job with what is chosen; of the batch and the mode only what `choice`
 * says holds. */
struct train_job candidate_job(
        const struct train_job *job, const struct plan_candidate *candidate);
/* Of a candidate that chooses one. */
struct checkpointing candidate_mode(const struct plan_candidate *candidate);

/* A key that a candidate sets, and why. */
struct plan_setting {
    const char *key, *why; /* static */
    char value[PLAN_NAME_MAX];
    bool is_text; /* quoted in a file */
};
enum { PLAN_SETTINGS_MAX = 16 };
int candidate_settings(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice,
        struct plan_setting out[PLAN_SETTINGS_MAX]);
/* "--set key=value --set ..". No value needs quotes, in a shell or behind
 * --set.
 */
void settings_print(
        const struct plan_setting *settings, int count,
        struct text_buffer *text);
/* Why each of them is so: "states take less; .." */
void settings_explain(
        const struct plan_setting *settings, int count,
        struct text_buffer *text);

#endif
