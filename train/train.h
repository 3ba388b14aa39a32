/* train.h - the trainer: from a job and a comm to checkpoints and a model.
 *
 *   job_plan     what a rank will hold and send; pure, any world, no MPI
 *   train_run    plan, take, load or resume, loop, save, export
 *
 * What a user sees goes through train_observer, which daemon fills. */
#ifndef ZD_TRAIN_TRAIN_H
#define ZD_TRAIN_TRAIN_H

#include "offload/offload.h"
#include "train/job/control.h"
#include "train/job/loss_scale.h"
#include "train/job/options.h"
#include "zero/plan.h"

/* What a rank may take. The CPU device lies in the host's memory: `total` holds
 * for both together, unless the job limits each (it may speak of another
 * machine then; the run is held to this one's memory all the same). A GPU has
 * memory of its own, and `device` counts what its driver takes of it too; where
 * neither the job nor the thread's device sets that limit there is none. */
struct plan_limits {
    uint64_t device, host, total; /* bytes; UINT64_MAX: no limit */
    bool on_gpu;
    bool limits_device, limits_host; /* given by the job; else the machine's */
    int local_size; /* ranks that share this machine's memory */
};

/* What a process has of a GPU beside what it asks for, in bytes. The driver's
 * part is measured where the GPU is at hand and tells; the rest is allowed for.
 */
struct plan_context {
    uint64_t driver;      /* the context, local memory of all threads in it */
    uint64_t kernels;     /* our code, loaded as it is called; likewise .. */
    uint64_t products;    /* .. cuBLASLt's */
    uint64_t attention;   /* .. cuDNN's */
    uint64_t collectives; /* NCCL's code and the buffers of its channels */
    bool is_measured;     /* `driver` */
};

/* Everything that follows from (job, world) without touching data or weights.
 */
struct job_plan {
    struct model_config config;
    struct param_table table;
    struct zero_plan zero;
    struct arena_plan arena;
    struct model_shape shape;
    int world;
    enum comm_transport transport; /* of collectives, and .. */
    int node_size;                 /* .. ranks of a node in two levels */
    enum device_backend backend;   /* resolved */
    const char *no_gpu; /* why there is none here, where one was asked for or
                           would have been taken; NULL; static */
    bool lacks_nccl; /* STAGED is what comm.backend = "auto" means without it */
    struct plan_context context;  /* of the device, beside the arena; */
    uint64_t context_bytes;       /* .. its sum; 0: the CPU */
    int per_device, accumulation; /* B, A */
    int64_t global_batch;         /* G */
    enum dtype export_dtype;
    struct plan_limits limits; /* that it was fitted to */
    bool chose_checkpointing;  /* gradient_checkpointing = "auto" */
    json_t *measured; /* of each rank's GPU once the run has taken its memory:
                         [{"rank", and what train_gpu_json says}]; NULL: the
                         CPU, or nothing was taken; owned */
    /* of the arena, room for evaluations and samples that are only asked for
     * while the run goes on (control.socket) */
    uint64_t request_device_bytes, request_host_bytes;
};

/* Reads config.json when model.path is given. ZD_ERR_UNFIT when a limit of
 * [device] is exceeded: need, limit and the largest spans, and what would fit.
 * `local_size`: how many ranks share this machine's memory when no limit is
 * given; 0: it is not known, and one has all of it. `comm` says how collectives
 * travel; NULL: as they would between ranks of machines like this one,
 * local_size on each. Sets the thread count of the kernels, whose scratch is
 * part of the plan, for `world` ranks on this machine (or local_size when that
 * is not 1). Resolves gradient_checkpointing = "auto" and auto_find_batch_size.
 */
enum zd_status job_plan_build(
        const struct train_job *job, int world, int local_size,
        const struct comm *comm, struct job_plan *plan_out);
void job_plan_fini(struct job_plan *plan);
/* The object of plan.json. `taken`: the arena of a run, or NULL. New reference.
 */
json_t *job_plan_json(const struct job_plan *plan, const struct arena *taken);
void job_plan_print(const struct job_plan *plan, FILE *stream);
/* Bytes that each of `local_size` ranks can have of this machine's memory, and
 * those that a rank of the plan takes, on the CPU device and beside it. */
uint64_t job_machine_memory(int local_size);
uint64_t job_plan_memory(const struct job_plan *plan);

/* Paged states (m and v) of a rank; both 0 when all of them are on the device.
 */
struct job_paged {
    size_t device, host; /* bytes */
};
struct job_paged job_plan_paged(const struct job_plan *plan);

/* What offload moved, and how long the trainer waited for it. */
struct train_offload_report {
    bool active;
    struct offload_report engine; /* optimizer, parameters */
    struct model_offload_report activations;
    bool has_disk;        /* the optimizer is on NVMe: rows tell of it */
    int64_t undone_steps; /* whose updates were taken back */
};
/* total += of */
void train_offload_add(
        struct train_offload_report *total,
        const struct train_offload_report *of);
double train_offload_waited(const struct train_offload_report *report);

struct train_step_report {
    int64_t step; /* from 1 */
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
            update_seconds, gather_seconds; /* log.step_breakdown */
    struct train_offload_report offload;
    double settings[SETTINGS]; /* that held; NaN: does not apply */
    int64_t global_batch;
};

struct train_banner { /* what was understood, known before step 1 */
    const struct train_job *job;
    const struct job_plan *plan;
    const struct arena *arena;
    const char *kernels; /* kernels->name */
    const char *tokenizer;
    int threads, world, local_size;
    int accumulation_max; /* micro-batches of a step that memory keeps */
    int64_t max_steps, samples, train_tokens, eval_samples;
    int eos;
    struct offload_facts offload; /* all 0: no optimizer on the host */
    double loss_scale;            /* of the first step; 0: not fp16 */
    double deadline;              /* seconds since 1970; 0: none */
    int64_t resumed_step;         /* 0: a fresh start */
    int64_t samples_taken, tokens_seen;
    double eval_loss, best_eval_loss; /* NaN: none */
    const char *resumed_from;
    double settings[SETTINGS]; /* of the first step, resumed ones too; NaN: does
                                  not apply */
    bool is_kept[SETTINGS];    /* `set` before the run was resumed, and kept */
    double kept[SETTINGS];     /* as it was asked for */
    const char *socket_path;   /* where the run answers, filled by daemon; NULL:
                                  nowhere */
};

struct train_end {
    int64_t step, max_steps;
    double last_loss, best_eval_loss, seconds, tokens_per_second;
    double model_flops_per_second;
    int64_t skipped_steps;
    const char *checkpoint; /* last committed, or NULL */
    const char *export_dir; /* or NULL */
    bool stopped_early;
    bool on_request; /* a stop was asked for: the exit code is 0 */
    struct train_offload_report offload; /* of all steps of this process */
    int64_t offload_steps;
};

/* Rank 0's eyes, and its ears; every function may be NULL. Calls come from the
 * trainer's thread, between steps. */
struct train_observer {
    void *ctx;
    void (*banner)(void *ctx, const struct train_banner *banner);
    void (*step)(void *ctx, const struct train_step_report *report);
    void (*eval)(void *ctx, int64_t step, double eval_loss);
    void (*sample)(/* UTF-8 */
                   void *ctx, int64_t step, const char *prompt,
                   const char *text);
    void (*saved)(void *ctx, int64_t step, const char *path);
    void (*end)(void *ctx, const struct train_end *end);
    void (*state)(void *ctx, enum train_run_state state, int64_t step);
    void (*ranks)(void *ctx, const struct train_rank_report *ranks, int count);
    /* any thread of rank 0: warnings are events too. It must not log. */
    void (*event)(void *ctx, const struct train_event *event);
    const struct train_control *control; /* NULL: nobody asks anything */
    /* Every rank's: the run has failed with the thread's record, and now gives
     * back what it holds, which may hang: peers may wait for this rank. */
    void (*failed)(struct comm *comm, enum zd_status status);
};

/* From here on USR1, USR2, TERM and INT are noted, and acted on between steps
 * of train_run as the job says. Call it before anything that takes time;
 * without it they end the process until train_run has begun. */
void train_catch_signals(void);

/* Runs the job on this rank. The status that it returns is the same on all
 * ranks (comm_agree) when the failure is one that can be told; the record to
 * print is with one rank. */
enum zd_status train_run(
        const struct train_job *job, struct comm *comm,
        const struct train_observer *observer);

#endif
