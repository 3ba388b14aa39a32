/* offload.h - master weights and optimizer states of one rank on the host (or
 * on NVMe), updated there by worker threads. Knows neither ranks nor the model:
 * zero says which elements there are and when gradients are ready.
 *
 *          device                       host
 *   unit's gradient  ---- down --->  slot (16 bits) --> norm on arrival
 *                                      |   when the norm is known (or before,
 *                                      v   with undo): workers, chunk by chunk
 *                                    master, m, v updated; the new parameter
 *   parameters       <---- up ----   takes the gradient's place in the slot
 *
 * The device may update some of the chunks: they are copied up and down for it
 * (visit.c). If the device updates everything and only lacks room for states,
 * zero/paged.c copies those, without this engine.
 *
 * Per parameter on the host: master 4, m 1, v 1, scales 0.03, slot 2. In fp32
 * the slot has 4 bytes. With `accumulates` an fp32 accumulator replaces the
 * slot (+2): gradients of micro-batches are added there and rounded once to the
 * compute type, before the norm; new parameters are written to the front of
 * their chunk's accumulator. With params on the host the slot also stores the
 * parameter; with both, parameters have a separate array.
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
 * Threads: all calls come from the trainer. Workers touch host memory only. The
 * compute stream waits for copies (base/device/stream.h): that blocks the
 * trainer on the CPU, but not on a GPU. The trainer waits for workers. The
 * engine protects host memory (segments.c); the caller protects device memory,
 * by the tokens that calls take and return. Bits: those of optim_update over
 * the same elements, whatever the chunks, the threads, the tier and the
 * clipping strategy. Errors: ZD_ERR_IO for the disk, returned by the next call.
 * Nothing on the step path allocates. */
#pragma once

#include "base/device/device.h"
#include "base/device/lease.h"
#include "base/memory/arena.h"
#include "offload/options.h"
#include "optim/optim.h"

/* An extent of elements of one tensor whose states belong to this rank. */
struct offload_extent {
    int segment;
    size_t offset; /* elements from the segment's first: multiple of 256 */
    size_t begin, count; /* in the tensor; begin is a multiple of 256 */
    struct optim_layout layout;
    const struct tensor_blocks *blocks; /* Adam-mini, else NULL */
    uint64_t tensor;                    /* rng_stream of its name */
    bool decays;
    size_t copies; /* number of its last elements that another rank counts for
                      the norm */
    float rate;    /* optim_span */
    const int64_t *began; /* optim_span.began, borrowed: the caller may change
                             it while no job runs; NULL: 0 */
};

/* A segment is copied down and up as a whole. */
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
    int undo_first; /* segments from this one on, whose gradients arrive first,
                       are updated on arrival; the others after the norm.
                       segment_count: all after the norm */
};

/* The smallest undo_first that fits the options' undo_memory; segment_count
 * without OFFLOAD_CLIP_UNDO. Pure. */
int offload_undo_first(const struct offload_request *request);

/* Memory of a rank by purpose: spans of these names, ARENA_HOST unless noted. A
 * part of 0 bytes has no span. */
enum offload_part {
    OFFLOAD_STATES,       /* "offload.states": masters too, chunk by chunk */
    OFFLOAD_SLOTS,        /* "offload.slots" (pinned) */
    OFFLOAD_ACCUMULATORS, /* "offload.accumulators" (pinned) */
    OFFLOAD_PARAMS,       /* "offload.params" (pinned) */
    OFFLOAD_STAGING,      /* "offload.staging" (pinned): gradients of later
                             micro-batches before they are added */
    OFFLOAD_UNDO,         /* "offload.undo": old values (OFFLOAD_CLIP_UNDO) */
    OFFLOAD_VISITS,       /* "offload.visits" (device): chunks that the device
                             updates; makes "offload.states" pinned */
    OFFLOAD_RING,         /* "offload.ring" (pinned): chunks between disk and
                             workers */
    OFFLOAD_FILE,         /* "offload.file" (disk) */
    OFFLOAD_PARTS
};

/* Bytes of each part for one rank's extents; pure. zero takes the maximum of
 * each over ranks, so that all ranks have the same plan. */
void offload_measure(
        const struct offload_request *request, size_t bytes[OFFLOAD_PARTS]);
enum zd_status offload_plan_spans(
        const size_t bytes[OFFLOAD_PARTS], struct arena_plan *plan);

/* Bytes that a step copies for the chunks that the device updates
 * (options->device_update), and bytes of the parameters that it writes in
 * place, which are not copied up; elements of all extents. Pure. */
struct offload_visits {
    uint64_t down, up, home, held;
};
struct offload_visits offload_visits_of(const struct offload_request *request);

/* Checks that the folder of the NVMe tier exists and is writable. ZD_ERR_CONFIG
 * when none is named, ZD_ERR_NO_INPUT, ZD_ERR_CREATE, ZD_ERR_DENIED. */
enum zd_status offload_check_folder(const char *folder);
/* Checks, before memory is taken, that the folder exists, is writable and has
 * room for the files of `local_size` ranks. */
enum zd_status offload_check(
        const struct offload_options *options,
        const size_t bytes[OFFLOAD_PARTS], int local_size);

struct offload_place {
    /* Only the engine queues on them (on `up` from its own thread if parameters
     * stay on the device, else from the trainer). The caller owns them and
     * destroys them after the engine. NULL: copies are synchronous. */
    struct stream *down, *up;
    enum stream_mode streams; /* mode of CPU streams that the engine creates */
    int worker_threads;       /* > 0 */
    int first_cpu; /* workers are bound one by one to the CPUs of this process's
                      mask, from this one on; -1: not bound */
    const char *file_name; /* of this rank's file in nvme_path; NULL: none */
};

struct offload;
/* request, what it points to, and arena are borrowed and must outlive it. */
enum zd_status offload_create(
        const struct offload_request *request, const struct arena *arena,
        const struct offload_place *place, struct offload **offload_out);
void offload_destroy(struct offload *offload); /* removes its file */

/* --- a step --------------------------------------------------------------- */

/* Call before the step's last gradients come down, with the step as it would be
 * without clipping (grad_scale 1 / loss scale): segments from undo_first on are
 * updated with it. Without this call, or without such segments, the update
 * waits for the norm. The previous step may still be under way. What the step
 * points to is read until the update. */
void offload_step_begin(
        struct offload *offload, const struct optim_step *unclipped);
/* `from`: the segment's reduced gradient on the device: dtype, or fp32 with
 * `accumulates`; it is complete once `ready` is done ({0}: now). `micro` counts
 * micro-batches that come down, from 0; `last`: none follows. */
enum zd_status offload_grads_down(
        struct offload *offload, int segment, const void *from,
        struct token ready, int micro, bool last);
/* The token of the segment's last copies down: `from` may be reused after
 * it. */
struct token offload_grads_left(struct offload *offload, int segment);
/* Waits for all segments and adds the squares of their rounded gradients,
 * without `copies`, as optim_add_squares does. */
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
/* Instead of offload_update, if the step is not applied: undoes early
 * updates. */
enum zd_status offload_skip(struct offload *offload);

/* Where a segment's new parameters go on the device; copies are queued chunk by
 * chunk as workers finish. Set once. */
void offload_params_to(struct offload *offload, int segment, void *device);
/* Waits until those copies are queued; later work of the compute stream sees
 * the parameters. */
enum zd_status offload_params_wait(struct offload *offload, int segment);
/* Waits until a segment is updated, wherever its parameters go. */
enum zd_status offload_update_wait(struct offload *offload, int segment);
/* params on the host: queue the copy of a segment's parameters to the device.
 * `done` is recorded after it, so that the report can attribute waits. */
enum zd_status offload_params_up(
        struct offload *offload, int segment, void *to, struct timeline *done);
/* Later copies up wait for the token, whose record must be queued. */
enum zd_status offload_up_after(struct offload *offload, struct token token);
/* Copies other pinned host memory up, in order with offload_params_up. */
enum zd_status offload_copy_up(
        struct offload *offload, const void *from, void *to, size_t bytes,
        struct timeline *done);
/* Waits until everything under way is done. */
enum zd_status offload_finish(struct offload *offload);

/* --- states, from outside a step ------------------------------------------ */

/* Elements begin .. begin + count - 1 of an extent (`begin`: a multiple of
 * 256), in the caller's arrays: `values` in the lane's format, `scales` for
 * 8-bit lanes; when reading, either may be NULL. Lane OPTIM_LANES is the master
 * (fp32, or bf16 without fp32 masters). */
struct offload_lane {
    int extent, lane;
    size_t begin, count;
    void *values;
    float *scales;
    bool writes; /* writes into the engine: the arrays are only read */
};
/* These three finish first all work under way. */
enum zd_status offload_move(
        struct offload *offload, const struct offload_lane *lane);

/* The same for one thread that reads during updates (offload/states.c); not
 * with states in a file. It reads the values at offload_snapshot_begin. If an
 * update reaches a chunk first, it copies it into `memory` (host, borrowed), or
 * waits for the reader if that is full.
 *
 *   trainer   offload_snapshot_begin, offload_snapshot_want for what will be
 * read, offload_snapshot_open: after offload_finish, before the next step
 *   reader    offload_snapshot_read of all that is wanted, once;
 * offload_snapshot_end, also where it gives up: updates may be waiting for it
 */
void offload_snapshot_create(
        struct offload *offload, void *memory, size_t bytes);
/* Bytes for a copy of everything. */
size_t offload_snapshot_bytes(const struct offload_request *request);
/* The reader will read masters, and m and v with `moments`. */
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

/* Reset m and v as at the start of training. */
enum zd_status offload_states_clear(struct offload *offload);
/* Call after masters were written: rounds parameters from them, into slots or
 * to the device. */
enum zd_status offload_masters_written(struct offload *offload);

/* From the next chunk on, record worker i's chunks as spans of lane
 * LANE_WORKERS + i; NULL: stop, effective when offload_finish has returned. */
struct spans;
void offload_set_spans(struct offload *offload, struct spans *spans);

/* --- what it did ---------------------------------------------------------- */

struct offload_facts { /* decided when the engine was created */
    int worker_threads;
    bool is_bound;            /* to a CPU each */
    bool has_file, is_direct; /* the file: past the page cache */
};
struct offload_facts offload_facts(const struct offload *offload);

struct offload_report { /* of a step */
    uint64_t down_bytes, up_bytes, disk_read_bytes, disk_written_bytes;
    double down_seconds, up_seconds; /* streams busy */
    double host_seconds;   /* from the beginning to the end of the update */
    double worker_seconds; /* summed over workers */
    double disk_seconds;   /* waits for the disk, summed over workers */
    /* how long the trainer waited for each */
    double wait_down_seconds, wait_host_seconds, wait_disk_seconds,
            wait_up_seconds;
    bool undone; /* an early update was undone */
};
/* Counts since the last call. Bytes down and up count when requested (an
 * update's in offload_update); seconds and disk bytes count as they pass, so
 * those of an unfinished update appear in a later report. Early updates do not
 * count as host_seconds unless they are undone. */
struct offload_report offload_report_take(struct offload *offload);
