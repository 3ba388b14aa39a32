/* observer.h - what a run reports, and the callbacks that receive it. */
#pragma once

#include "offload/offload.h"
#include "train/job/control.h"
#include "train/job/loss_scale.h"
#include "train/job/options.h"

struct job_plan;
struct train_state;

/* Bytes that offload moved, and how long the trainer waited for it. */
struct train_offload_report {
    bool active;
    struct offload_report engine; /* optimizer, parameters */
    struct model_offload_report activations;
    bool has_disk;        /* the optimizer is on NVMe */
    bool has_activations; /* activations moved */
    int64_t undone_steps; /* whose updates were undone */
};
/* total += of */
void train_offload_add(
        struct train_offload_report *total,
        const struct train_offload_report *of);
double train_offload_waited(const struct train_offload_report *report);

/* Seconds of a step in which the device, or the main thread, waited for work
 * that nothing overlapped. */
struct train_exposed {
    double update;  /* on the host, and the disk */
    double gathers; /* .. and reductions: other ranks, of which some are late */
    double copies;  /* between host and device */
    double launches; /* of a GPU's kernels; NaN: not measured */
};

struct train_step_report { /* metric_table.c: where each is shown */
    int64_t step;          /* from 1 */
    int64_t max_steps;
    double loss, grad_norm, learning_rate;
    int64_t tokens;
    double step_seconds, tokens_per_second;
    const char *skipped; /* NULL, "nonfinite", "overflow", "no_targets" */
    bool diverged;       /* loss or norm not finite, and no smaller loss scale
                            can be tried */
    struct loss_scale loss_scale;        /* of this step; scale 0: not fp16 */
    enum loss_scale_change scale_change; /* by this step */
    double data_seconds, forward_seconds, backward_seconds, reduce_seconds,
            update_seconds, gather_seconds;
    struct train_exposed exposed;
    struct comm_counters wire; /* of this step, all groups together */
    struct zero_wire groups;
    struct train_offload_report offload;
    double settings[SETTINGS]; /* in effect; NaN: does not apply */
    int64_t global_batch;
    int64_t bad_rows; /* that data.on_bad_row left out so far */
};

/* total += of; evaluations and checkpoints are between steps. */
void train_phases_add(double total[PHASES], const struct train_step_report *of);
/* According to log.logging_steps and log.logging_first_step; the last step
 * always is. */
bool train_step_is_logged(
        const struct train_step_report *step, const struct log_options *log);

struct train_banner { /* known before step 1 */
    const struct train_job *job;
    const struct job_plan *plan;
    const struct train_state *state; /* of a resumed run as saved
                                        (train/checkpoint/checkpoint.h) */
    const struct arena *arena;
    const char *kernels; /* kernels->name */
    const char *tokenizer;
    const char *chat_template; /* NULL: no conversations */
    int threads, world, local_size;
    int accumulation_max; /* the most micro-batches per step that memory
                             allows */
    int64_t samples, train_tokens, eval_samples;
    const struct dataset *data; /* of training; may be NULL */
    int eos;
    struct offload_facts offload; /* all 0: no optimizer on the host */
    double deadline;              /* seconds since 1970; 0: none */
    const char *resumed_from;     /* NULL: a fresh start */
    double settings[SETTINGS]; /* of the first step, resumed ones too; NaN: does
                                  not apply */
    const char *socket_path;   /* the control socket, set by daemon; NULL:
                                  none */
};

struct watch_hang; /* comm/watch/watch.h */

struct train_end {
    int64_t step, max_steps;
    double last_loss, best_eval_loss, seconds, tokens_per_second;
    double model_flops_per_second;
    int64_t skipped_steps;
    const char *checkpoint; /* last committed, or NULL */
    const char *export_dir; /* or NULL */
    const char *stopped_by; /* before max_steps: "--stop-after", "request",
                               "signal", "deadline"; else NULL */
    struct train_offload_report offload; /* of all steps of this process */
    struct train_exposed exposed;        /* likewise */
    int64_t offload_steps;
};

/* Rank 0's callbacks; each may be NULL. They are called by the trainer's
 * thread, between steps. */
struct train_observer {
    void *ctx;
    void (*banner)(void *ctx, const struct train_banner *banner);
    void (*step)(void *ctx, const struct train_step_report *report);
    void (*end)(void *ctx, const struct train_end *end);
    void (*ranks)(void *ctx, const struct train_rank_report *ranks, int count);
    /* Evaluations, samples, checkpoints, states, warnings: docs/control.md.
     * Any thread of rank 0; it must not log. */
    void (*event)(void *ctx, const struct train_event *event);
    /* the watch's thread: ranks wait for one that may hang; NULL: no more */
    void (*stalled)(void *ctx, const struct watch_hang *hang);
    const struct train_control *control; /* NULL: no commands */
    /* On every rank: the run has failed with the thread's record. Called before
     * it releases what it holds, which may hang, since peers may wait for this
     * rank. */
    void (*failed)(struct comm *comm, enum zd_status status);
};
