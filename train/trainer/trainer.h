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

/* What is known before the plan of what the run goes on from. */
struct run_ahead {
    char date[CHAT_DATE_BYTES]; /* that chat templates get: of the job, else of
                                   the run's first start, else today's */
    /* The batch that `set` gave the run, unless the job's keys were edited
     * since: the plan is for it. 0: there is none. */
    int64_t accumulation, global_batch;
};

struct trainer {
    const struct train_job *job;
    struct comm *comm;    /* of the device's memory */
    struct comm *control; /* borrowed; the same on the CPU */
    const struct train_observer *observer;
    struct job_plan plan;
    const struct objective *objective;
    struct output_dir output_dir;
    struct crash_guard *crash_guard; /* NULL: no one counts */
    struct text text;
    struct run_ahead ahead;
    int64_t job_batch;     /* samples of a step, whatever was set */
    struct device *device; /* NULL: the CPU */
    int device_sharers;    /* ranks on the same GPU, this one too; 0: the CPU */
    const struct kernels *kernels;
    struct arena arena;
    struct dataset *train_data, *eval_data; /* eval_data may be NULL */
    struct loader *loader;
    struct loader_batch *batches;      /* (accumulation) of the step at hand, */
    struct model_batch *model_batches; /* .. and as the model gets them */
    int batch_room;   /* micro-batches that "train.batches" holds */
    bool has_batches; /* loaded, and the step has not begun */
    struct model *model;
    struct zero *zero;
    /* what everything that is offloaded copies with; NULL when nothing is */
    struct stream *streams_down, *streams_up;
    char offload_file[64]; /* of this rank, in offload.nvme_path */
    json_t *model_files;   /* rank 0; owned */
    struct checkpoint_writer writer;
    uint64_t *base_digests;      /* (tensors) as zero_load read them; NULL: not
                                    asked for */
    struct file_writer *metrics; /* rank 0 */
    struct events *events;       /* rank 0 */
    bool had_events;             /* rank 0: of a run before */
    struct train_state state;
    int64_t base_sample; /* where the loader began */
    char resumed_from[PATH_MAX];
    int64_t resumed_event; /* the last event that it knows of */
    char last_checkpoint[PATH_MAX];
    int64_t last_saved_step; /* -1: none by this process or resumed from */
    double save_seconds;     /* of the last save, or an estimate */
    double last_save_time;   /* clock of the last commit, or of the start */
    struct zero_snapshot *snapshot; /* NULL: saves are synchronous */
    struct saves saves;
    struct { /* time and bytes of the save within the current step, not counted
                for the step */
        struct zero_wire wire;
        double seconds, waited;
    } aside;
    bool told_masked; /* a step without targets was said */
    double last_loss;
    double started;
    int64_t tokens_here; /* trained on by this process */
    struct train_offload_report offload_total;
    struct train_exposed exposed_total;
    struct train_offload_report offload_late; /* of the last step's update, made
                                                 before what lies between */
    /* commands (commands.h) */
    enum train_run_state run_state;
    struct train_command command; /* rank 0: taken, not done yet */
    bool has_command;
    bool is_paused, is_stopped; /* the same on all ranks */
    int between_depth;          /* between.c */
    struct rank_meter meter;
    struct stragglers stragglers;
    struct state_history history;  /* rank 0 */
    struct trace *trace;           /* NULL: nothing is traced */
    struct train_command profiled; /* rank 0: by whom */
    struct deadline deadline;      /* checked on rank 0's clock */
    bool met_deadline;             /* that is why the run ends */
};

static inline bool trainer_is_first(const struct trainer *trainer)
{
    return comm_rank(trainer->comm) == 0;
}

/* tell.c: rank 0's observer, metrics.jsonl and events.jsonl hear what happened;
 * the other ranks call them too. */
void trainer_tell_state(struct trainer *trainer, enum train_run_state state);
enum zd_status trainer_tell_step(
        struct trainer *trainer, const struct train_step_report *report);
enum zd_status trainer_tell_eval(struct trainer *trainer, double eval_loss);
/* As decoder_text_json has it; borrowed. */
void trainer_tell_sample(struct trainer *trainer, json_t *sample);
/* A hang is an event, and what may become one a state of the run (comm/watch/
 * watch.h finds both): rank 0 tells it; where its process does not run another
 * rank appends it to events.jsonl. From hang_listen to hang_forget, on all
 * ranks; `events` stays meanwhile. */
void hang_listen(struct trainer *trainer);
void hang_forget(struct trainer *trainer);

/* Collective: the record of the lowest rank that has one, on all; it is taken.
 * Status ZD_OK: no rank has one. */
enum zd_status trainer_share_error(
        struct trainer *trainer, struct zd_error *out);

/* evaluate.c */
/* Nothing without evaluation data. *read_out (may be NULL: then it is the
 * status): whether the data could be read, the same on all ranks. */
enum zd_status trainer_evaluate(
        struct trainer *trainer, enum zd_status *read_out);
/* data.c: collective; where the strategy is "no" the evaluation's are opened
 * when asked for. */
enum zd_status trainer_open_data(struct trainer *trainer);
enum zd_status trainer_open_eval(struct trainer *trainer);
/* between.c */
struct sample_request {
    const char *const *prompts;
    int count, max_new_tokens;
    bool is_asked; /* max_new_tokens is: it is not cut to the room */
    bool chat;     /* prompts are users' messages */
    json_t *told;  /* NULL, or rank 0's array: {"prompt", "text"} are added */
};
/* What the job samples; count 0: nothing, or there is no room. */
struct sample_request trainer_sample_of_job(const struct trainer *trainer);
enum zd_status trainer_sample_request(
        struct trainer *trainer, const struct sample_request *request);
/* Could the request be answered? The same on all ranks. */
enum zd_status trainer_sample_check(
        struct trainer *trainer, const struct sample_request *request);
/* weights.c */
enum zd_status trainer_export(struct trainer *trainer);
/* Below output_dir: "hf" or "peft". */
struct fs_path export_dir(const struct train_job *job);
/* Collective: all of the model from where it begins, with the digests of its
 * tensors where they are wanted: trainer->base_digests, and in the writer that
 * of what does not train. */
enum zd_status trainer_load_weights(struct trainer *trainer, bool digests);

/* batches.c: which samples a rank reads for a step, and another number of
 * micro-batches between two steps */
/* Number of row 0 of micro-batch `a` of the step at hand, in the run. */
int64_t batches_first_sample(const struct trainer *trainer, int a);
/* A sample may have several ranks: rows keep their length then, and a rank has
 * its pieces of them. */
struct loader_order batches_order(
        const struct trainer *trainer,
        int64_t (*sample_of)(void *ctx, int64_t batch, int b), void *ctx);
/* All but its place in the run. */
struct model_batch batches_of_model(const struct loader_batch *loaded, int B);
/* Does this rank count the sample's tokens? Are this rank's losses part of the
 * sample's? */
bool trainer_counts_sample(const struct trainer *trainer);
bool trainer_counts_loss(const struct trainer *trainer);
/* Read from the first sample that no step has taken. Sets base_sample. */
enum zd_status batches_start(struct trainer *trainer);
void batches_stop(struct trainer *trainer);

/* From the next step on a step has `accumulation` micro-batches, and the global
 * batch is another; no sample is lost or taken twice. ZD_ERR_UNFIT, and nothing
 * changed, where the memory that was planned has no room for it. Every rank
 * comes to the same answer. Only while the
 * loader is stopped.
 */
enum zd_status batches_accumulate(struct trainer *trainer, int accumulation);

/* between.c: what happens between steps: evaluation, samples, checkpoints, when
 * they are due */
/* Around everything outside a step: finishes the last step's update, whose
 * report counts with the next step. They nest: a paused run stays between the
 * two. */
enum zd_status between_begin(struct trainer *trainer);
enum zd_status between_end(struct trainer *trainer);

/* What is due after the step just made. */
enum zd_status trainer_between(struct trainer *trainer);

/* live.c: the settings as `set` has made them: what steps go by. Part of the
 * state (train_live), so a checkpoint has them. */
/* Of the next step. */
double live_learning_rate(const struct trainer *trainer);
/* The rate at the end of the warm-up, while the next step is before it; then
 * NaN. */
double live_peak_rate(const struct trainer *trainer);
/* All that a `set` gives. A rate is the peak during the warm-up, afterwards the
 * next step's; the rest of the schedule is scaled with it. */
void live_set(struct trainer *trainer, const struct train_command *command);
/* How the rate changes after the next step, a sentence; false: it stays. */
bool live_rate_note(const struct trainer *trainer, char *text, size_t bytes);
double live_max_grad_norm(const struct trainer *trainer);
/* In whole steps; 0: never. */
int64_t live_save_steps(const struct trainer *trainer);
int64_t live_eval_steps(const struct trainer *trainer);
/* values: (SETTINGS), as they hold for the next step; NaN: does not apply. */
void live_settings(const struct trainer *trainer, double *values);

/* Has the job these, as intervals of steps? */
bool live_saves_by_steps(const struct trainer *trainer);
bool live_evaluates_by_steps(const struct trainer *trainer);
/* What the schedule says of the next step, whatever was set. */
double live_scheduled_rate(const struct trainer *trainer);

/* `train` gets the batch to plan for: the job's, or what was set (`ahead`).
 * Sets trainer->job_batch. */
enum zd_status live_plan_batch(
        struct trainer *trainer, struct train_options *train);
/* The job's own, if the plan was for another. */
enum zd_status live_own_batch(struct trainer *trainer);
/* What a resumed run keeps of what was set, after its state was loaded: a key
 * that the job file has changed since then holds again (`manifest`: of the
 * checkpoint), and the number of micro-batches takes effect. */
enum zd_status live_resume(struct trainer *trainer, const json_t *manifest);
