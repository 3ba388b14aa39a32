/* engine.h - the inside of struct offload. Private to offload.
 *
 * Threads: the trainer calls; `worker_count` workers go through jobs; the feeds
 * have a thread where what they queue on a stream waits for workers.
 *
 * A job is one function over consecutive chunks. Jobs are numbered and taken in
 * their order: the chunks of the next one are given out when all of the one
 * before have been, or, when the job is `alone`, when all earlier ones have
 * ended (`after`: when that one has). `ready` of a job's chunks may be taken: a
 * stream raises it as their gradients arrive. Before `shared_end`, chunks that
 * visit the device are taken by visitors (visit.c), in the same order; those
 * take no others. */
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
/* Number `at` of the job's chunks: what it reads and writes of the store, and
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
    int taken[2]; /* by workers, and by visitors: they look at this one next */
    bool alone;
    uint64_t after;         /* ticket of a job that must have ended; 0: none */
    unsigned reads, writes; /* chunk_parts: what it takes from the store; 0:
                               nothing, only slots */
    enum job_list list;
    bool is_over_all;     /* .. of the first segments, or of all of them */
    bool updates;         /* its chunks' parameters are new afterwards */
    int shared_end;       /* its function updates states: before this chunk,
                             visitors take those that visit */
    bool ends_update;     /* the host's part of the step ends with it */
    bool is_staged;       /* gradients come through the ring of buffers */
    bool fills_stage;     /* parameters go through theirs */
    bool is_last;         /* of the micro-batches of a step */
    uint64_t stage_first; /* number of the first chunk's passage */
};

struct visitor {
    struct guest guest;    /* its chunk on the device */
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
    struct visitor *visitor;  /* NULL: it updates on the host */
    struct exact_sum squares; /* the worker's until its jobs have ended */
};

/* Its leases are of memory on the host: what gradients come down to, and where
 * new parameters are made, when that is another array (has_own_params). Tokens
 * are of `down`, `up` and `jobs`. */
struct segment {
    struct offload *offload;
    struct lease slot, params;
    struct timeline down; /* gradients have left the device */
    struct timeline up;   /* parameters have left the host */
    struct tally jobs;    /* numbered by their tickets */
    struct token made;    /* of what makes its parameters */
    void *device;         /* where its parameters go, or NULL */
    int first_chunk, chunk_count;
    size_t elements; /* of its chunks */
    /* under the lock: */
    int chunks_left; /* of the job over all chunks */
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
    uint64_t *records;         /* by chunk: where it begins in states, undo */
    char *states;              /* masters and states in memory, or .. */
    struct store_file *file;   /* .. in a file; else NULL */
    struct snapshot *snapshot; /* NULL: no one reads while updates go on */
    int undo_segment, undo_chunk; /* the first that can be undone */
    char *undo, *undo_grads; /* old masters and states, gradients, of it and
                                later ones */
    struct stage grad_stage, param_stage;
    struct feed down, up; /* the trainer's way to the streams of `place` */

    struct worker *workers;
    int worker_count; /* that run, visitors among them */
    bool *visits;     /* by chunk: the device updates it */
    struct visits visitors;

    pthread_mutex_t lock;    /* of all below, but for the step */
    pthread_cond_t work;     /* workers: something may be taken */
    pthread_cond_t progress; /* trainer, streams, feeds */
    bool is_stopping;
    enum zd_status status; /* first failure of a worker */
    struct zd_error error;
    struct job *jobs; /* ring */
    int job_capacity;
    uint64_t job_begin, job_end; /* numbers of those that have not ended */
    enum param_place *made;      /* by chunk */
    int awaited;                 /* the chunk that goes up next */

    /* the trainer's, read by workers of jobs that it starts later */
    struct optim_step step;      /* of jobs over all chunks */
    struct optim_step unclipped; /* of arrivals, when is_speculative */
    const float *const *block_v;
    int64_t *const *block_sums;
    double norm;
    bool is_speculative;
    bool has_states;     /* other than those of the start */
    double update_begin; /* seconds */

    /* under the lock: */
    struct offload_report report;
    double busy_seconds, disk_seconds; /* of workers with chunks; of those, that
                                          they waited for the disk */
    struct spans *spans;               /* under the lock; NULL: no one asks */
    struct stream_counters down_before, up_before;
};

/* Whether the last gradients of a segment are used as they arrive. */
static inline bool updates_early(const struct offload *offload, int segment)
{
    return offload->is_speculative && segment >= offload->undo_segment;
}

/* report.c: the failure of a worker, as this thread's; ZD_OK when there is
 * none. */
enum zd_status offload_failure(struct offload *offload);

/* Bytes that were asked to go down, and up. */
void report_add(struct offload *offload, uint64_t down, uint64_t up);

/* A wait of the trainer, for the report: to the disk the share of the time that
 * workers meanwhile waited for it, the rest to what it is for. WAITING: to the
 * end of the scope. */
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
/* Ticket of the job; waits for a place. A job without chunks is not added: 0.
 */
uint64_t job_add(struct offload *offload, const struct job *job);
/* Make `chunks` more chunks of the job available; from any thread. */
void job_raise(struct offload *offload, uint64_t ticket, int chunks);
void jobs_wait(struct offload *offload); /* until all have ended */
bool jobs_have_ended(struct offload *offload);

/* --- acquire.c */
/* A chunk's memory, in a file of the list that is begun; release it again. */
enum zd_status chunk_acquire(
        struct offload *offload, int chunk, struct chunk_memory *memory_out);
enum zd_status chunk_release(struct offload *offload, int chunk);
/* For the trainer, while no job runs. */
enum zd_status chunk_list_begin(
        struct offload *offload, int first, int count, unsigned reads,
        unsigned writes);

/* --- states.c */
void snapshot_destroy(struct snapshot *snapshot);
/* A worker is about to write to a chunk; NULL: no one reads. */
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

/* --- visit.c */
/* Streams and buffers, where the device updates anything. */
enum zd_status visits_begin(struct offload *offload);
void visits_end(struct offload *offload);
/* Which chunks of a request are the device's. */
void visits_choose(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count, bool *visits);
/* Bytes of all buffers. */
size_t visits_bytes(
        const struct offload_request *request, const struct chunk *chunks,
        int chunk_count);
/* Its update writes the parameter where that lives, on the device. */
bool visit_is_home(const struct offload *offload, int chunk);
/* Chunks are about to be updated: for the report. */
void visits_count(struct offload *offload, int first, int count);
/* The thread is a visitor's from now on. */
void visitor_enter(const struct worker *worker);
/* optim_update of a span of the host, on the device; done when it returns. */
enum zd_status visit_update(
        const struct worker *worker, const struct chunk *chunk,
        const struct optim_span *here, const struct optim_step *step);

/* --- segments.c: whose turn it is at a segment's memory. */
enum zd_status segments_create(struct offload *offload);
void segments_destroy(struct offload *offload);
/* Gradients come down; what the stream `down` does later may write to the slot.
 * *after_out: ticket of the job that adds what came before, or 0. */
enum zd_status segment_take_grads(
        struct offload *offload, int segment, int micro, bool updates,
        uint64_t *after_out);
/* They are queued, and so is the job that goes through them, if any. */
void segment_grads_taken(
        struct offload *offload, int segment, bool updates, uint64_t ticket);
/* A job over all chunks of the first `count` segments is about to write, and no
 * other is under way: memory is its own when this returns. */
enum zd_status segments_take(
        struct offload *offload, int count, const char *who);
/* The job was added. */
void segments_taken(struct offload *offload, int count, uint64_t ticket);
/* Slots that are no home of parameters have had their use, but for what goes up
 * to the device first when it `sends`. */
enum zd_status segments_leave(
        struct offload *offload, bool sends, const char *who);
/* All jobs and copies are done. */
void segments_settle(struct offload *offload);
/* token_wait of what was fed to go up; the engine owns the timeline. */
enum zd_status segments_wait_up(
        struct timeline *timeline, uint64_t number, struct stream *stream);
/* The lease of the segment's parameters. */
struct lease *segment_params(struct offload *offload, int segment);
/* Under the lock: a job begins, or is done with one of its chunks. */
void segments_note_begun(struct offload *offload, const struct job *job);
void segments_note_chunk(
        struct offload *offload, const struct job *job, int chunk);

/* --- uploads.c: parameters that live on the device. */
/* They are about to be made again, by an update or from masters; what was sent
 * before has left. */
void uploads_begin(struct offload *offload, bool by_update);
/* Under the lock: a chunk's parameter is final. */
void uploads_note(struct offload *offload, int chunk, enum param_place place);
/* A segment's go up as they are made; {0} where they go nowhere. */
enum zd_status uploads_send(
        struct offload *offload, int segment, struct token *sent_out);
/* Until a segment's copies up that were asked for are on their stream. */
enum zd_status uploads_await(struct offload *offload, int segment);
