/* watch.h - whether the ranks' waits end: one thread beside each process'
 * ranks, for every back end.
 *
 *   rank's thread        seat (seat.h)      zerod-watch, every 50 ms
 *   begins, waits, --->  what, since   <--- is my wait too long? who is late,
 *   works, goes on                          here and in other processes?
 *                                           (verdict.h); do files go on?
 *
 * Processes ask each other by datagrams (peers.h). Which rank says the end:
 *
 *      finds it, or hears of it ---> is_over ---> tells, if it is its host's
 *                                             ---> writes the event (WRITTEN to
 *                                                  all), or waits for that
 *                                             ---> ends
 *
 * The watch calls no MPI and no NCCL. It measures from when it was last
 * scheduled: if it lost more than a second, all clocks begin anew.
 *
 * Threads: watch_* are the ranks' thread's but where said; seats are seat.h's.
 */
#pragma once

#include "base/progress.h"
#include "base/status.h"
#include "comm/watch/seat.h"

enum { WATCH_HOST_MAX = 256, WATCH_FILES_MAX = 8 };

struct watch;

struct watch_facts {
    double timeout;       /* seconds; below 0: learned; 0: waits may be long */
    double files_timeout; /* 0: files may stand still */
    bool is_launched;     /* by a process whose end is this one's */
    /* The process ends with this code, or its ranks' waits do; on the watch's
     * thread. */
    void (*end)(void *ctx, int exit_code);
    void *ctx;
};

/* Seats for `seats` ranks of this process; each waits for the others to join.
 * The thread begins, unless there is nothing to watch. ZD_ERR_MEMORY. */
enum zd_status watch_create(
        const struct watch_facts *facts, int seats, struct watch **watch_out);
void watch_destroy(struct watch *watch);

/* Who is where. */
struct watch_world {
    int rank, size;     /* ranks `rank` and on of `size` are in this process */
    const char *host;   /* of this process' ranks */
    bool shares_memory; /* do all processes? */
    /* all: (size, bytes) */
    enum zd_status (*gather)(
            void *ctx, const void *mine, size_t bytes, void *all);
    void *ctx;
};
/* Collective among processes; with all ranks in this process `gather` is NULL.
 * No one waits any more. */
enum zd_status watch_join(struct watch *watch, const struct watch_world *world);
/* The seat of the nth rank of this process; after watch_join. Borrowed. */
struct seat *watch_seat(struct watch *watch, int n);

/* A step was made; the limit is learned. */
void watch_step(struct watch *watch, double seconds);
/* Predicted seconds of a step, for the limit of the first steps. */
void watch_predict(struct watch *watch, double seconds);
/* Operations of this process' rank end by themselves, and no one waits for
 * them in between: one that is begun and not done counts as a wait. */
void watch_operations_run(struct watch *watch);
/* This process says itself why it ends: its watch finds nothing any more. */
void watch_give_up(struct watch *watch);

struct watch_hang { /* what was found */
    int rank;
    const char *host;
    int64_t step;
    const char *operation;
    double seconds;
    bool is_here; /* rank 0 is in this process */
};
/* Beside what is printed, on the watch's thread: */
struct watch_listener {
    void *ctx; /* NULL: no one */
    /* On one rank of all, rank 0 where it runs: in at most two seconds. */
    void (*hang)(void *ctx, const struct watch_hang *hang);
    /* In the process of rank 0, at once: it will be a hang when the limit has
     * passed, three fifths of which have (three good steps, while it is
     * learned); NULL: no more. A warning on stderr says so too. */
    void (*stalled)(void *ctx, const struct watch_hang *hang);
};
void watch_listen(struct watch *watch, const struct watch_listener *listener);
struct watch_ending {
    void *ctx;
    void (*end)(void *ctx); /* before the process ends */
};
void watch_on_end(struct watch *watch, const struct watch_ending *ending);

/* This rank has failed, as others of its host may have, and its thread's error
 * record says how: the first one tells it, as the cause of all; all end as
 * after a hang. Returns only where ranks
 * are threads, where another one tells, or after watch_give_up. Any thread but
 * the watch's. */
void watch_fail(struct watch *watch);

/* Files that are read or written; any thread, which ends what it began. What it
 * reads and writes meanwhile counts, and that of others which progress_use the
 * same (base/progress.h); afterwards it counts where it did before. At most
 * WATCH_FILES_MAX at a time: further ones are NULL, and not looked at. */
struct comm_files;
struct comm_files *watch_files_begin(struct watch *watch, const char *what);
/* The rank's thread waits for data: as files, until it has them. */
struct comm_files *watch_data_begin(struct watch *watch);
/* When nothing of them is done in time `goes_on` is asked first, on the watch's
 * thread: true, and the job goes on without them. Until comm_files_end, which
 * waits for it. By the thread that began them, which is none that trains; one
 * that is left behind may come to that end after watch_destroy. */
void comm_files_ask_first(
        struct comm_files *files, bool (*goes_on)(void *ctx), void *ctx);
void comm_files_end(struct comm_files *files);
