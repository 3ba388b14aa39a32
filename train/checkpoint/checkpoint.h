/* checkpoint.h - what a run needs to resume: written atomically, and readable
 * in any world. Internal to train.
 *
 *   output_dir/
 *     .tmp-checkpoint-000020/    being written; removed by the next run
 *     checkpoint-000020/         committed by one rename
 *       shard-00001-of-00004.safetensors    rank 0's ranges (1-D):
 *                 master/NAME@BEGIN   weights, F32 (BF16 without masters)
 *                 m/NAME@BEGIN, v/NAME@BEGIN   as the optimizer holds them:
 *                                     F32, BF16, or U8 codes with ..
 *                 m_scale/NAME@BEGIN, v_scale/NAME@BEGIN   .. F32, one per 256
 *                                     elements from BEGIN, a multiple of 256
 *                 v_blocks/NAME@0     Adam-mini: F32, one per block, once
 *                 master/NAME[C0:C1,..]@BEGIN, ..   columns (columns.h)
 *       config.json, tokenizer files, trainer_state.json
 *       manifest.json              last: step, counters, what data and model,
 *                                  every file with bytes and xxh3-128, what
 *                                  each shard holds, and a digest of itself
 *
 * What does not train is in the base, which the manifest names, with a digest.
 * Ranges are counted in elements of the tensor, so any number of ranks can read
 * what any other number wrote. */
#pragma once

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/file/safetensors.h"
#include "train/job/control.h"
#include "train/job/loss_scale.h"
#include "train/plan/plan.h"
#include "zero/zero.h"

#define CHECKPOINT_MANIFEST "manifest.json"
#define CHECKPOINT_AWAY     ".replaced-" /* before the name of one */
/* In format 5 every tensor has the run's t, and arrays are ranges of whole
 * tensors; format 6 is written only where one has another t, or where arrays
 * are of columns. Formats 1 to 4 are refused. */
enum { CHECKPOINT_FORMAT_OLDEST = 5, CHECKPOINT_FORMAT = 6 };

/* What trainer_state.h makes, as a file of the checkpoint. */
#define TRAINER_STATE_FILE "trainer_state.json"

/* Where a run is; saved in the manifest, restored on resume. */
struct train_state {
    int64_t step;          /* updates made or skipped: rows written */
    int64_t samples_taken; /* the next sample is this one */
    int64_t tokens_seen;
    int64_t applied_steps; /* Adam's t, of what trains from the first on */
    int64_t skipped_steps;
    int64_t skipped_in_a_row;
    int64_t max_steps; /* fixed at the first start */
    double eval_loss;  /* of this step, else of the last; NaN: none */
    int64_t eval_step;
    double best_eval_loss; /* NaN: none */
    int64_t best_step;
    struct loss_scale loss_scale; /* of the next step; scale 0: not fp16 */
    struct train_live live;       /* what `set` changed */
};

/* What must be the same for a resumed run to be the same run. */
struct run_identity {
    const char *data_digest;
    const char *tokenizer_digest; /* "" without one */
    const char *packing;          /* dataset_packing */
    const char *order;            /* dataset_order */
    const char *template_date;    /* of chat templates */
};

struct checkpoint_writer {
    struct comm *comm;
    const struct train_job *job;
    const struct job_plan *plan;
    struct zero *zero;
    json_t *model_files; /* of the model and its tokenizer; rank 0 */
    bool file_prefix;    /* as in the model that was loaded */
    struct run_identity identity;
    uint64_t base_digest; /* of what does not train (model/base_digest.h) */
    int64_t global_batch; /* of the job, whatever `set` has made of it */
    bool may_replace; /* a sound checkpoint of the same name: the run was told
                         to go back (run.resume = PATH) */
    const char *own;  /* path of the last one that this run wrote or goes on
                         from, which it may write again; NULL: none */
    /* of rank 0 (events.h); all 0 where no one asks anything */
    int64_t last_event;  /* its id */
    char *trainer_state; /* text of trainer_state.json, which the save takes;
                            NULL: none */
    /* Rows and events that the files have so far reach the disk, before the
     * checkpoint appears. By the thread that commits. NULL: there are none */
    enum zd_status (*harden_rows)(const void *rows);
    const void *rows;
};

/* Collective: save `state` as checkpoint-NNNNNN below output_dir. On failure
 * nothing is left, older checkpoints are untouched, and the rank that knows
 * holds the record (comm_agree). `path_out`: (PATH_MAX). */
enum zd_status checkpoint_save(
        const struct checkpoint_writer *writer, const struct train_state *state,
        char *path_out);

/* Names: "checkpoint-000020". */
void checkpoint_name(char *out, size_t out_bytes, int64_t step);
/* Below output_dir; `prefix` comes before the name, mostly "". */
struct fs_path checkpoint_place(
        const char *output_dir, const char *prefix, int64_t step);
/* Remove what interrupted saves left in `output_dir`; put back what had made
 * way to a checkpoint that did not come. */
enum zd_status checkpoint_sweep(const char *output_dir);
/* Delete the oldest beyond checkpoint.save_total_limit (0: keep all) of those
 * up to `step`, never the last two that verify, never the best, never a folder
 * that is not ours; those of later steps are another branch's and count for
 * nothing. Nothing is deleted while one of them cannot be read. This process
 * has committed `step` and those of `own` (0: none) itself: they are sound
 * without being read back. */
enum { CHECKPOINTS_OWN = 4 };
enum zd_status checkpoint_retain(
        const struct train_job *job, int64_t step,
        const int64_t own[CHECKPOINTS_OWN]);

/* Steps of the committed checkpoints in `output_dir`, highest first; owned. */
enum zd_status checkpoint_list(
        const char *output_dir, int64_t **steps_out, int *count_out);

/* --- reading ------------------------------------------------------------ */

/* What is looked at of the files when a checkpoint is opened. */
enum checkpoint_check {
    CHECKPOINT_SIZES,
    CHECKPOINT_DIGESTS, /* every byte, on several threads */
    CHECKPOINT_TRUSTED  /* only the manifest: the files were checked already */
};
/* An open one, with at most one of its shards at a time; one thread at a time
 * reads from it. */
struct checkpoint {
    char *path;
    json_t *manifest;
    /* private */
    struct shard *shards;
    int shard_count;
    struct piece *pieces; /* sorted by tensor, columns, begin */
    size_t piece_count, piece_capacity;
};
/* ZD_ERR_DATA naming the file that is wrong, and what of it; ZD_ERR_NO_INPUT
 * when there is none. Any other status says nothing of the checkpoint: it could
 * not be read. */
enum zd_status checkpoint_open(
        const char *path, enum checkpoint_check check, struct checkpoint **out);
/* Collective: every byte, the files shared out over all ranks and `threads` of
 * each (0: one for each CPU). The same status on all; the record is rank 0's.
 * Damage goes before what could not be read: then it is known that the
 * checkpoint is not sound. */
enum zd_status checkpoint_verify_ranks(
        struct comm *comm, const char *dir, int threads);
/* A checkpoint that cannot be read may be the newest sound one: so it is not
 * skipped, and the failure to read it ends the run (E0813). */
enum zd_status checkpoint_unreadable(const char *path, enum zd_status status);
void checkpoint_close(struct checkpoint *checkpoint);
/* Check that the model is `table`'s (ZD_ERR_DATA). */
enum zd_status checkpoint_match_model(
        const struct checkpoint *checkpoint, const struct param_table *table);
/* Are its adapters those of the plan: modules, ranks, what B A is multiplied
 * by, DoRA, the format of their base? ZD_ERR_CONFIG. */
enum zd_status checkpoint_match_adapter(
        const struct checkpoint *checkpoint, const struct job_plan *plan);
/* Of the tensors that it does not hold, as the manifest has it: {"path", "seed"
 * where they are random, "digest", "format", "codes"}; NULL: it holds all. */
const json_t *checkpoint_base(const struct checkpoint *checkpoint);
/* Are they those of `digests` (zero_load)? ZD_ERR_DATA. What it has trained
 * must still train: later checkpoints would not hold it (ZD_ERR_CONFIG). */
enum zd_status checkpoint_match_base(
        const struct checkpoint *checkpoint, const struct param_table *table,
        const uint64_t *digests);
/* Check data and tokenizer (ZD_ERR_CONFIG naming what differs) and log a line
 * for every setting that changed and may. */
enum zd_status checkpoint_match_run(
        const struct checkpoint *checkpoint, const struct train_job *job,
        int64_t global_batch, const struct run_identity *identity);
/* Is the digest of what it does not hold `now`, that of `where`? ZD_ERR_DATA
 * (E0327), with `help`. */
enum zd_status checkpoint_match_digest(
        const struct checkpoint *checkpoint, uint64_t now, const char *where,
        const char *help);
struct train_state checkpoint_state(const struct checkpoint *checkpoint);
/* What became of the optimizer's states. */
enum checkpoint_moments {
    MOMENTS_LOADED,
    MOMENTS_NOT_SAVED, /* checkpoint.save_only_model */
    MOMENTS_OTHERS     /* of another optimizer: states start at zero */
};
/* Fill what this rank holds of it from whatever files have it; zero_load has
 * read the rest. States in another format than the plan's are converted. */
enum zd_status checkpoint_load(
        const struct checkpoint *checkpoint, const struct zero_plan *plan,
        struct zero *zero, enum checkpoint_moments *moments_out);
/* "adamw": whose states these are. */
const char *checkpoint_optimizer(const struct checkpoint *checkpoint);
