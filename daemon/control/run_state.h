/* run_state.h - what the control thread knows of the run: built from the feed,
 * read by routes and sinks, all in the control thread; no lock.
 *
 * Memory is bounded however long the run: series are thinned (each stretch
 * keeps its smallest and largest value), events and samples are rings. */
#ifndef ZD_DAEMON_CONTROL_RUN_STATE_H
#define ZD_DAEMON_CONTROL_RUN_STATE_H

#include "train/train.h"

/* Series of docs/control.md, in its order. */
enum run_series {
    SERIES_LOSS,
    SERIES_GRAD_NORM,
    SERIES_LEARNING_RATE,
    SERIES_LOSS_SCALE,
    SERIES_EVAL_LOSS,
    SERIES_TOKENS_PER_SECOND,
    SERIES_STEP_SECONDS,
    SERIES_DATA_WAIT,
    SERIES_FORWARD,
    SERIES_BACKWARD,
    SERIES_REDUCE,
    SERIES_UPDATE,
    SERIES_GATHER,
    SERIES_OFFLOAD_WAIT,
    SERIES_RESIDENT,
    SERIES_COUNT
};
const char *run_series_name(enum run_series series); /* "train/loss" */

enum {
    HISTORY_POINTS_MAX = 16384,
    EVENTS_KEPT = 4096,
    SAMPLES_KEPT = 100,
    WARNINGS_KEPT = 20,
    STEP_BUCKETS = 16
};

struct history {   /* one series */
    int64_t *step; /* (capacity) */
    double *value;
    int count, capacity;
    int64_t stride; /* steps that a stretch covers now; 1: nothing thinned */
};

struct kept_event {
    int64_t id;
    char kind[16];
    char *text; /* owned: one line of JSON */
};

struct kept_sample {
    int64_t step;
    double time;
    char *prompt, *text; /* owned */
};

struct kept_warning {
    double time;
    int64_t step;
    char *message; /* owned */
};

struct run_histogram { /* of seconds; Prometheus buckets */
    double bound[STEP_BUCKETS];
    uint64_t count[STEP_BUCKETS + 1]; /* not cumulative; last: +Inf */
    double sum;
};

struct run_state {
    const struct train_job *job; /* outlives it */
    const char *socket_path;     /* or NULL */
    double started;              /* seconds since 1970 */
    double updated;              /* the last step */
    enum train_run_state state;
    bool is_paused, is_released, has_banner;
    /* of the banner */
    json_t *plan; /* plan.json's object; NULL before */
    int world, zero_stage, per_device, accumulation;
    int64_t global_batch, parameters, max_steps, samples_per_epoch, first_step;
    double flops_per_token;
    char host[64];
    /* of the steps */
    struct train_step_report step; /* the last; step 0: none yet */
    double mean_step_seconds;
    int64_t tokens, samples_taken, skipped_overflow, skipped_nonfinite,
            skipped_no_targets;
    double phase_seconds[PHASES];
    struct run_histogram step_histogram, checkpoint_histogram;
    double last_loss, last_grad_norm; /* finite ones; NaN: none yet */
    double eval_loss, best_eval_loss; /* NaN: none */
    int64_t last_checkpoint_step;     /* -1: none */
    double last_checkpoint_time, last_checkpoint_seconds;
    uint64_t checkpoint_bytes;
    int64_t checkpoint_failures;
    char last_checkpoint[4096];
    struct train_live live;          /* as `set` has made it */
    double deadline;                 /* 0: none */
    struct train_rank_report *ranks; /* (rank_count) */
    int rank_count;
    struct history series[SERIES_COUNT];
    struct kept_event *events; /* ring (EVENTS_KEPT); ids rise by one */
    int event_first, event_count;
    struct kept_sample *samples; /* ring (SAMPLES_KEPT) */
    int sample_first, sample_count;
    struct kept_warning warnings[WARNINGS_KEPT];
    int warning_first, warning_count;
    uint64_t feed_dropped;
};

/* JSON that routes, sinks and status.json share. New references. */
json_t *run_state_status(const struct run_state *state);
json_t *run_state_ranks(const struct run_state *state);
json_t *run_state_memory(const struct run_state *state);
json_t *run_state_samples(const struct run_state *state, int max);
/* `names`: bits of enum run_series. */
json_t *run_state_history(
        const struct run_state *state, unsigned names, int64_t since, int max);
/* Everything that the page draws, for report.html: {"status", "ranks",
 * "memory", "history", "samples", "config", "log": [lines], "commands"}. */
json_t *run_state_report(const struct run_state *state, json_t *config);

#endif
