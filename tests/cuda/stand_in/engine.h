/* engine.h - a block of threads while it runs (block.cpp), and what is said of
 * a kernel's mistakes (mistakes.cpp). */
#pragma once

#include "tests/cuda/stand_in/fibre.h"
#include "tests/cuda/stand_in/internal.h"

#include <pthread.h>

namespace standin
{
enum { MAX_THREADS = 1024, WARP = 32, MAX_WARPS = MAX_THREADS / WARP };

struct site {
    const char *op, *file;
    int line;
};

struct meeting {
    struct meeting *next, *next_made;
    struct site site;
    uint32_t mask, arrived, left;
    unsigned count, stride;
    alignas(16) unsigned char bytes[WARP * ZD_EMULATE_EXCHANGE_BYTES];
};

struct warp {
    uint32_t present, started, alive, ready;
    uint32_t sync_at;     /* by the engine's clock: its last __syncwarp */
    struct meeting *open; /* not all lanes are there */
    struct meeting *held[WARP];
};

struct engine {
    const struct zd_emulate_launch *launch;
    struct zd_emulate_dim index[MAX_THREADS], grid;
    unsigned threads, warps, block_dim[3];
    uint32_t ready_warps;
    uint32_t clock, barrier_at; /* counts what orders threads, for races.cpp */
    struct warp warp[MAX_WARPS];

    /* the barrier */
    unsigned waiting, ended;
    struct site barrier;
    unsigned first_waiting, first_ended;

    struct meeting *free_meetings, *made_meetings;

    unsigned current;
    struct fibre main, *running;
    pthread_t owner;
    bool has_owner, reversed;
    struct fibre *fibre_of[MAX_THREADS]; /* of threads that wait */
    struct fibre *idle[MAX_THREADS + 1], *all[MAX_THREADS + 1];
    unsigned idle_count, all_count;
    cudaError_t error;

    unsigned char *shared_map;
    struct static_shared statics;
};

/* Of the last block that ran on this thread of the host; NULL: none has. */
extern __thread struct engine *here;

/* --- mistakes.cpp: each reports, and ends the block ----------------------- */

/* Once: faults of kernels become errors, unless somebody else, a sanitizer say,
 * looks after faults. */
void watch_faults(void);
/* Nobody can run: somebody waits for a thread that never comes. */
[[noreturn]] void stuck(struct engine *e);
/* Some wait at the barrier, another has ended. */
[[noreturn]] void fail_ended(struct engine *e);
/* Another place than where the others wait. */
[[noreturn]] void fail_barrier(struct engine *e, const char *file, int line);
/* A mask that the calling lane or the warp does not allow. */
[[noreturn]] void fail_exchange(
        struct engine *e, unsigned mask, unsigned count, const char *op,
        const char *file, int line);

} // namespace standin
