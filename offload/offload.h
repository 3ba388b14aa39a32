/* offload.h - master weights and optimizer states of one rank on the host (or
 * on NVMe), the update made there by worker threads. Knows no ranks and no
 * model: zero says which elements there are and when gradients are ready.
 *
 *          device                       host
 *   unit's gradient  ---- down --->  slot (16 bits) --> norm on arrival
 *                                      |   when the norm is known (or before,
 *                                      v   with undo): workers, chunk by chunk
 *                                    master, m, v updated; the new parameter
 *   parameters       <---- up ----   takes the gradient's place in the slot
 *
 * Some chunks may be the device's to update: then they visit it (visit.c).
 * Where it updates all and only lacks room for states, those visit it:
 * zero/paged.c, which needs none of this.
 *
 * Per parameter on the host: master 4, m 1, v 1, scales 0.03, slot 2. In fp32
 * the slot has 4 bytes. With `accumulates` an fp32 accumulator takes the slot's
 * place (+2): gradients of micro-batches are added there and rounded once, to
 * the compute type, before the norm; the new parameter is then written into the
 * front of its chunk's accumulator. With params on the host the slot is the
 * parameter's home; when `accumulates` too, parameters have an array of their
 * own.
 *
 * A step:
 *   offload_step_begin                 OFFLOAD_CLIP_UNDO
 *   offload_grads_down(segment, ..)    as each segment's gradient is complete
 *   offload_squares                    all have arrived; their squares
 *   offload_block_sums                 Adam-mini
 *   offload_update                     begins; or offload_skip
 *   offload_params_wait(segment) or offload_params_up(segment, ..)
 *                                      before the next use of its parameters
 *
 * Threads: all calls come from the trainer. Workers touch host memory only.
 * Waits for copies are the compute stream's (base/device/stream.h): on the CPU
 * that is the trainer, on a GPU it goes on. Waits for workers are the
 * trainer's. Memory of the host is the engine's to protect (segments.c); of the
 * device, the caller's, by the tokens that calls take and leave. Bits: those of
 * optim_update over the same elements, whatever the chunks, the threads, the
 * tier and the clipping strategy. Errors: ZD_ERR_IO of the disk, told by the
 * next call. Nothing on the step path allocates. */
#pragma once

#include "base/device/device.h"
#include "base/device/lease.h"
#include "base/memory/arena.h"
#include "offload/options.h"
#include "optim/optim.h"

/* An extent of elements of one tensor whose state is this rank's. */
struct offload_extent {
    int segment;
    size_t offset; /* elements from the segment's first: multiple of 256 */
    size_t begin, count; /* in the tensor; begin is a multiple of 256 */
    struct optim_layout layout;
    const struct tensor_blocks *blocks; /* Adam-mini, else NULL */
    uint64_t tensor;                    /* rng_stream of its name */
    bool decays;
    size_t copies; /* its last elements, whose gradient another rank counts */
    float rate;    /* optim_span */
    const int64_t *began; /* of optim_span, the caller's: it may change it while
                             no job runs; NULL: 0 */
};

/* A segment is what comes down and goes up together. */
struct offload_request {
    const struct offload_options *options;
    const struct optim_options *optim;
    enum dtype dtype;             /* compute type: of slots */
    const size_t *segment_counts; /* elements, padded, multiples of 256; 0: it
                                     has no gradient */
    int segment_count;            /* in the order of their first use */
    const struct offload_extent *extents; /* by segment, then offset */
    int extent_count;
    bool accumulates;    /* gradients are added up on the host */
    bool params_on_host; /* options->params is not NONE */
    int undo_first;      /* segments from it on, whose gradients arrive first,
                            are updated as they arrive; the others wait for the
                            norm. segment_count: all do */
};

/* The undo_first that the options' undo_memory is enough for; segment_count
 * without OFFLOAD_CLIP_UNDO. Pure. */
int offload_undo_first(const struct offload_request *request);

/* Memory of a rank, by what it is for: spans of these names. ARENA_HOST but
 * where noted; a part of 0 bytes has no span. */
enum offload_part {
    OFFLOAD_STATES,       /* "offload.states": masters too, chunk by chunk */
    OFFLOAD_SLOTS,        /* "offload.slots" (pinned) */
    OFFLOAD_ACCUMULATORS, /* "offload.accumulators" (pinned) */
    OFFLOAD_PARAMS,       /* "offload.params" (pinned) */
    OFFLOAD_STAGING,      /* "offload.staging" (pinned): micro-batches after the
                             first on their way into accumulators */
    OFFLOAD_UNDO,         /* "offload.undo": old values (OFFLOAD_CLIP_UNDO) */
    OFFLOAD_VISITS,       /* "offload.visits" (device): chunks that it updates;
                             then "offload.states" is pinned */
    OFFLOAD_RING,         /* "offload.ring" (pinned): chunks between disk and
                             workers */
    OFFLOAD_FILE,         /* "offload.file" (disk) */
    OFFLOAD_PARTS
};

/* Bytes of each part for one rank's extents; pure. zero takes the largest of
 * each over the ranks, so that the plan is the same for all. */
void offload_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS]);
enum zd_status offload_plan_spans(
        const size_t bytes[OFFLOAD_PARTS], struct arena_plan *plan);

/* Bytes that chunks which the device updates (options->device_update) move in a
 * step; of parameters that it makes where they live, and
 * which do not go up, those. Pure. */
struct offload_visits {
    uint64_t down, up, home;
};
struct offload_visits offload_visits_of(const struct offload_request *request);

/* The folder of the NVMe tier exists and may be written to. ZD_ERR_CONFIG when
 * none is named, ZD_ERR_NO_INPUT, ZD_ERR_CREATE, ZD_ERR_DENIED. */
enum zd_status offload_check_folder(const char *folder);
/* Before memory is taken: the disk folder exists, is writable and has room for
 * the file of each of `local_size` ranks. */
enum zd_status offload_check(
        const struct offload_options *options,
        const size_t bytes[OFFLOAD_PARTS], int local_size);

struct offload_place {
    /* Queued on by the engine alone (up by its own thread when parameters
     * live on the device, else by the trainer); the caller's, and destroyed
     * after the engine. NULL: copies are made at once. */
    struct stream *down, *up;
    enum stream_mode streams; /* of the CPU, that the engine makes */
    int worker_threads;       /* > 0 */
    int first_cpu;            /* workers are bound to the CPUs of this process's
                                 mask from this one on, in turn; -1: not bound */
    const char *file_name;    /* of this rank's file in nvme_path; NULL: none */
};

struct offload;
/* request, what it points to, and arena are borrowed and must outlive it. */
enum zd_status offload_create(
        const struct offload_request *request, const struct arena *arena,
        const struct offload_place *place, struct offload **offload_out);
void offload_destroy(struct offload *offload); /* removes its file */

/* --- a step --------------------------------------------------------------- */

/* Before the step's last gradients come down: the step as it is if nothing is
 * clipped (grad_scale 1 / loss scale), by which segments from undo_first on are
 * updated.
 * Without it, and without such segments, the update waits for the norm. The
 * last step may still be under way. What the step points to is read until the
 * update. */
void offload_step_begin(
        struct offload *offload, const struct optim_step *unclipped);
/* `from`: the segment's reduced gradient on the device: dtype, or fp32 with
 * `accumulates`; it lies there once `ready` is done ({0}: now). `micro` counts
 * micro-batches that come down, from 0; `last` says that nothing follows. */
enum zd_status offload_grads_down(
        struct offload *offload, int segment, const void *from,
        struct token ready, int micro, bool last);
/* The segment's last copies down have left `from`. */
struct token offload_grads_left(struct offload *offload, int segment);
/* Waits for all segments and adds the squares of their gradients but copies',
 * as optim_add_squares, after rounding. */
enum zd_status offload_squares(struct offload *offload, struct exact_sum *sum);
/* Adds optim_add_block_sums of extent i into sums[i] (may be shared by extents;
 * NULL: not wanted). */
enum zd_status offload_block_sums(
        struct offload *offload, int64_t *const *sums, double norm);
/* After offload_squares. Begins the update and returns. block_v: by extent,
 * Adam-mini, else NULL; it and step->options are read until the update is done.
 */
enum zd_status offload_update(
        struct offload *offload, const struct optim_step *step,
        const float *const *block_v);
/* The same, where the step is not applied: nothing of it remains. */
enum zd_status offload_skip(struct offload *offload);

/* Where the new parameters of a segment go when they live on the device: queued
 * chunk by chunk as workers finish. Set once. */
void offload_params_to(struct offload *offload, int segment, void *device);
/* Until they are on their way; what the compute stream does later finds them
 * there. */
enum zd_status offload_params_wait(struct offload *offload, int segment);
/* Until a segment's update is made, wherever its parameters go. */
enum zd_status offload_update_wait(struct offload *offload, int segment);
/* params on the host: queue the copy of a segment's parameters to the device.
 * `done` is recorded after it; the report tells what waits for it are for. */
enum zd_status offload_params_up(
        struct offload *offload, int segment, void *to, struct timeline *done);
/* What goes up from now on follows the token, whose record is queued. */
enum zd_status offload_up_after(struct offload *offload, struct token token);
/* In turn with offload_params_up: other memory of the host, which is pinned. */
enum zd_status offload_copy_up(
        struct offload *offload, const void *from, void *to, size_t bytes,
        struct timeline *done);
/* Until everything under way is done. */
enum zd_status offload_finish(struct offload *offload);

/* --- states, from outside a step ------------------------------------------ */

/* Elements begin .. begin + count - 1 of an extent, from a multiple of 256 of
 * it, in the caller's arrays: `values` as the lane's format has them, `scales`
 * for 8-bit lanes; reading, either may be NULL. lane OPTIM_LANES is the master
 * (fp32, or bf16 without fp32 masters). */
struct offload_lane {
    int extent, lane;
    size_t begin, count;
    void *values;
    float *scales;
    bool writes; /* to the engine: the arrays are only read */
};
/* All finish first. */
enum zd_status offload_move(
        struct offload *offload, const struct offload_lane *lane);

/* The same for one thread that reads while updates go on (offload/states.c),
 * not of a file: offload_move at the moment of offload_snapshot_begin. What an
 * update comes to first is copied into `memory`, of the host, borrowed; where
 * that is full the update waits for the reader.
 *
 *   trainer   offload_snapshot_begin, offload_snapshot_want for what will be
 * read, offload_snapshot_open: after offload_finish, before the next step
 *   reader    offload_snapshot_read of all that is wanted, once;
 * offload_snapshot_end, also where it gives up: updates may be waiting for it
 */
void offload_snapshot_create(
        struct offload *offload, void *memory, size_t bytes);
/* Room for a copy of everything. */
size_t offload_snapshot_bytes(const struct offload_request *request);
/* Masters will be read, and with `moments` m and v. */
void offload_snapshot_begin(struct offload *offload, bool moments);
/* Elements of an extent. */
void offload_snapshot_want(
        struct offload *offload, int extent, size_t begin, size_t count);
void offload_snapshot_open(struct offload *offload);
enum zd_status offload_snapshot_read(
        struct offload *offload, const struct offload_lane *lane);
void offload_snapshot_end(struct offload *offload);
/* Seconds that updates have waited for the reader, since the beginning. */
double offload_snapshot_waited(struct offload *offload);

/* States (m and v) as at the start of training. */
enum zd_status offload_states_clear(struct offload *offload);
/* Masters were written: round parameters from them, into slots or device. */
enum zd_status offload_masters_written(struct offload *offload);

/* From the next chunk on, those of worker i are spans of lane LANE_WORKERS + i;
 * NULL: no more, once offload_finish has returned. */
struct spans;
void offload_set_spans(struct offload *offload, struct spans *spans);

/* --- what it did ---------------------------------------------------------- */

struct offload_facts { /* what was settled at its creation */
    int worker_threads;
    bool is_bound;            /* to a CPU each */
    bool has_file, is_direct; /* the file: past the page cache */
};
struct offload_facts offload_facts(const struct offload *offload);

struct offload_report { /* of a step */
    uint64_t down_bytes, up_bytes, disk_read_bytes, disk_written_bytes;
    double down_seconds, up_seconds; /* streams busy */
    double host_seconds;             /* update: from its begin to its end */
    double worker_seconds;           /* summed over workers */
    double disk_seconds;             /* summed over workers: for the disk */
    /* how long the trainer waited for each */
    double wait_down_seconds, wait_host_seconds, wait_disk_seconds,
            wait_up_seconds;
    bool undone; /* a speculative update was taken back */
};
/* Since the last call. Bytes down, and up, are those that were asked for since
 * then, an update's with offload_update; seconds and the disk's bytes are
 * counted as they pass, so of an update that is still under way later. What is
 * updated while gradients arrive does not count as host_seconds unless it is
 * taken back. */
struct offload_report offload_report_take(struct offload *offload);
