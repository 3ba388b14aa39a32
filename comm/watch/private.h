/* private.h - what the files of the watch share. */
#pragma once

#include "comm/watch/pace.h"
#include "comm/watch/peers.h"
#include "comm/watch/watch.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct comm_files {
    struct watch *watch;
    struct progress progress;
    struct progress *before; /* the thread's previous counter */
    atomic_bool is_taken;
    _Atomic(const char *) what; /* NULL: not begun yet, or ended */
    atomic_bool is_held;        /* paused while the main thread waits */
    bool (*goes_on)(void *ctx); /* comm_files_ask_first; under the lock; NULL:
                                   the job ends */
    void *ctx;
    /* the watch's: */
    bool was_there;
    uint64_t completed, since;
};

struct watch {
    struct watch_facts facts;
    pthread_t thread;
    bool is_started;
    int stop; /* an eventfd */
    atomic_bool gave_up;
    _Atomic uint64_t limit; /* microseconds; 0: none */
    struct pace pace;
    struct comm_files files[WATCH_FILES_MAX];
    int launcher;      /* parent process at the start */
    pthread_t trainer; /* the thread that created the watch */

    pthread_mutex_t lock; /* of all below; the watch holds it while it checks */
    int rank, size, count;    /* first rank here, of all, ranks here */
    struct seat *seats;       /* (count) */
    struct peer_about *about; /* (size); NULL: not joined yet */
    struct rank_known *ranks; /* (size) */
    struct peers *peers;      /* NULL: all ranks are here, or not joined */
    int greetings;            /* rounds of greet so far */
    uint64_t greeted;
    struct watch_listener listener;
    struct watch_ending ending;
    bool is_stalled; /* the listener was told of a stall */
    uint64_t next_look, next_stall_look;
    struct zd_error failure; /* of END_FAILED */
    /* time of the last check; no clock starts before floor */
    uint64_t last, floor;
    uint64_t over_since;
    bool is_over;    /* this process ends, with .. */
    bool is_written; /* the verdict's writer has written the event */
    bool has_heard;  /* of the end, from another process */
    struct verdict heard;
    int exit_code;
};

static inline bool watch_has(const struct watch *watch, int rank)
{
    return rank >= watch->rank && rank < watch->rank + watch->count;
}

static inline const char *watch_host(const struct watch *watch, int rank)
{
    return watch->about ? watch->about[rank].host : "this host";
}

/* Is the rank on the host of this process? */
static inline bool watch_same_host(const struct watch *watch, int rank)
{
    return strcmp(watch_host(watch, rank), watch_host(watch, watch->rank)) == 0;
}

/* Called during anything that takes time: the watch was scheduled, and is not
 * late itself. If it comes later than this it was not scheduled. */
static inline void watch_alive(struct watch *watch)
{
    enum { LOST = 1000 * 1000 };
    uint64_t now = seat_clock();
    if (now - watch->last > LOST)
        watch->floor = now;
    watch->last = now;
}

/* --- tell.c --------------------------------------------------------------- */

/* Print the record of a hang on stderr; uses the thread's error record. */
void watch_tell(struct watch *watch, const struct verdict *verdict);
/* Tells the listener, in bounded time. */
void watch_tell_listener(struct watch *watch, const struct verdict *verdict);
/* .. that this may become a hang; NULL: the wait is over. */
void watch_tell_stalled(struct watch *watch, const struct verdict *verdict);

/* --- look.c --------------------------------------------------------------- */

/* The state of all ranks: told, heard. */
void watch_look_around(struct watch *watch);
/* Does a thread of the process run, or wait for a CPU? */
bool watch_is_runnable(int pid);
/* Was the process stopped (SIGSTOP), or has it ended? */
bool watch_is_stopped(int pid);
/* Has a wait or file I/O taken too long? */
bool watch_check_waits(struct watch *watch, struct verdict *verdict);
bool watch_check_files(struct watch *watch, struct verdict *verdict);
bool watch_check_launcher(struct watch *watch, struct verdict *verdict);
/* Is a wait getting long? Tells the listener of rank 0's process. */
void watch_look_at_stall(struct watch *watch);
