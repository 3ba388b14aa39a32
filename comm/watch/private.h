/* private.h - what the files of the watch share. */
#ifndef ZD_COMM_WATCH_PRIVATE_H
#define ZD_COMM_WATCH_PRIVATE_H

#include "comm/watch/hosts.h"
#include "comm/watch/pace.h"
#include "comm/watch/watch.h"

#include <assert.h>
#include <pthread.h>

struct comm_files {
    struct watch *watch;
    struct progress progress;
    struct progress *before; /* where the thread's reads and writes counted */
    atomic_bool is_taken;
    _Atomic(const char *) what; /* NULL: not under way yet, or no more */
    atomic_bool is_held;        /* while the thread that trains waits */
    bool (*give_up)(void *ctx); /* under the lock; NULL: the job ends */
    void *ctx;
    /* the watch's: */
    bool was_there;
    uint64_t completed, since;
};

struct place { /* of a rank, as all get it */
    char host[WATCH_HOST_MAX];
    unsigned char token[HOSTS_TOKEN_BYTES]; /* of its board */
    int32_t pid, file;
};

enum board_phase { BOARD_OPEN, BOARD_TELLING, BOARD_TOLD };

struct board {                              /* shared by the ranks of a host */
    unsigned char token[HOSTS_TOKEN_BYTES]; /* it is this one */
    _Atomic uint32_t phase;
    struct verdict verdict; /* of who made it TELLING; others read it when TOLD
                             */
    atomic_bool is_written; /* its writer is here, and has written the event */
    struct seat seats[];
};

/* What the watch remembers of a rank of its own. */
struct own {
    uint64_t stall_done, stall_since; /* operations that run by themselves */
    bool stalls;
};

struct watch {
    struct watch_facts facts;
    pthread_t thread;
    bool is_started;
    int stop; /* an eventfd */
    atomic_bool gave_up, runs_alone;
    _Atomic uint64_t limit; /* microseconds; 0: none */
    struct pace pace;
    struct comm_files files[WATCH_FILES_MAX];
    int launcher;      /* parent when it began */
    pthread_t trainer; /* that created it */

    pthread_mutex_t lock; /* of all below: the thread holds it while it looks */
    struct board *private, *shared;
    size_t shared_bytes;
    int rank, size, count; /* first rank here, of all, ranks here */
    int first_seat;        /* of `rank`, in the board */
    int host_count;        /* ranks with seats in the board */
    int *first;            /* (size) lowest rank of each one's host */
    struct place *places;  /* (size) */
    int8_t *flags;         /* (size) */
    struct hosts *hosts;
    int greetings; /* times that other hosts were asked for the first time */
    uint64_t greeted;
    struct hosts_calls calls;
    struct seat_told *told; /* (size) */
    bool *heard, *ever_heard;
    struct own *own; /* (count) */
    struct watch_listener listener;
    struct watch_ending ending;
    bool is_stalled; /* the listener was told */
    uint64_t next_look, next_stall_look;
    struct zd_error failure; /* of END_FAILED */
    uint64_t last, floor;    /* when it looked last; clocks begin there */
    uint64_t telling_since;
    bool is_over;
    int exit_code;
};

static inline struct board *watch_board(const struct watch *watch)
{
    return watch->shared ? watch->shared : watch->private;
}

static inline struct seat *watch_own(const struct watch *watch, int n)
{
    assert(watch->shared || watch->first_seat == 0);
    return &watch_board(watch)->seats[watch->first_seat + n];
}

static inline const char *watch_host(const struct watch *watch, int rank)
{
    const char *host = watch->places ? watch->places[rank].host : "";
    return *host ? host : "this host"; /* until it is told */
}

/* The watch's thread lives and looks around: called while something takes time.
 */
void watch_alive(struct watch *watch);

/* --- board.c -------------------------------------------------------------- */

struct board *board_create(int seats);
void board_leave(struct watch *watch);
/* Seats of ranks of this process. */
void seat_take(struct seat *seat);

/* --- tell.c --------------------------------------------------------------- */

/* What a hang's record says, on stderr; the thread's error record is used. */
void watch_tell(struct watch *watch, const struct verdict *verdict);
/* Tells the listener, in bounded time. */
void watch_tell_listener(struct watch *watch, const struct verdict *verdict);
/* .. that this may become a hang; NULL: no more. */
void watch_tell_stalled(struct watch *watch, const struct verdict *verdict);

/* --- look.c --------------------------------------------------------------- */

/* What is known of all ranks: told, heard. */
void watch_look_around(struct watch *watch, enum seat_lane lane);
/* For hosts_calls. */
int watch_tell_seats(void *ctx, enum seat_lane lane, struct seat_told *told);
/* Does a thread of the process run, or wait for a CPU? */
bool watch_is_runnable(int pid);
/* Is a wait, or are files, too long? */
bool watch_check_waits(struct watch *watch, struct verdict *verdict);
bool watch_check_files(struct watch *watch, struct verdict *verdict);
bool watch_check_launcher(struct watch *watch, struct verdict *verdict);
/* Does a wait become too long? Tells the listener of rank 0's process. */
void watch_look_at_stall(struct watch *watch);

#endif
