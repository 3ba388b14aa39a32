/* checkpoint.h - what a run needs to resume: written atomically, and readable
 * with any number of ranks. Internal to train.
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
 *       manifest.json              last: step, counters, identity of data and
 *                                  model, every file with bytes and xxh3-128,
 *                                  contents of each shard, and a digest of
 *                                  itself
 *
 * Frozen tensors are in the base, which the manifest names with a digest.
 * Ranges are in elements of the tensor, so any number of ranks can read what
 * any other number wrote. */
#pragma once

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/file/safetensors.h"
#include "train/job/control.h"
#include "train/job/loss_scale.h"
#include "train/plan/plan.h"
#include "zero/zero.h"

#define CHECKPOINT_MANIFEST "manifest.json"
#define CHECKPOINT_AWAY     ".replaced-" /* before a replaced one's name */
/* In format 5 every tensor has the run's t, and arrays are ranges of whole
 * tensors. Format 6 is written only if a tensor has another t or arrays are of
 * columns. Formats 1 to 4 are refused. */
enum { CHECKPOINT_FORMAT_OLDEST = 5, CHECKPOINT_FORMAT = 6 };

/* The checkpoint's file from trainer_state.h. */
#define TRAINER_STATE_FILE "trainer_state.json"

/* The progress of a run; saved in the manifest, restored on resume. */
struct train_state {
    int64_t step;          /* steps made, also skipped ones */
    int64_t samples_taken; /* index of the next sample */
    int64_t tokens_seen;
    int64_t applied_steps; /* Adam's t for tensors that train from the first
                              step on */
    int64_t skipped_steps;
    int64_t skipped_in_a_row;
    int64_t max_steps; /* fixed at the first start */
    double eval_loss;  /* of this step or the last one evaluated; NaN: none */
    int64_t eval_step;
    double best_eval_loss; /* NaN: none */
    int64_t best_step;
    struct loss_scale loss_scale; /* for the next step; scale 0: not fp16 */
    struct train_live live;       /* what `set` changed */
};

/* What identifies a run: must not change on resume. */
struct run_identity {
    const char *data_digest;
    const char *tokenizer_digest; /* "": no tokenizer */
    const char *packing;          /* dataset_packing */
    const char *order;            /* dataset_order */
    const char *template_date;    /* date for chat templates */
};

struct checkpoint_writer {
    struct comm *comm;
    const struct train_job *job;
    const struct job_plan *plan;
    struct zero *zero;
    json_t *model_files; /* of the model and tokenizer; rank 0 */
    bool file_prefix;    /* as in the loaded model */
    struct run_identity identity;
    uint64_t base_digest; /* of frozen tensors (base_digest.h) */
    int64_t global_batch; /* the job's, before any `set` */
    bool may_replace;     /* may replace a valid checkpoint of the same name,
                             because the run was told to go back (run.resume =
                             PATH) */
    const char *own;      /* path of the last checkpoint that this run wrote or
                             resumed from, which it may replace; NULL: none */
    /* rank 0 (events.h); 0: unused */
    int64_t last_event;  /* its id */
    char *trainer_state; /* text of trainer_state.json; the save takes
                            ownership; NULL: none */
    /* Called by the committing thread before the checkpoint appears: syncs rows
     * and events to disk. NULL: there are none */
    enum zd_status (*harden_rows)(const void *rows);
    const void *rows;
};

/* Collective: save `state` as checkpoint-NNNNNN below output_dir. On failure it
 * removes its files, older checkpoints are untouched, and the failing rank
 * holds the record (comm_agree). `path_out`: (PATH_MAX). */
enum zd_status checkpoint_save(
        const struct checkpoint_writer *writer, const struct train_state *state,
        char *path_out);

/* Names: "checkpoint-000020". */
void checkpoint_name(char *out, size_t out_bytes, int64_t step);
/* The path below output_dir; `prefix` is put before the name, usually "". */
struct fs_path checkpoint_place(
        const char *output_dir, const char *prefix, int64_t step);
/* Removes leftovers of interrupted saves in `output_dir`; restores a checkpoint
 * that was moved away for one that was not committed. */
enum zd_status checkpoint_sweep(const char *output_dir);
/* Deletes the oldest checkpoints up to `step` beyond
 * checkpoint.save_total_limit (0: keep all); never the last two that verify,
 * the best, or a folder that is not ours. Later steps are another branch's and
 * do not count. Deletes nothing while one of them cannot be read. This process
 * has committed `step` and the steps in `own` (0: none), so they are valid
 * without reading them. */
enum { CHECKPOINTS_OWN = 4 };
enum zd_status checkpoint_retain(
        const struct train_job *job, int64_t step,
        const int64_t own[CHECKPOINTS_OWN]);

/* Steps of the committed checkpoints in `output_dir`, highest first; owned. */
enum zd_status checkpoint_list(
        const char *output_dir, int64_t **steps_out, int *count_out);

/* --- reading ------------------------------------------------------------ */

/* How files are checked when a checkpoint is opened. */
enum checkpoint_check {
    CHECKPOINT_SIZES,
    CHECKPOINT_DIGESTS, /* also every byte, on several threads */
    CHECKPOINT_TRUSTED  /* only the manifest: files were checked before */
};
/* An open checkpoint, with at most one open shard; only one thread may read at
 * a time. */
struct checkpoint {
    char *path;
    json_t *manifest;
    /* private */
    struct shard *shards;
    int shard_count;
    struct piece *pieces; /* sorted by tensor, columns, begin */
    size_t piece_count, piece_capacity;
};
/* ZD_ERR_DATA: damaged; names the file and the damage. ZD_ERR_NO_INPUT: there
 * is none. Any other status: it could not be read, so its state is unknown. */
enum zd_status checkpoint_open(
        const char *path, enum checkpoint_check check, struct checkpoint **out);
/* Collective: verifies every byte, with the files divided over all ranks and
 * `threads` of each (0: one per CPU). All return the same status; rank 0 has
 * the record. Damage has priority over read errors, because it proves that the
 * checkpoint is invalid. */
enum zd_status checkpoint_verify_ranks(
        struct comm *comm, const char *dir, int threads);
/* Reports that a checkpoint cannot be read (E0813) and ends the run: it may be
 * the newest valid one, so it must not be skipped. */
enum zd_status checkpoint_unreadable(const char *path, enum zd_status status);
void checkpoint_close(struct checkpoint *checkpoint);
/* Checks that the model is `table`'s (ZD_ERR_DATA). */
enum zd_status checkpoint_match_model(
        const struct checkpoint *checkpoint, const struct param_table *table);
/* Checks that its adapters are those of the plan: modules, ranks, scale, DoRA,
 * the format of their base. ZD_ERR_CONFIG. */
enum zd_status checkpoint_match_adapter(
        const struct checkpoint *checkpoint, const struct job_plan *plan);
/* The manifest's description of the tensors that it does not hold: {"path",
 * "seed" if they are random, "digest", "format", "codes"}; NULL: it holds all.
 */
const json_t *checkpoint_base(const struct checkpoint *checkpoint);
/* Checks these tensors against `digests` (zero_load): ZD_ERR_DATA. Tensors that
 * it holds must still train, because later checkpoints would not hold them
 * (ZD_ERR_CONFIG). */
enum zd_status checkpoint_match_base(
        const struct checkpoint *checkpoint, const struct param_table *table,
        const uint64_t *digests);
/* Checks data and tokenizer (ZD_ERR_CONFIG names what differs) and logs a line
 * for every setting that changed and may change. */
enum zd_status checkpoint_match_run(
        const struct checkpoint *checkpoint, const struct train_job *job,
        int64_t global_batch, const struct run_identity *identity);
/* Checks that the digest of the tensors it does not hold is `now`, the one of
 * `where`: ZD_ERR_DATA (E0327), with `help`. */
enum zd_status checkpoint_match_digest(
        const struct checkpoint *checkpoint, uint64_t now, const char *where,
        const char *help);
struct train_state checkpoint_state(const struct checkpoint *checkpoint);
/* The outcome for the optimizer's states. */
enum checkpoint_moments {
    MOMENTS_LOADED,
    MOMENTS_NOT_SAVED, /* checkpoint.save_only_model */
    MOMENTS_OTHERS     /* another optimizer's: states start at zero */
};
/* Fills what this rank holds from the files that have it; zero_load has read
 * the rest. Converts states in another format than the plan's. */
enum zd_status checkpoint_load(
        const struct checkpoint *checkpoint, const struct zero_plan *plan,
        struct zero *zero, enum checkpoint_moments *moments_out);
/* The optimizer of the states: "adamw". */
const char *checkpoint_optimizer(const struct checkpoint *checkpoint);
