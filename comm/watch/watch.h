/* watch.h - finds ranks that hang: one thread in each process, for every back
 * end.
 *
 *   rank's thread        seat (seat.h)      zerod-watch, every 50 ms
 *   begins, waits, --->  what, since   <--- is my wait too long? who is late,
 *   works, goes on                          here and in other processes?
 *                                           (verdict.h); do files go on?
 *
 * Processes ask each other by datagrams (peers.h). Who reports the end:
 *
 *      finds it, or hears of it ---> is_over ---> tells, if it is its host's
 *                                             ---> writes the event (WRITTEN to
 *                                                  all), or waits for that
 *                                             ---> ends
 *
 * The watch calls neither MPI nor NCCL. If it was not scheduled for more than a
 * second itself, all clocks restart.
 *
 * Threads: watch_* are called by the rank's main thread unless noted; for seats
 * see seat.h. */
#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "comm/watch/seat.h"

enum { WATCH_HOST_MAX = 256, WATCH_FILES_MAX = 8 };

struct watch;

struct watch_facts {
    double timeout;       /* seconds; below 0: learned; 0: no limit */
    double files_timeout; /* seconds; 0: no limit */
    bool is_launched;     /* ends with the process that launched it */
    /* Ends the process with this code, or fails its ranks' waits; called on the
     * watch's thread. */
    void (*end)(void *ctx, int exit_code);
    void *ctx;
};

/* Creates seats for `seats` ranks of this process, in the state of waiting to
 * join, and starts the thread unless there is nothing to watch.
 * ZD_ERR_MEMORY. */
enum zd_status watch_create(
        const struct watch_facts *facts, int seats, struct watch **watch_out);
void watch_destroy(struct watch *watch);

/* Where the ranks are. */
struct watch_world {
    int rank, size;   /* this process has the ranks from `rank` on, of `size` */
    const char *host; /* of this process' ranks */
    bool shares_memory; /* whether all processes do */
    /* all: (size, bytes) */
    enum zd_status (*gather)(
            void *ctx, const void *mine, size_t bytes, void *all);
    void *ctx;
};
/* Collective over processes; `gather` is NULL if this process has all ranks.
 * Ends the ranks' wait to join. */
enum zd_status watch_join(struct watch *watch, const struct watch_world *world);
/* The seat of the nth rank of this process; after watch_join. Borrowed. */
struct seat *watch_seat(struct watch *watch, int n);

/* A step took `seconds`, from which the limit is learned. */
void watch_step(struct watch *watch, double seconds);
/* Predicted seconds of a step, for the limit of the first steps. */
void watch_predict(struct watch *watch, double seconds);
/* This rank's operations run by themselves (NCCL), without waits on the host:
 * an operation that is begun and not done counts as a wait. */
void watch_operations_run(struct watch *watch);
/* This process reports itself why it ends: its watch stops checking. */
void watch_give_up(struct watch *watch);

struct watch_hang { /* for the listener */
    int rank;
    const char *host;
    int64_t step;
    const char *operation;
    double seconds;
    bool is_here; /* rank 0 is in this process */
};
/* Called in addition to what is printed, on the watch's thread: */
struct watch_listener {
    void *ctx; /* NULL: no listener */
    /* On one rank, rank 0 if it runs; must return within two seconds. */
    void (*hang)(void *ctx, const struct watch_hang *hang);
    /* In rank 0's process, when three fifths of the limit have passed (three
     * good steps, if it is learned): it becomes a hang at the limit. NULL: the
     * wait is over. Must return at once. A warning on stderr says so too. */
    void (*stalled)(void *ctx, const struct watch_hang *hang);
};
void watch_listen(struct watch *watch, const struct watch_listener *listener);
struct watch_ending {
    void *ctx;
    void (*end)(void *ctx); /* before the process ends */
};
void watch_on_end(struct watch *watch, const struct watch_ending *ending);

/* This rank has failed, and perhaps others of its host too. The first of them
 * reports its thread's error record as the cause; all processes end as after a
 * hang. Returns only if ranks are threads, if another rank reports, or after
 * watch_give_up. Any thread but the watch's. */
void watch_fail(struct watch *watch);

/* File I/O from here to comm_files_end, which the same thread (any) calls.
 * Progress is what this thread, and others with the same progress_use
 * (base/progress.h), read and write meanwhile; comm_files_end restores the
 * thread's previous counter. At most WATCH_FILES_MAX at a time: further calls
 * return NULL and are not watched. */
struct comm_files;
struct comm_files *watch_files_begin(struct watch *watch, const char *what);
/* The rank's thread waits for data; treated like file I/O until
 * comm_files_end. */
struct comm_files *watch_data_begin(struct watch *watch);
/* If the I/O makes no progress in time, first call `goes_on` on the watch's
 * thread: if it returns true, the job continues without it. Valid until
 * comm_files_end, which waits for a call in progress. Called by the thread that
 * began the I/O, not the main thread; a thread that is left running may call
 * comm_files_end after watch_destroy. */
void comm_files_ask_first(
        struct comm_files *files, bool (*goes_on)(void *ctx), void *ctx);
void comm_files_end(struct comm_files *files);
