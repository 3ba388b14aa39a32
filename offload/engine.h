/* engine.h - the inside of struct offload. Private to offload.
 *
 * Threads: the trainer calls; `worker_count` workers run jobs; a feed has a
 * thread if what it queues must wait for workers.
 *
 * A job is one function over consecutive chunks. Jobs are numbered and run in
 * order: workers start on a job's chunks when all chunks of the one before have
 * been taken; if it is `alone`, when all earlier jobs have ended; with `after`,
 * when that job has. Only the first `ready` chunks may be taken: a stream
 * raises it as gradients arrive. Before `shared_end`, chunks that are updated
 * on the device are taken only by visitors (visit.c), in the same order, and
 * visitors take no others. */
#pragma once

#include "base/threads.h"
#include "offload/feed.h"
#include "offload/guest.h"
#include "offload/stage.h"
#include "offload/store_record.h"

#include <pthread.h>

struct worker;
struct job;
struct snapshot;
/* Processes chunk number `at` of the job, with its memory from the store and
 * its slots. */
typedef enum zd_status job_fn(
        struct worker *worker, const struct job *job, int at,
        const struct chunk_memory *memory);

enum job_list { LIST_NONE, LIST_WANTED, LIST_BEGINNING, LIST_BEGUN };

struct job {
    job_fn *fn;
    uint64_t ticket;  /* 1 + its number */
    int first, count; /* chunks */
    int ready, finished;
    int taken[2]; /* next chunk to look at: of workers, of visitors */
    bool alone;
    uint64_t after; /* ticket of a job that must have ended; 0: none */
    /* chunk_parts that it uses from the store; 0: only slots */
    unsigned reads, writes;
    enum job_list list;
    bool is_over_all; /* over the chunks of the first segments, or all */
    bool updates;     /* makes new parameters */
    int shared_end; /* an update: visitors take the visiting chunks before this
                       one */
    bool ends_update;     /* the host's part of the step ends with it */
    bool is_staged;       /* gradients pass through the ring of buffers */
    bool fills_stage;     /* parameters go through theirs */
    bool is_last;         /* last micro-batch of the step */
    uint64_t stage_first; /* passage number of the first chunk */
};

struct visitor {
    struct guest guest;    /* its buffer on the device */
    struct stream *stream; /* of its kernels, on a GPU */
};
enum { VISITORS = 4 };
struct visits {
    struct device *device;
    struct stream *up, *down;
    pthread_mutex_t lock; /* of these streams */
    struct visitor visitors[VISITORS];
    int count; /* 0: the host updates all */
};

struct worker {
    struct offload *offload;
    pthread_t thread;
    int index;
    struct visitor *visitor; /* NULL: an ordinary worker */
    /* its own partial sum, until its jobs have ended */
    struct exact_sum squares;
};

/* Its leases are for host memory: the slot that gradients come down to, and the
 * array for new parameters if there is one (has_own_params). Their tokens
 * belong to `down`, `up` and `jobs`. */
struct segment {
    struct lease slot, params;
    struct timeline down; /* copies of gradients down */
    struct timeline up;   /* copies of parameters up */
    struct tally jobs;    /* numbered by their tickets */
    struct token made;    /* of the job that makes its parameters */
    void *device;         /* where its parameters are on the device, or NULL */
    int first_chunk, chunk_count;
    size_t elements; /* of its chunks */
    /* under the lock: */
    int chunks_left; /* of a job over all chunks */
};

/* Where a chunk's parameters are final. */
enum param_place { PARAM_OLD, PARAM_ON_HOST, PARAM_AT_HOME };

struct offload {
    struct offload_request request;
    struct offload_place place;
    const struct arena *arena;

    struct chunk *chunks;
    int chunk_count;
    int *extent_chunks; /* (extent_count) first chunk of each extent */
    struct segment *segments;
    size_t *segment_offsets;
    struct store_request store_request;
    uint64_t *records;            /* by chunk: offset in states, undo */
    char *states;                 /* masters and states in memory, or .. */
    struct store_file *file;      /* .. in a file; else NULL */
    struct snapshot *snapshot;    /* NULL: no reader during updates */
    int undo_segment, undo_chunk; /* first one whose update can be undone */
    char *undo, *undo_grads; /* old masters and states, and gradients, from that
                                one on */
    struct stage grad_stage, param_stage;
    /* through which the trainer queues on the streams of `place` */
    struct feed down, up;

    struct worker *workers;
    int worker_count; /* running workers, including visitors */
    bool *visits;     /* by chunk: the device updates it */
    struct visits visitors;

    pthread_mutex_t lock;    /* of all below, but for the step */
    pthread_cond_t work;     /* for workers: a chunk may be available */
    pthread_cond_t progress; /* for the trainer, streams, feeds */
    bool is_stopping;
    enum zd_status status; /* first failure of a worker */
    struct zd_error error;
    struct job *jobs; /* ring */
    int job_capacity;
    uint64_t job_begin, job_end; /* range of jobs that have not ended */
    enum param_place *made;      /* by chunk */
    int awaited;                 /* next chunk to be copied up */

    /* written by the trainer, read by workers of jobs that it starts later */
    struct optim_step step;      /* of jobs over all chunks */
    struct optim_step unclipped; /* of arrivals, when is_speculative */
    const float *const *block_v;
    int64_t *const *block_sums;
    double norm;
    bool is_speculative;
    bool has_states;     /* m and v differ from those at the start */
    double update_begin; /* seconds */

    /* under the lock: */
    struct offload_report report;
    double busy_seconds, disk_seconds; /* workers' time with chunks; waits for
                                          the disk within it */
    struct spans *spans;               /* under the lock; NULL: no one asks */
    double down_before, up_before;     /* seconds of streams */
};

/* Whether a segment is updated as its last gradients arrive. */
static inline bool updates_early(const struct offload *offload, int segment)
{
    return offload->is_speculative && segment >= offload->undo_segment;
}

/* report.c: returns a worker's failure, with its record in this thread. */
enum zd_status offload_failure(struct offload *offload);

/* Adds bytes of copies that were requested down and up. */
void report_add(struct offload *offload, uint64_t down, uint64_t up);

/* Times a wait of the trainer for the report. The share of that time that
 * workers waited for the disk counts as a disk wait, the rest as a wait of this
 * kind. WAITING: until the end of the scope. */
enum wait_for { WAIT_DOWN, WAIT_HOST, WAIT_UP };
struct wait {
    struct offload *offload;
    enum wait_for what;
    double begin, busy, disk;
};
struct wait wait_begin(struct offload *offload, enum wait_for what);
void wait_end(const struct wait *wait);
#define WAITING(offload, what)                                                 \
    ZD_SCOPED(wait_end) struct wait wait_ = wait_begin(offload, what)

/* --- workers.c */
enum zd_status workers_start(struct offload *offload);
void workers_stop(struct offload *offload);
/* Returns the job's ticket; waits while the ring is full. A job without chunks
 * is not added: 0. */
uint64_t job_add(struct offload *offload, const struct job *job);
/* Make `chunks` more chunks of the job available; from any thread. */
void job_raise(struct offload *offload, uint64_t ticket, int chunks);
void jobs_wait(struct offload *offload); /* until all have ended */
bool jobs_have_ended(struct offload *offload);

/* --- acquire.c */
/* A chunk's memory; a file must have begun a list with it. Release it again. */
enum zd_status chunk_acquire(
        struct offload *offload, int chunk, struct chunk_memory *memory_out);
enum zd_status chunk_release(struct offload *offload, int chunk);
/* For the trainer, while no jobs run. */
enum zd_status chunk_list_begin(
        struct offload *offload, int first, int count, unsigned reads,
        unsigned writes);

/* --- states.c */
void snapshot_destroy(struct snapshot *snapshot);
/* Call before a worker writes to a chunk. `snapshot` may be NULL. */
void snapshot_before_write(
        struct snapshot *snapshot, int chunk, const struct chunk_memory *live);

/* --- update.c */
enum zd_status chunk_update(
        const struct worker *worker, const struct optim_step *step,
        const struct chunk *chunk, const struct chunk_memory *memory,
        const float *block_v);
/* Save what an update of the chunk overwrites. */
void chunk_save(
        struct offload *offload, const struct chunk *chunk,
        const struct chunk_memory *memory);
job_fn chunk_clear;
/* The slots' part of the store, if they are in a file; else 0. */
unsigned store_slots(bool in_file);
struct job job_over_all(
        const struct offload *offload, job_fn *fn, unsigned reads,
        unsigned writes);

/* --- visit.c */
/* Creates streams and buffers, if the device updates anything. */
enum zd_status visits_begin(struct offload *offload);
void visits_end(struct offload *offload);
/* Chooses which chunks the device updates. */
void visits_choose(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, bool *visits);
/* Bytes of all buffers. */
size_t visits_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);
/* Does the chunk's update write the parameter directly to its place on the
 * device? */
bool visit_is_home(const struct offload *offload, int chunk);
/* Counts chunks that are about to be updated; for the report. */
void visits_count(struct offload *offload, int first, int count);
/* Sets up the calling thread as a visitor. */
void visitor_enter(const struct worker *worker);
/* optim_update on the device, of a span in host memory; synchronous. */
enum zd_status visit_update(
        const struct worker *worker, const struct chunk *chunk,
        const struct optim_span *here, const struct optim_step *step);

/* --- segments.c: leases of segments' host memory. */
enum zd_status segments_create(struct offload *offload);
void segments_destroy(struct offload *offload);
/* Begins copies of gradients down: later work of the stream `down` may write to
 * the slot. *after_out: ticket of the job that adds the previous micro-batch,
 * or 0. */
enum zd_status segment_take_grads(
        struct offload *offload, int segment, int micro, bool updates,
        uint64_t *after_out);
/* The copies are queued, and so is the job that processes them, if any. */
void segment_grads_taken(
        struct offload *offload, int segment, bool updates, uint64_t ticket);
/* Before a job over all chunks of the first `count` segments; no other job
 * runs. When this returns, the job may write to their memory. */
enum zd_status segments_take(
        struct offload *offload, int count, const char *who);
/* Call after the job was added. */
void segments_taken(struct offload *offload, int count, uint64_t ticket);
/* Frees slots that do not store parameters, after the copies up if it
 * `sends`. */
enum zd_status segments_leave(
        struct offload *offload, bool sends, const char *who);
/* All jobs and copies are done. */
void segments_settle(struct offload *offload);
/* token_wait for copies that were fed to `up`; the engine owns the timeline. */
enum zd_status segments_wait_up(
        struct timeline *timeline, uint64_t number, struct stream *stream);
/* The lease of the segment's parameters. */
struct lease *segment_params(struct offload *offload, int segment);
/* Under the lock: a job begins, or is done with one of its chunks. */
void segments_note_begun(struct offload *offload, const struct job *job);
void segments_note_chunk(
        struct offload *offload, const struct job *job, int chunk);

/* --- uploads.c: parameters that live on the device. */
/* Parameters are about to be made again, by an update or from masters. Earlier
 * copies must be done. */
void uploads_begin(struct offload *offload, bool by_update);
/* Under the lock: a chunk's parameter is final. */
void uploads_note(struct offload *offload, int chunk, enum param_place place);
/* Copies a segment's parameters up as they are made; {0} if they go nowhere. */
enum zd_status uploads_send(
        struct offload *offload, int segment, struct token *sent_out);
/* Waits until a segment's requested copies up are queued on their stream. */
enum zd_status uploads_await(struct offload *offload, int segment);
