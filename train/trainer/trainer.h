/* trainer.h - one rank's run in progress. Internal to train. */
#pragma once

#include "base/memory/arena.h"
#include "data/chat.h"
#include "train/checkpoint/checkpoint.h"
#include "train/job/deadline.h"
#include "train/objective/objective.h"
#include "train/report/events.h"
#include "train/report/metrics.h"
#include "train/text/text.h"
#include "train/trainer/crash_guard.h"
#include "train/trainer/output_dir.h"
#include "train/trainer/rank_device.h"
#include "train/trainer/rank_report.h"
#include "train/trainer/save.h"
#include "train/trainer/trace.h"
#include "train/trainer/trainer_state.h"

#include <limits.h>

/* Facts from the checkpoint that are known before the plan. */
struct run_ahead {
    char date[CHAT_DATE_BYTES]; /* for chat templates: the job's, else that of
                                   the run's first start, else today */
    /* The batch from `set`, for the plan, unless the job's keys were edited
     * since; 0: none. */
    int64_t accumulation, global_batch;
};

struct trainer {
    const struct train_job *job;
    struct comm *comm;    /* for the device's memory */
    struct comm *control; /* borrowed; the same on the CPU */
    const struct train_observer *observer;
    struct job_plan plan;
    const struct objective *objective;
    struct output_dir output_dir;
    struct crash_guard *crash_guard; /* NULL: not used */
    struct text text;
    struct run_ahead ahead;
    int64_t job_batch;     /* samples of a step by the job, without `set` */
    struct device *device; /* NULL: the CPU */
    int device_sharers;    /* ranks on the same GPU, this one too; 0: the CPU */
    const struct kernels *kernels;
    struct arena arena;
    struct dataset *train_data, *eval_data; /* eval_data may be NULL */
    struct loader *loader;
    struct loader_batch *batches;      /* (accumulation) for the current step */
    struct model_batch *model_batches; /* the same for the model */
    int batch_room;   /* micro-batches that "train.batches" holds */
    bool has_batches; /* loaded, and the step has not begun */
    struct model *model;
    struct zero *zero;
    /* for all copies of offload; NULL: no offload */
    struct stream *streams_down, *streams_up;
    char offload_file[64]; /* of this rank, in offload.nvme_path */
    json_t *model_files;   /* rank 0; owned */
    struct checkpoint_writer writer;
    uint64_t *base_digests;      /* (tensors) of the tensors that zero_load
                                    read; NULL: not requested */
    struct file_writer *metrics; /* rank 0 */
    struct events *events;       /* rank 0 */
    bool had_events;             /* rank 0: from an earlier start */
    struct train_state state;
    int64_t base_sample; /* where the loader began */
    char resumed_from[PATH_MAX];
    int64_t resumed_event; /* the last event before the checkpoint */
    char last_checkpoint[PATH_MAX];
    int64_t last_saved_step; /* -1: neither saved nor resumed */
    double save_seconds;     /* of the last save, or an estimate */
    double last_save_time;   /* clock of the last commit, or of the start */
    struct zero_snapshot *snapshot; /* NULL: saves are synchronous */
    struct saves saves;
    struct { /* time and bytes of a save during the current step, excluded from
                the step */
        struct zero_wire wire;
        double seconds, waited;
    } aside;
    bool told_masked; /* already warned about a step without targets */
    double last_loss;
    double started;
    int64_t tokens_here; /* trained on by this process */
    struct train_offload_report offload_total;
    struct train_exposed exposed_total;
    struct train_offload_report offload_late; /* of the last step's update,
                                                 finished between steps */
    /* commands (commands.h) */
    enum train_run_state run_state;
    struct train_command command; /* rank 0: accepted, not executed yet */
    bool has_command;
    bool is_paused, is_stopped; /* the same on all ranks */
    int between_depth;          /* between.c */
    struct rank_meter meter;
    struct stragglers stragglers;
    struct state_history history;  /* rank 0 */
    struct trace *trace;           /* NULL: nothing is traced */
    struct train_command profiled; /* rank 0: the command that requested it */
    struct deadline deadline;      /* checked on rank 0's clock */
    bool met_deadline;             /* the run ends because of the deadline */
};

static inline bool trainer_is_first(const struct trainer *trainer)
{
    return comm_rank(trainer->comm) == 0;
}

/* tell.c: reports to rank 0's observer, metrics.jsonl and events.jsonl; all
 * ranks call these. */
void trainer_tell_state(struct trainer *trainer, enum train_run_state state);
enum zd_status trainer_tell_step(
        struct trainer *trainer, const struct train_step_report *report);
enum zd_status trainer_tell_eval(struct trainer *trainer, double eval_loss);
/* `sample`: from decoder_text_json; borrowed. */
void trainer_tell_sample(struct trainer *trainer, json_t *sample);
/* Between hang_listen and hang_forget, on all ranks, reports hangs
 * (comm/watch/watch.h): a hang is an event, a possible one a state of the run.
 * Rank 0 reports; if its process is stopped, another rank appends to
 * events.jsonl. `events` must stay valid. */
void hang_listen(struct trainer *trainer);
void hang_forget(struct trainer *trainer);

/* Collective: moves the record of the lowest rank that has one to all. Status
 * ZD_OK: no rank has one. */
enum zd_status trainer_share_error(
        struct trainer *trainer, struct zd_error *out);

/* between.c */
/* Does nothing without evaluation data. *read_out: whether the data could be
 * read, the same on all ranks (NULL: returned as the status). */
enum zd_status trainer_evaluate(
        struct trainer *trainer, enum zd_status *read_out);
/* data.c: collective; with strategy "no" evaluation data is opened on request.
 */
enum zd_status trainer_open_data(struct trainer *trainer);
enum zd_status trainer_open_eval(struct trainer *trainer);
/* between.c */
struct sample_request {
    const char *const *prompts;
    int count, max_new_tokens;
    bool is_asked; /* by a command: max_new_tokens is not reduced to the room */
    bool chat;     /* prompts are users' messages */
    json_t *told;  /* NULL, or rank 0's array: {"prompt", "text"} are added */
};
/* The job's samples; count 0: none, or no room. */
struct sample_request trainer_sample_of_job(const struct trainer *trainer);
enum zd_status trainer_sample_request(
        struct trainer *trainer, const struct sample_request *request);
/* Can the request be answered? The same on all ranks. */
enum zd_status trainer_sample_check(
        struct trainer *trainer, const struct sample_request *request);
/* weights.c */
enum zd_status trainer_export(struct trainer *trainer);
/* Below output_dir: "hf" or "peft". */
struct fs_path export_dir(const struct train_job *job);
/* Collective: loads the model's initial weights. With `digests` also sets
 * trainer->base_digests, and in the writer the digest of frozen tensors. */
enum zd_status trainer_load_weights(struct trainer *trainer, bool digests);

/* batches.c: the samples that a rank reads for a step; changes of the number of
 * micro-batches */
/* The index in the run of row 0 of micro-batch `a` of the current step. */
int64_t batches_first_sample(const struct trainer *trainer, int a);
/* If several ranks share a sample, rows keep their length and a rank has its
 * pieces of them. */
struct loader_order batches_order(
        const struct trainer *trainer,
        int64_t (*sample_of)(void *ctx, int64_t batch, int b), void *ctx);
/* Converts a batch, except for its position in the run. */
struct model_batch batches_of_model(const struct loader_batch *loaded, int B);
/* Does this rank count the sample's tokens? Does it count its losses? */
bool trainer_counts_sample(const struct trainer *trainer);
bool trainer_counts_loss(const struct trainer *trainer);
/* Starts reading at the first unused sample. Sets base_sample. */
enum zd_status batches_start(struct trainer *trainer);
void batches_stop(struct trainer *trainer);

/* From the next step on uses `accumulation` micro-batches, and so another
 * global batch; no sample is skipped or repeated. ZD_ERR_UNFIT, without
 * changes, if the planned memory is too small. All ranks get the same result.
 * Call only while the loader is stopped. */
enum zd_status batches_accumulate(struct trainer *trainer, int accumulation);

/* between.c: evaluation, samples and checkpoints that are due between steps */
/* Call around all work outside steps: finishes the last step's update, whose
 * report counts with the next step. Calls nest: a paused run stays between the
 * two. */
enum zd_status between_begin(struct trainer *trainer);
enum zd_status between_end(struct trainer *trainer);

/* Does what is due after the last step. */
enum zd_status trainer_between(struct trainer *trainer);

/* live.c: the current settings, including `set`. Part of the state
 * (train_live), so checkpoints have them. */
/* The next step's rate. */
double live_learning_rate(const struct trainer *trainer);
/* The rate at the end of the warm-up; NaN after it. */
double live_peak_rate(const struct trainer *trainer);
/* Applies a `set`. A rate is the peak during the warm-up, afterwards the next
 * step's; the rest of the schedule is scaled with it. */
void live_set(struct trainer *trainer, const struct train_command *command);
/* A sentence on how the rate changes after the next step; false: it does not.
 */
bool live_rate_note(const struct trainer *trainer, char *text, size_t bytes);
double live_max_grad_norm(const struct trainer *trainer);
/* In steps; 0: never. */
int64_t live_save_steps(const struct trainer *trainer);
int64_t live_eval_steps(const struct trainer *trainer);
/* values: (SETTINGS) for the next step; NaN: does not apply. */
void live_settings(const struct trainer *trainer, double *values);

/* Does the job save, or evaluate, at intervals of steps? */
bool live_saves_by_steps(const struct trainer *trainer);
bool live_evaluates_by_steps(const struct trainer *trainer);
/* The next step's rate by the schedule, without `set`. */
double live_scheduled_rate(const struct trainer *trainer);

/* Sets `train` to the batch to plan for: the job's, or the one from `set`
 * (`ahead`). Sets trainer->job_batch. */
enum zd_status live_plan_batch(
        struct trainer *trainer, struct train_options *train);
/* Returns to the job's own batch if the plan was for another. */
enum zd_status live_own_batch(struct trainer *trainer);
/* Call after loading the state of a resumed run: drops values from `set` whose
 * keys the job file has changed since (`manifest`: the checkpoint's), and
 * applies the number of micro-batches. */
enum zd_status live_resume(struct trainer *trainer, const json_t *manifest);
