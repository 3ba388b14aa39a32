/* control.h - commands to a run, which act on all ranks at one step boundary,
 * and what a run reports in addition to train_observer's steps.
 *
 *   rank 0        train_control.next -> a command          (filled by daemon)
 *   all ranks     the exchange that begins a step says that there is one; it is
 *                 broadcast, and acted on before the step computes
 *   rank 0        train_control.done, and an event
 *
 * Commands have no other effect: after pause, checkpoint, eval, sample and
 * profile the run continues with the same bits. Checkpoints store what `set`
 * has changed (train_live), so a resumed run keeps it. */
#pragma once

#include "base/file/json.h"
#include "base/memory/arena.h"
#include "base/status.h"
#include "zero/plan.h"

enum train_command_kind {
    COMMAND_CHECKPOINT, /* also with save_strategy = "no" */
    COMMAND_EVAL,       /* also with eval_strategy = "no" */
    COMMAND_SAMPLE,     /* a prompt, or the job's own when it is "" */
    COMMAND_PAUSE,      /* hold here */
    COMMAND_RESUME,
    COMMAND_STOP, /* end with 0, with a checkpoint unless told otherwise */
    COMMAND_SET,
    COMMAND_PROFILE, /* trace the next steps */
    COMMAND_KINDS
};

/* What `set` can change; train_settings has their names and ranges. */
enum train_setting_id {
    SET_LEARNING_RATE, /* the peak during the warm-up, afterwards the next
                          step's rate; the rest of the schedule is scaled */
    SET_MAX_GRAD_NORM,
    SET_ACCUMULATION,
    SET_LOGGING_STEPS,
    SET_SAVE_STEPS, /* with save_strategy = "steps" */
    SET_EVAL_STEPS, /* with eval_strategy = "steps" */
    SETTINGS
};

struct train_setting {
    const char *name; /* "learning_rate" */
    const char *key;  /* "optim.learning_rate" of job.toml */
    const char *help;
    double min, max;
    bool is_integer, is_above_min;
};
extern const struct train_setting train_settings[SETTINGS];

enum { TRAIN_PROMPT_MAX = 4096, TRAIN_PROFILE_MAX = 100 };

struct train_command { /* plain bytes: it is broadcast */
    int64_t id;        /* chosen by the client; passed back to `done` */
    enum train_command_kind kind;
    int64_t uid, pid;     /* of the client; -1: none (a deadline) */
    bool save;            /* stop */
    int steps;            /* profile */
    bool chat;            /* sample: the prompt is a user's message */
    int max_new_tokens;   /* sample; 0: the job's */
    bool given[SETTINGS]; /* set */
    double value[SETTINGS];
    char prompt[TRAIN_PROMPT_MAX]; /* sample; NUL-terminated UTF-8 */
};

/* "checkpoint", "eval", .. */
const char *train_command_name(enum train_command_kind kind);

/* Rank 0's source of commands. Only the trainer's thread calls these functions;
 * they must not block. */
struct train_control {
    void *ctx;
    /* The next command; false: none. `step`: steps made so far. */
    bool (*next)(void *ctx, int64_t step, struct train_command *out);
    /* The outcome of a command. `error` is NULL if it succeeded; then `result`
     * (borrowed, may be NULL) is an object: {"path"} of a checkpoint or a
     * profile, {"eval_loss"}, {"samples": [{"prompt", "text"}]}, the settings
     * of a set. For pause it is called when the run holds, for stop when its
     * checkpoint is there. */
    void (*done)(
            void *ctx, const struct train_command *command, int64_t step,
            const struct zd_error *error, const json_t *result);
};

enum train_run_state {
    RUN_STARTING,
    RUN_RUNNING,
    RUN_STALLED, /* ranks wait for one that may hang (watch.h), until that one
                    continues; reported by the watch, not the trainer */
    RUN_WAITING, /* a step waits for its data */
    RUN_EVALUATING,
    RUN_SAMPLING,
    RUN_CHECKPOINTING,
    RUN_PAUSED,
    RUN_STOPPING,
    RUN_DONE,    /* all steps made */
    RUN_STOPPED, /* after run.stop_after, on request, by a signal, a deadline */
    RUN_FAILED,
    RUN_STATES
};
const char *train_run_state_name(enum train_run_state state); /* "running" */
int train_run_state_find(const char *name); /* -1: names none */

/* Something that happened, with an id one higher than the last one's. Kinds:
 *   step eval checkpoint sample warning state command resumed
 * All but steps are lines of output_dir/events.jsonl: {"id", "time", "event",
 * "step", and the members of `data`}. Ids continue from the end of that file.
 */
struct train_event {
    int64_t id;
    double time;      /* seconds since 1970 */
    const char *kind; /* "step" */
    int64_t step;
    const char *text;      /* the whole object, one line, no newline */
    const json_t *members; /* the event's members; NULL: none. Borrowed */
};

enum train_phase {
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_REDUCE,
    PHASE_UPDATE,
    PHASE_GATHER,
    PHASE_DOWN, /* waits for offload: gradients going down */
    PHASE_HOST, /* .. the host's update */
    PHASE_UP,   /* .. parameters coming up */
    PHASE_DISK, /* .. NVMe */
    PHASE_CHECKPOINT,
    PHASE_EVAL,
    PHASES
};
const char *train_phase_name(enum train_phase phase); /* "data" */

/* Memory of a rank's GPU in bytes, as the driver reports it. `held`: used
 * memory minus that of other processes at the start, divided equally among the
 * ranks that share the GPU. */
struct train_gpu_report {
    char name[64];        /* "NVIDIA H200"; empty: the CPU */
    char uuid[48];        /* "GPU-..." */
    char pci[16];         /* "0000:3b:00.0" */
    uint64_t total, used; /* by all processes */
    uint64_t held, planned;
    bool is_shared; /* other processes use it, or have: `held` is an estimate,
                       because the driver reports only the sum */
};
/* The report as JSON; null: the CPU. New reference. */
json_t *train_gpu_json(const struct train_gpu_report *gpu);

/* The state of a rank when reports were last gathered: at a step boundary, at
 * most every two seconds, and before the first step. Plain bytes, since it is
 * gathered. */
struct train_rank_report {
    int rank, local_rank, pid, threads;
    struct mesh_place mesh;
    char host[64];
    char device[64]; /* "cpu", or a GPU's UUID */
    char cpus[64];   /* "0-15", cut with ".." */
    struct train_gpu_report gpu;
    int64_t step;
    double heartbeat; /* seconds since 1970 */
    uint64_t planned[ARENA_MEMORIES], taken[ARENA_MEMORIES]; /* bytes */
    uint64_t kinds[ARENA_MEMORIES][SPAN_KINDS];              /* planned */
    uint64_t limit[ARENA_MEMORIES];                          /* 0: unknown */
    uint64_t resident, resident_peak; /* of the process (VmRSS, VmHWM) */
    double phase_seconds[PHASES];     /* since this process began */
    double step_seconds;              /* mean of the last steps */
    double slowness;                  /* busy time over the median of all ranks
                                         (train/trainer/rank_report.h); 0: not known */
    uint64_t down_bytes, up_bytes, disk_read_bytes, disk_written_bytes;
    struct comm_counters wire; /* bytes sent, all groups together */
    struct zero_wire groups;
};

/* What `set` has changed so far; saved in checkpoints. All zero: nothing was
 * set. */
struct train_live {
    bool given[SETTINGS]; /* false: the job's value applies */
    double value[SETTINGS];
    double rate_base;     /* the scheduled rate that value[SET_LEARNING_RATE]
                             replaces */
    int64_t global_batch; /* from value[SET_ACCUMULATION] and the number of
                             ranks at that time */
};
