/* options.h - the whole job as the trainer sees it: one options struct per
 * section of job.toml. daemon fills it; strings and arrays belong to the job.
 */
#pragma once

#include "base/device/device.h"
#include "base/log.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "kernels/attention/attention.h"
#include "model/adapters/lora.h"
#include "model/model.h"
#include "offload/options.h"
#include "optim/optim.h"
#include "zero/options.h"

struct job_options { /* [job] */
    const char *name, *output_dir, *run_name;
    int output_mode; /* of a new output_dir */
    uint64_t seed, data_seed;
};

enum on_signal {
    ON_SIGNAL_CHECKPOINT_AND_EXIT,
    ON_SIGNAL_EXIT,
    ON_SIGNAL_CHECKPOINT
};
enum resume_mode { RESUME_AUTO, RESUME_NEVER, RESUME_MUST, RESUME_PATH };
struct run_options { /* [run] */
    enum resume_mode resume;
    const char *resume_path;
    int64_t stop_after; /* 0 = off */
    enum on_signal on_sigterm, on_sigusr1, on_sigusr2;
    double deadline;        /* seconds from the start; 0: SLURM_JOB_END_TIME, or
                               none */
    double deadline_margin; /* seconds; 0: twice the last save and two steps */
    bool force;             /* run a job that does not fit (--force) */
};

enum model_init { MODEL_PRETRAINED, MODEL_RANDOM };
struct model_options {     /* [model] */
    const char *path;      /* NULL with [model.config] */
    const char *tokenizer; /* "bytes"; NULL: path's; a model from scratch:
                              bytes */
    enum model_init init;
    int dtype; /* for export, an enum dtype; -1: as stored */
    enum attention_choice attn;
    json_t *config;       /* [model.config], or NULL */
    json_t *rope_scaling; /* replaces the model's; NULL: no change */
};

struct fp16_options {  /* [train.fp16], only with dtype = "fp16" */
    double loss_scale; /* 0: dynamic */
    int initial_scale_power;
    int loss_scale_window;
    int hysteresis;
    double min_loss_scale;
};

/* The order of a step's micro-batches: the whole model for each, or each unit
 * for all. */
enum accumulation_order { ORDER_AUTO, ORDER_DEPTH_FIRST, ORDER_BREADTH_FIRST };

struct train_options { /* [train] */
    int64_t max_steps; /* -1: from the epochs */
    double num_train_epochs;
    int64_t global_batch_size; /* 0: not given; also the next two */
    int per_device_train_batch_size;
    int gradient_accumulation_steps;
    enum accumulation_order accumulation_order;
    enum dtype dtype;
    bool tf32;         /* for fp32 matmuls on a GPU */
    enum fp8_mode fp8; /* of the layers' matmuls */
    struct checkpointing gradient_checkpointing;
    int tiled_mlp; /* pieces of the tokens; 0: auto */
    bool average_tokens_across_devices;
    bool auto_find_batch_size;
    const char *const *freeze;
    int freeze_count;
    struct fp16_options fp16;
};

/* What context parallelism exchanges: keys and values (allgather), or heads
 * (a2a). */
enum cp_comm_type { CP_AUTO, CP_ALLGATHER, CP_A2A };

enum eval_strategy { EVAL_NO, EVAL_STEPS, EVAL_EPOCH };
struct eval_options { /* [eval] */
    enum eval_strategy eval_strategy;
    double eval_steps; /* whole steps, or a fraction < 1 of max_steps */
    int per_device_eval_batch_size;
    int64_t max_batches;
    bool eval_on_start;
};

struct sample_options { /* [sample] */
    int64_t steps;      /* 0 = off */
    const char *const *prompts;
    int prompt_count;
    bool chat; /* prompts are users' messages */
    int max_new_tokens;
    double temperature, top_p;
};

enum save_strategy { SAVE_NO, SAVE_STEPS, SAVE_EPOCH, SAVE_TIME, SAVE_BEST };
enum best_metric { BEST_EVAL_LOSS };
enum export_kind { EXPORT_NONE, EXPORT_HF, EXPORT_PEFT };
struct checkpoint_options { /* [checkpoint] */
    enum save_strategy save_strategy;
    double save_steps; /* whole steps, or a fraction < 1 of max_steps */
    double save_every_seconds;
    int save_total_limit; /* 0 = keep all */
    bool save_only_model, verify, async_save;
    uint64_t snapshot_bytes; /* maximum of a rank's copy; 0: what is free */
    enum best_metric metric_for_best_model;
    bool greater_is_better;
    enum export_kind export;
    uint64_t max_shard_bytes;
};

enum guard_nan { GUARD_SKIP, GUARD_STOP };
struct guard_options { /* [guard] */
    enum guard_nan nan;
};

enum progress_mode {
    PROGRESS_AUTO,
    PROGRESS_BAR,
    PROGRESS_LINES,
    PROGRESS_NONE
};
enum rank_logs { RANK_LOGS_FILES, RANK_LOGS_STDOUT, RANK_LOGS_NONE };
struct log_options { /* [log] */
    enum zd_log_level level;
    double logging_steps; /* whole steps, or a fraction < 1 of max_steps */
    bool logging_first_step;
    enum progress_mode progress;
    bool step_breakdown;
    enum rank_logs rank_logs;
    int json; /* 1: lines are JSON, else text */
};

struct report_options { /* [report] */
    bool tensorboard, trainer_state, html;
    const char *prometheus_textfile; /* folder, or NULL */
};

enum control_socket { CONTROL_AUTO, CONTROL_PATH, CONTROL_NONE };
struct control_options {        /* [control]; only daemon reads it, except the
                                   next two */
    enum control_socket socket; /* not NONE: evaluation and samples are planned
                                   even when their strategies are "no" */
    const char *socket_path;    /* with CONTROL_PATH */
    const char *metrics_listen; /* "127.0.0.1:9479", or NULL */
    bool readonly;
};

struct train_job {
    struct job_options job;
    struct run_options run;
    struct device_options device;
    struct model_options model;
    struct lora_options lora;
    struct data_options data;
    struct train_options train;
    struct optim_options optim;
    struct mesh_sizes parallel; /* [parallel] */
    enum cp_comm_type cp_comm_type;
    struct zero_options zero;
    struct offload_options offload;
    struct comm_options comm;
    struct eval_options eval;
    struct sample_options sample;
    struct checkpoint_options checkpoint;
    struct guard_options guard;
    struct log_options log;
    struct report_options report;
    struct control_options control;
    const char *optimizer; /* optim.name as given; NULL: not given */
    bool names_states;     /* optim.state_dtype is also given: */
    enum optim_state_type state_dtype; /* its value; resolved:
                                          optim.state_type */
    const char *digest; /* of the resolved job, compared between ranks */
    json_t *values;     /* {"optim.learning_rate": 1e-3}: the digest's values;
                           NULL: the job has no file */
};

/* All defaults of these options; folders define their own. */
struct train_job train_job_default(void);
/* "adamw", "lion", ..: the name without the states' format. */
const char *train_optimizer_name(enum optim_name name);
/* The folder of the model's initial weights; NULL: random. */
const char *train_stored_base(const struct train_job *job);
/* The job's tokenizer.json, or its folder, which need not exist; NULL: byte
 * tokens, or no tokenizer. */
const char *train_tokenizer(const struct train_job *job);
/* Does anything in the job depend on the number of samples? */
bool train_counts_samples(const struct train_job *job);

/* Resolves B, A and G for `samplers` ranks with their own samples
 * (mesh_samples), or groups of `sharers` ranks with the same samples (cp x tp).
 * Any two give the third; see docs/job.md. ZD_ERR_CONFIG names the nearest
 * batch that divides. */
enum zd_status train_resolve_batch(
        const struct train_options *options, int samplers, int sharers,
        int *per_device_out, int *accumulation_out, int64_t *global_out);
