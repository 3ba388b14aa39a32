/* run_state.h - what the control thread knows of the run: built from messages,
 * read by routes and sinks, all in the control thread; no lock.
 *
 * Memory is bounded however long the run: series are thinned (each stretch
 * keeps its smallest and largest value), old events, samples and warnings are
 * dropped. */
#pragma once

#include "daemon/state/messages.h"
#include "daemon/state/queue.h"

enum { SAMPLES_KEPT = 100, WARNINGS_KEPT = 20, STEP_BUCKETS = 16 };
enum { SKIP_OVERFLOW, SKIP_NONFINITE, SKIP_NO_TARGETS, SKIP_REASONS };

struct run_histogram { /* of seconds; Prometheus buckets */
    double bound[STEP_BUCKETS];
    uint64_t count[STEP_BUCKETS + 1]; /* not cumulative; last: +Inf */
    double sum;
};

struct run_state {
    const struct train_job *job; /* outlives it */
    const char *socket_path;     /* or NULL */
    json_t *config;              /* borrowed: of GET /v1/config */
    char output_dir[4096];       /* absolute */
    double started;              /* seconds since 1970 */
    double updated;              /* the last step */
    double ended;                /* 0: not yet */
    double state_since;          /* when `state` began */
    enum train_run_state state;
    struct message_stall stall;   /* of RUN_STALLED */
    char stopped_by[STOPPED_MAX]; /* "": nothing did */
    bool is_paused, has_banner;
    /* of the banner */
    json_t *plan; /* plan.json's object; NULL before */
    struct run_facts facts;
    /* of the steps */
    struct train_step_report step; /* the last; step 0: none yet */
    double mean_step_seconds;
    int64_t skipped[SKIP_REASONS];
    double phase_seconds[PHASES];
    struct run_histogram step_histogram, checkpoint_histogram;
    int64_t eval_step;
    int64_t last_checkpoint_step; /* -1: none */
    double last_checkpoint_time;
    double checkpoint_stall_seconds, checkpoint_write_seconds; /* of all */
    uint64_t checkpoint_bytes;
    int64_t checkpoint_failures;
    char last_checkpoint[4096];
    bool is_set[SETTINGS];           /* by a command */
    double asked[SETTINGS];          /* by the last `set` of each */
    int64_t set_step[SETTINGS];      /* -1: before the run was resumed */
    struct train_rank_report *ranks; /* (rank_count) */
    int rank_count;
    struct history *series; /* (SERIES_MAX) */
    struct past events;     /* steps too */
    json_t *samples;  /* {"step", "time", "prompt", "text"}, newest first */
    json_t *warnings; /* {"time", "step", "message"}, oldest first */
    uint64_t queue_dropped;
    int pending[COMMAND_KINDS]; /* commands that wait, counted by routes */
};

extern const struct metric_table run_metrics;
extern const struct metric_index skip_reasons;

/* `job` and `socket_path` must outlive the state. */
struct run_state *run_state_create(
        const struct train_job *job, const char *socket_path);
void run_state_destroy(struct run_state *state);
/* Take a message in, with what it owns, but for the result of MESSAGE_DONE.
 * Returns the event that it became, or NULL; borrowed until the next call. */
const struct kept_event *run_state_take(
        struct run_state *state, enum message_kind kind, const void *payload);
/* The end of the run. */
void run_state_end(struct run_state *state, enum train_run_state how);
/* Of the whole run so far; before its first step, NaN. */
double run_state_eta(const struct run_state *state);
/* The last finite value of a series; NaN: none. */
double run_state_last(const struct run_state *state, const char *series);

/* JSON that routes, sinks and status.json share. New references. */
json_t *run_state_status(const struct run_state *state);
json_t *run_state_ranks(const struct run_state *state);
json_t *run_state_memory(const struct run_state *state);
/* status.json: the status, with the lists `ranks` of run_state_ranks and
 * `memory`, which is `ranks` of run_state_memory. */
json_t *run_state_file(const struct run_state *state);
json_t *run_state_samples(const struct run_state *state, int max);
/* {"learning_rate", "max_grad_norm", ..} as they are now. */
json_t *run_state_settings(const struct run_state *state);
/* Everything that the page draws, for report.html: {"status", "ranks",
 * "memory", "history", "samples", "config", "log": [lines], "events": [those of
 * output_dir/events.jsonl that hold: past.h]}. */
json_t *run_state_report(const struct run_state *state);
