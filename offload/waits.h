/* waits.h - what the trainer waits for: the copies, the workers, the disk.
 * Private to offload.
 *
 * Clocks. `working` says how the time passes for who waits for workers: the
 * share of the busy ones that wait for the disk goes to the disk, the rest to
 * what the first job is for. `holding` of a stream does so too, but stands
 * while the stream can go on: who waits for an event of it waits for the
 * workers only as long as the stream does. A wait is the difference of two
 * readings; what no clock has counted is the copy.
 *
 * Threads: any. It has its own lock, which is never taken under the engine's;
 * so events may arrive out of order, by as long as a thread is interrupted. */
#ifndef ZD_OFFLOAD_WAITS_H
#define ZD_OFFLOAD_WAITS_H

#include "offload/offload.h"

#include <pthread.h>

/* The reasons for a wait of the trainer. */
enum wait_for { WAIT_DOWN, WAIT_HOST, WAIT_DISK, WAIT_UP, WAITS };

struct waits {
    pthread_mutex_t lock; /* of all below */
    double counted_to;    /* seconds */
    int busy;             /* workers that have a chunk */
    int on_disk;          /* of them, that wait for the disk */
    uint64_t jobs;        /* that the next is news of */
    enum wait_for first;  /* what the first job is for; UP: there is none */
    bool is_held[WAITS];  /* the stream DOWN, or UP, waits for the workers */
    double working[WAITS], holding[WAITS][WAITS]; /* seconds */
    double waited[WAITS];                         /* for the next report */
};

void waits_init(struct waits *waits);
void waits_fini(struct waits *waits);

/* So many workers more have a chunk, and of them wait for the disk. */
void waits_work(struct waits *waits, int busy, int on_disk);
/* `jobs`: of those that were added and that ended the number, which tells the
 * newest from older news. */
void waits_first(struct waits *waits, uint64_t jobs, enum wait_for first);
/* A stream (WAIT_DOWN, WAIT_UP) waits for the workers from now on, or no
 * longer. */
void waits_hold(struct waits *waits, enum wait_for stream, bool is_held);

struct wait {
    const double *clocks;
    double begin, before[WAITS];
};
/* A wait of the trainer for a stream (WAIT_DOWN, WAIT_UP) or for the workers
 * (WAIT_HOST). */
struct wait wait_begin(struct waits *waits, enum wait_for whom);
/* For the report: to the workers' and the disk's part what the clocks say, the
 * rest to `rest`. */
void wait_end(struct waits *waits, const struct wait *wait, enum wait_for rest);
/* Fills the report's waits since the last call. */
void waits_take(struct waits *waits, struct offload_report *report);

#endif
